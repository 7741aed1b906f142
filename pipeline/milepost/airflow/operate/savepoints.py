"""The acts `savepoint_create` and `savepoint_dispose`.

Form values are not trusted, so a savepoint created here is stored below the job's own storage. Only the command line
can write one elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, ActContext, ActResult, subject
from milepost.airflow.operate.field_values import SAVEPOINT_NAME, checkpoint_from
from milepost.airflow.operators import forms
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.epoch import counted
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import LoadedJob

NAME, AT = "name", "at"


def _create_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        NAME: forms.optional_text(
            "Name",
            "Name of the savepoint: a-z, 0-9, _ and -, not only digits. Empty: named after its checkpoint.",
        ),
        AT: forms.optional_id("Checkpoint", "The retained checkpoint to copy. Empty: the head."),
    }


def _dispose_fields(job: LoadedJob) -> dict[str, Param]:
    return {NAME: forms.optional_text("Name", "Name of the savepoint to dispose of.")}


def _plan_create(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    about = subject(master, CREATE.name, form[AT])
    if not about.checkpoint_id:
        raise NotFound(
            f"job {about.job} has no completed checkpoint yet: there is nothing to save. Nothing was written."
        )
    checkpoint_id = about.checkpoint_id
    report = master.reports.show(checkpoint_id)
    if report.status != "completed":
        raise NotFound(
            f"job {about.job}: checkpoint {checkpoint_id} is {report.status}; only a retained completed checkpoint can "
            "be saved. Nothing was written."
        )
    name = form[NAME] or f"checkpoint-{checkpoint_id}"
    if any(savepoint.name == name for savepoint in master.list_savepoints()):
        raise InvalidRequest(
            f"field {CREATE.field(NAME)} (Name): expected an unused name, got {name}: job {about.job} has a savepoint "
            "of this name. Nothing was written."
        )
    what = f"{checkpoint_name(checkpoint_id)}, epoch {report.epoch} of timeline {report.timeline}"
    size = f"{report.full_bytes:,} bytes" if isinstance(report.full_bytes, int) else "unknown"
    text = (f"savepoint {name}: a copy of {what}, and of every table as of it", f"state to copy: {size}")
    return about.plan(f"savepoint {name} of {checkpoint_name(checkpoint_id)}", text, {NAME: name})


def _create(context: ActContext) -> ActResult:
    name, checkpoint_id = str(context.plan.approved[NAME]), context.plan.checkpoint_id
    if form_differs(context, name):
        raise PlanOutdated(
            f"the form is for savepoint {context.form[NAME]} of checkpoint {context.form[AT]}, but the plan for {name} "
            f"of checkpoint {checkpoint_id}. Nothing was written."
        )
    savepoints = context.master.list_savepoints() if context.retried else []
    existing = next((savepoint for savepoint in savepoints if savepoint.name == name), None)
    if existing is not None and existing.checkpoint_id == checkpoint_id:
        return ActResult("created", (f"an earlier try did it: savepoint {name} is at {existing.location}",))
    created = context.master.savepoints.create(name, at=checkpoint_id)
    copied = f"{counted(created.objects, 'object')}, {counted(created.bytes, 'byte')} below {created.location}"
    return ActResult("created", (f"savepoint {name} of checkpoint {checkpoint_id}: {copied}",))


def form_differs(context: ActContext, name: str) -> bool:
    """Return whether the plan is about another savepoint than the form: somebody edited the plan in XCom."""
    form_name, at, checkpoint_id = context.form[NAME], context.form[AT], context.plan.checkpoint_id
    return name != (form_name or f"checkpoint-{checkpoint_id}") or at not in (None, checkpoint_id)


def _plan_dispose(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    savepoint = master.find_savepoint(form[NAME])
    about = subject(master, DISPOSE.name, savepoint.checkpoint_id)
    copy = f"a copy of checkpoint {savepoint.checkpoint_id} of {savepoint.created}"
    text = (
        f"savepoint {savepoint.name}, {copy}, at {savepoint.location}",
        "removes it from the list and deletes everything it copied; the job, its checkpoints and its tables stay",
    )
    approved = {"created": savepoint.created, "location": savepoint.location}
    return about.plan(f"dispose of savepoint {savepoint.name}", text, approved)


def _dispose(context: ActContext) -> ActResult:
    name = context.form[NAME]
    if context.retried and all(savepoint.name != name for savepoint in context.master.list_savepoints()):
        return ActResult("disposed", (f"an earlier try did it: savepoint {name} is deleted",))
    savepoint = context.master.find_savepoint(name)
    now = {"created": savepoint.created, "location": savepoint.location}
    if now != dict(context.plan.approved):
        raise PlanOutdated(f"savepoint {name} was replaced after the plan: {now}. Nothing was changed.")
    disposal = context.master.savepoints.dispose(name)
    said = f"savepoint {name} is deleted: {counted(disposal.deleted_objects, 'object')}"
    return ActResult("disposed", (said, *filter(None, (disposal.left,))))


CREATE = Act(
    "savepoint_create",
    "Savepoint: make one",
    _create_fields,
    _plan_create,
    _create,
    rules={NAME: SAVEPOINT_NAME, AT: checkpoint_from(1)},
    needs_approval=False,
)
DISPOSE = Act(
    "savepoint_dispose",
    "Savepoint: dispose of one",
    _dispose_fields,
    _plan_dispose,
    _dispose,
    rules={NAME: SAVEPOINT_NAME},
    required=(NAME,),
)
