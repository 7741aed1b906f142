"""The registry of acts, their common form, and the parser of a filled-in form.

Airflow checks the type of each field before a run exists. The first task checks the rest here, before anything is done:
values that a field does not accept, missing fields, fields of another act, and unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, invalid_field
from milepost.airflow.operate.backfill import BACKFILL
from milepost.airflow.operate.lifecycle import ABORT, CANCEL, RESUME, START
from milepost.airflow.operate.rollback import ROLLBACK
from milepost.airflow.operate.savepoints import CREATE, DISPOSE
from milepost.airflow.operate.upkeep import FSCK, GC, REALIGN, VERIFY
from milepost.airflow.operators import forms
from milepost.errors import InvalidRequest
from milepost.language import nearest

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobspec.load import LoadedJob

ACTS: dict[str, Act] = {
    act.name: act
    for act in (ROLLBACK, BACKFILL, CREATE, DISPOSE, RESUME, CANCEL, START, ABORT, REALIGN, VERIFY, FSCK, GC)
}
"""The acts by name, in the order of the form."""

_SHARED = (forms.WHAT, forms.DRY_RUN, forms.APPROVE)


@dataclass(frozen=True, slots=True)
class ActRequest:
    """A parsed form. form: values of the act's fields, by their short names."""

    act: Act
    form: Mapping[str, Any]
    dry_run: bool
    approve: bool


def operate_form(job: LoadedJob) -> dict[str, Param]:
    """Return the form: the choice of an act, a section of fields for each act, and the options of the run."""
    form = {forms.WHAT: forms.what({act.name: act.title for act in ACTS.values()})}
    for act in ACTS.values():
        for short, param in act.fields(job).items():
            form[act.field(short)] = forms.in_section(act.title, param)
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
        raise invalid_field(forms.WHAT, forms.WHAT_TITLE, f"one of {', '.join(ACTS)}", form.get(forms.WHAT))
    params = operate_form(job)
    _refuse_unknown(form, list(params))
    _refuse_foreign(act, form, params)
    own = {short: form[act.field(short)] for short in act.fields(job)}
    for short in act.required:
        if own[short] is None:
            param = params[act.field(short)]
            name = f"{act.field(short)} ({param.schema['title']})"
            raise InvalidRequest(f"field {name} is empty. Nothing was done. Its meaning: {param.description}")
    for short, rule in act.rules.items():
        if own[short] is not None and not rule.accepts(own[short]):
            field = act.field(short)
            raise invalid_field(field, params[field].schema["title"], rule.expected, own[short])
    act.check(own)
    return ActRequest(act, own, bool(form[forms.DRY_RUN]), act.needs_approval and bool(form[forms.APPROVE]))


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


def _refuse_foreign(act: Act, form: Mapping[str, Any], params: Mapping[str, Param]) -> None:
    """Refuse filled-in fields of other acts: they show that the user expects something that would not happen."""
    own = f"{act.name}_"
    others = [name for name in params if name not in _SHARED and not name.startswith(own)]
    changed = [f"{name} ({form[name]})" for name in others if form[name] != params[name].value]
    if changed:
        raise InvalidRequest(
            f"{act.name} does not have these fields: {', '.join(changed)}. Nothing was done.",
            hint=f"empty them, or choose the act that has them; the fields of {act.name}: "
            f"{', '.join(name for name in params if name.startswith(own)) or 'none'}",
        )
