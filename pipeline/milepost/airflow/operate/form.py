"""The form of all acts, and the parser of a filled-in form.

Airflow checks the type of each field before a run exists. The first task checks the rest here, before anything is done:
values that a field does not accept, missing fields, fields of another act, and unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.acts import ACTS, Act
from milepost.airflow.operators import forms
from milepost.errors import InvalidRequest
from milepost.language import nearest

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobspec.load import LoadedJob

_SHARED = (forms.WHAT, forms.DRY_RUN, forms.APPROVE)


@dataclass(frozen=True, slots=True)
class ActRequest:
    """A parsed form. form: values of the act's fields, by their short names; a field of the command has its default."""

    act: Act[Any]
    form: Mapping[str, Any]
    dry_run: bool
    approve: bool


def operate_form(job: LoadedJob) -> dict[str, Param]:
    """Return the form: the choice of an act, a section of fields for each act, and the options of the run."""
    form = {forms.WHAT: forms.what({act.name: act.title for act in ACTS.values()})}
    for act in ACTS.values():
        for name, field in act.form_fields.items():
            form[name] = forms.in_section(act.title, forms.field_param(field, job))
    unapproved = [act.name for act in ACTS.values() if not act.needs_approval]
    return form | {forms.DRY_RUN: forms.dry_run(), forms.APPROVE: forms.approve(unapproved)}


def parse_form(form: Mapping[str, Any], job: LoadedJob) -> ActRequest:
    """Parse and validate a form.

    {"what": "rollback", "rollback_to": "41", "dry_run": False, ...} -> the act `rollback`, form {"to": "41", ...}

    Raises:
        InvalidRequest: an unknown field, a missing one, one of another act, or a value that a field does not accept.
    """
    act = ACTS.get(str(form.get(forms.WHAT)))
    if act is None:
        raise _invalid_field(forms.WHAT, forms.WHAT_TITLE, f"one of {', '.join(ACTS)}", form.get(forms.WHAT))
    params = operate_form(job)
    _refuse_unknown(form, list(params))
    _refuse_foreign(act, form, params)
    for name, field in act.form_fields.items():
        if form[name] is None:
            if field.required:
                meaning = params[name].description
                raise InvalidRequest(f"field {name} ({field.title}) is empty. Nothing was done. Its meaning: {meaning}")
        elif not field.kind.accepts(form[name]):
            raise _invalid_field(name, field.title, field.kind.expected, form[name])
    own = {field.name: form.get(act.form_name(field.name), field.default) for field in act.fields}
    _require_one(act, own)
    return ActRequest(act, own, bool(form[forms.DRY_RUN]), act.needs_approval and bool(form[forms.APPROVE]))


def _require_one(act: Act[Any], own: Mapping[str, Any]) -> None:
    """Refuse none, and several, of the fields of which exactly one must be filled in."""
    filled = [str(own[name]) for name in act.exactly_one if own[name] is not None and own[name] is not False]
    if act.exactly_one and len(filled) != 1:
        fields = [act.form_name(name) for name in act.exactly_one]
        titles = ", ".join(act.form_fields[name].title for name in fields)
        got = " and ".join(filled) or "none"
        raise _invalid_field(" and ".join(fields), titles, "exactly one of them", got)


def _refuse_unknown(form: Mapping[str, Any], known: list[str]) -> None:
    """Refuse unknown fields: Airflow accepts any key in a run's configuration."""
    unknown = [name for name in form if name not in known]
    if not unknown:
        return
    near = [name for typed in unknown if (name := nearest(typed, known)) is not None]
    suggestion = f" Did you mean {', '.join(near)}?" if near else ""
    raise InvalidRequest(
        f"the form has no field {', '.join(unknown)}. Nothing was done.{suggestion}",
        hint=f"its fields: {', '.join(known)}",
    )


def _refuse_foreign(act: Act[Any], form: Mapping[str, Any], params: Mapping[str, Param]) -> None:
    """Refuse filled-in fields of other acts: they show that the user expects something that would not happen."""
    others = [name for name in params if name not in (*_SHARED, *act.form_fields)]
    changed = [f"{name} ({form[name]})" for name in others if form[name] != params[name].value]
    if changed:
        raise InvalidRequest(
            f"{act.name} does not have these fields: {', '.join(changed)}. Nothing was done.",
            hint=f"empty them, or choose the act that has them; the fields of {act.name}: "
            f"{', '.join(act.form_fields) or 'none'}",
        )


def _invalid_field(field: str, title: str, expected: str, got: object) -> InvalidRequest:
    """Return the error for an invalid field of the form."""
    given = "nothing" if got is None else repr(got)
    return InvalidRequest(f"field {field} ({title}): expected {expected}, got {given}. Nothing was done.")
