"""The acts of a job, their one form, and what a filled-in form asks for.

Airflow checks the type of each field, before a run exists. All else is checked here, by the first task and before
anything is done: what a field does not take, what is missing, what belongs to another act, what is no field at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, refuse
from milepost.airflow.operate.backfill import BACKFILL
from milepost.airflow.operate.lifecycle import ABORT, CANCEL, RESUME, START
from milepost.airflow.operate.rollback import ROLLBACK
from milepost.airflow.operate.savepoints import CREATE, DISPOSE
from milepost.airflow.operate.upkeep import FSCK, GC, REALIGN, VERIFY
from milepost.airflow.operators import forms
from milepost.errors import InvalidRequest
from milepost.jobspec.values.suggestions import nearest

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobspec.load.load import LoadedJob

ACTS: dict[str, Act] = {
    act.name: act
    for act in (ROLLBACK, BACKFILL, CREATE, DISPOSE, RESUME, CANCEL, START, ABORT, REALIGN, VERIFY, FSCK, GC)
}
"""By name, in the order of the form."""

_SHARED = (forms.WHAT, forms.DRY_RUN, forms.APPROVE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a form asks for: an act, and its own fields by their short names."""

    act: Act
    form: Mapping[str, Any]
    dry_run: bool
    approve: bool


def operate_form(job: LoadedJob) -> dict[str, Param]:
    """Return the form of all acts: which one, a section of fields for each, and how."""
    form = {forms.WHAT: forms.what({act.name: act.title for act in ACTS.values()})}
    for act in ACTS.values():
        for short, param in act.fields(job).items():
            form[act.field(short)] = forms.in_section(act.title, param)
    silent = [act.name for act in ACTS.values() if not act.asks]
    return form | {forms.DRY_RUN: forms.dry_run(), forms.APPROVE: forms.approve(silent)}


def asked(form: Mapping[str, Any], job: LoadedJob) -> Asked:
    """Return what a form asks for.

    Raises InvalidRequest: fields that are none, are missing, or are not this act's; a value that a field does not take.
    """
    act = ACTS.get(str(form.get(forms.WHAT)))
    if act is None:
        raise refuse(forms.WHAT, forms.WHAT_TITLE, f"one of {', '.join(ACTS)}", form.get(forms.WHAT))
    params = operate_form(job)
    _refuse_unknown(form, list(params))
    _refuse_foreign(act, form, params)
    own = {short: form[act.field(short)] for short in act.fields(job)}
    for short in act.required:
        if own[short] is None:
            param = params[act.field(short)]
            name = f"{act.field(short)} ({param.schema['title']})"
            raise InvalidRequest(f"field {name} is not filled in. Nothing was done. What it is: {param.description}")
    for short, takes in act.takes.items():
        if own[short] is not None and not takes.admits(own[short]):
            field = act.field(short)
            raise refuse(field, params[field].schema["title"], takes.words, own[short])
    act.check(own)
    return Asked(act, own, bool(form[forms.DRY_RUN]), act.asks and bool(form[forms.APPROVE]))


def _refuse_unknown(form: Mapping[str, Any], known: list[str]) -> None:
    """Refuse what is no field: Airflow takes any key of a run's configuration."""
    unknown = [name for name in form if name not in known]
    if not unknown:
        return
    near = [meant for name in unknown if (meant := nearest(name, known)) is not None]
    meant = f" Did you mean {', '.join(near)}?" if near else ""
    raise InvalidRequest(
        f"the form has no field {', '.join(unknown)}. Nothing was done.{meant}",
        hint=f"its fields: {', '.join(known)}",
    )


def _refuse_foreign(act: Act, form: Mapping[str, Any], params: Mapping[str, Param]) -> None:
    """Refuse fields of other acts that were filled in: whoever did so meant something by it."""
    own = f"{act.name}_"
    others = [name for name in params if name not in _SHARED and not name.startswith(own)]
    changed = [f"{name} ({form[name]})" for name in others if form[name] != params[name].value]
    if changed:
        raise InvalidRequest(
            f"fields that are not of {act.name} were filled in: {', '.join(changed)}. Nothing was done.",
            hint=f"empty them, or choose the act that they belong to; {act.name} takes "
            f"{', '.join(name for name in params if name.startswith(own)) or 'none'}",
        )
