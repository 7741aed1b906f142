"""The acts `savepoint_create` and `savepoint_dispose`.

Form values are not trusted: a savepoint made here lies below the job's own storage. To write one elsewhere, with the
worker's rights, takes the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, Doing, Done, subject
from milepost.airflow.operate.field_values import SAVEPOINT_NAME, checkpoint_from
from milepost.airflow.operators import forms
from milepost.airflow.operators.planned import ShownPlan
from milepost.epoch.quantities import counted
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.protocol.records.ids import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.jobspec.load.load import LoadedJob

NAME, AT = "name", "at"


def _new(job: LoadedJob) -> dict[str, Param]:
    return {
        NAME: forms.optional_text(
            "Name",
            "Of the savepoint: a-z, 0-9, _ and -, not digits alone. Empty: it is named after its checkpoint.",
        ),
        AT: forms.optional_id("Checkpoint", "It is made of this retained checkpoint. Empty: of the head."),
    }


def _listed(job: LoadedJob) -> dict[str, Param]:
    return {NAME: forms.optional_text("Name", "Of the savepoint that goes.")}


def _plan_new(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    about = subject(master, CREATE.name, form[AT])
    if not about.checkpoint_id:
        raise NotFound(
            f"job {about.job} has no completed checkpoint yet: there is nothing to save. Nothing was written."
        )
    checkpoint_id = about.checkpoint_id
    shown = master.show(checkpoint_id)
    if shown.status != "completed":
        raise NotFound(
            f"job {about.job}: checkpoint {checkpoint_id} is {shown.status}, and only a completed one that is retained "
            "can be saved. Nothing was written."
        )
    name = form[NAME] or f"checkpoint-{checkpoint_id}"
    if any(one.name == name for one in master.list_savepoints()):
        raise InvalidRequest(
            f"field {CREATE.field(NAME)} (Name): expected a name that is free, got {name}: job {about.job} has such a "
            "savepoint. Nothing was written."
        )
    what = f"{checkpoint_name(checkpoint_id)}, epoch {shown.epoch} of timeline {shown.timeline}"
    size = f"{shown.full_bytes:,} bytes" if isinstance(shown.full_bytes, int) else "unknown"
    text = (f"savepoint {name}: a copy of {what}, and of every table as of it", f"state to copy: {size}")
    return about.plan(f"savepoint {name} of {checkpoint_name(checkpoint_id)}", text, {NAME: name})


def _create(doing: Doing) -> Done:
    name, checkpoint_id = str(doing.plan.approved[NAME]), doing.plan.checkpoint_id
    if form_differs(doing, name):
        raise PlanOutdated(
            f"the form asks for savepoint {doing.form[NAME]} of checkpoint {doing.form[AT]}, the plan for {name} of "
            f"checkpoint {checkpoint_id}. Nothing was written."
        )
    there = [one for one in doing.master.list_savepoints() if one.name == name] if doing.retried else []
    if there and there[0].checkpoint_id == checkpoint_id:
        return Done("created", (f"an earlier try did it: savepoint {name} lies at {there[0].location}",))
    made = doing.master.create_savepoint(name, at=checkpoint_id)
    copied = f"{counted(made.objects, 'object')}, {counted(made.bytes, 'byte')} below {made.location}"
    return Done("created", (f"savepoint {name} of checkpoint {checkpoint_id}: {copied}",))


def form_differs(doing: Doing, name: str) -> bool:
    """Return whether a plan is about another savepoint than the form: somebody has edited it on its way."""
    asked, at, checkpoint_id = doing.form[NAME], doing.form[AT], doing.plan.checkpoint_id
    return name != (asked or f"checkpoint-{checkpoint_id}") or at not in (None, checkpoint_id)


def _plan_gone(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    found = master.find_savepoint(form[NAME])
    about = subject(master, DISPOSE.name, found.checkpoint_id)
    text = (
        f"savepoint {found.name}, a copy of checkpoint {found.checkpoint_id} of {found.created}, at {found.location}",
        "it goes from the list, and all that it copied is deleted; the job, its checkpoints and its tables stay",
    )
    approved = {"created": found.created, "location": found.location}
    return about.plan(f"dispose of savepoint {found.name}", text, approved)


def _dispose(doing: Doing) -> Done:
    name = doing.form[NAME]
    if doing.retried and all(one.name != name for one in doing.master.list_savepoints()):
        return Done("disposed", (f"an earlier try did it: savepoint {name} is gone",))
    found = doing.master.find_savepoint(name)
    now = {"created": found.created, "location": found.location}
    if now != dict(doing.plan.approved):
        raise PlanOutdated(f"savepoint {name} is another one by now: {now}. Nothing was changed.")
    gone = doing.master.dispose_savepoint(name)
    said = f"savepoint {name} is gone: {counted(gone.deleted_objects, 'object')} deleted"
    return Done("disposed", (said, *filter(None, (gone.left,))))


CREATE = Act(
    "savepoint_create",
    "Savepoint: make one",
    _new,
    _plan_new,
    _create,
    takes={NAME: SAVEPOINT_NAME, AT: checkpoint_from(1)},
    asks=False,
)
DISPOSE = Act(
    "savepoint_dispose",
    "Savepoint: dispose of one",
    _listed,
    _plan_gone,
    _dispose,
    takes={NAME: SAVEPOINT_NAME},
    required=(NAME,),
)
