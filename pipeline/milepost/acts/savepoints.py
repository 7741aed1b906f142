"""The acts `savepoint_create` and `savepoint_dispose`.

Form values are not trusted, so a savepoint that the form creates is stored below the job's own storage. Only the
command can write one elsewhere.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, ShownPlan, subject
from milepost.acts.fields import NEW_SAVEPOINT, SAVEPOINT, URL, Field, checkpoint_from, switch
from milepost.epoch import counted
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointCopy, DisposedSavepoint, JobMaster

NAME, AT, TARGET, WITH_INPUT = "name", "at", "target", "with_input"


def _plan_create(master: JobMaster, form: Form) -> ActPlan:
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
            f"field {CREATE.form_name(NAME)} (Name): expected an unused name, got {name}: job {about.job} has a "
            "savepoint of this name. Nothing was written."
        )
    what = f"{checkpoint_name(checkpoint_id)}, epoch {report.epoch} of timeline {report.timeline}"
    size = f"{report.full_bytes:,} bytes" if isinstance(report.full_bytes, int) else "unknown"
    also = ", and with the input landed after it" if form[WITH_INPUT] else ""
    text = (f"savepoint {name}: a copy of {what}, with every table at this checkpoint{also}", f"state to copy: {size}")
    return about.plan(f"savepoint {name} of {checkpoint_name(checkpoint_id)}", text, {NAME: name})


def _recheck_create(context: ActContext) -> ActResult | None:
    """Check that the plan is for the savepoint that the form names."""
    form, name, checkpoint_id = context.form, str(context.plan.approved[NAME]), context.plan.checkpoint_id
    if name != (form[NAME] or f"checkpoint-{checkpoint_id}") or form[AT] not in (None, checkpoint_id):
        raise PlanOutdated(
            f"the form is for savepoint {form[NAME]} of checkpoint {form[AT]}, but the plan is for {name} of "
            f"checkpoint {checkpoint_id}. Nothing was written."
        )
    for savepoint in context.master.list_savepoints() if context.retried else ():
        if (savepoint.name, savepoint.checkpoint_id) == (name, checkpoint_id):
            text = f"already done by an earlier try: savepoint {name} is at {savepoint.location}"
            return ActResult("created", (text,))
    return None


def _create(context: ActContext) -> CheckpointCopy:
    """Copy the checkpoint of the plan; without one, that of the form."""
    plan, form = context.approved, context.form
    name, at = (form[NAME], form[AT]) if plan is None else (str(plan.approved[NAME]), plan.checkpoint_id)
    return context.master.savepoints.create(
        name,
        at=at,
        target=form[TARGET],
        with_input=form[WITH_INPUT],
        copied=context.copied,
        session=context.session,
    )


def _created(context: ActContext, done: CheckpointCopy) -> ActResult:
    return ActResult("created", (*copy_text(f"savepoint {done.name} of", done), _how_to_start(done.location)))


def _undo_create(plan: ShownPlan, result: ActResult) -> tuple[str, Form]:
    return DISPOSE.name, {NAME: plan.approved[NAME]}


def copy_text(what: str, done: CheckpointCopy) -> tuple[str, ...]:
    """Describe a copy of a checkpoint: its size, its location, and the tables that it lacks."""
    return (
        f"{what} checkpoint {done.checkpoint_id}: {counted(done.objects, 'object')}, {counted(done.bytes, 'byte')}",
        f"at {done.location}",
        *(f"note: sink {name} is no longer in the spec: its table was not copied" for name in done.left_out),
    )


def _how_to_start(location: str) -> str:
    return f"`milepost start JOB --from {shlex.quote(location)}` starts a compatible job from it."


def _plan_dispose(master: JobMaster, form: Form) -> ActPlan:
    savepoint = master.find_savepoint(form[NAME])
    about = subject(master, DISPOSE.name, savepoint.checkpoint_id)
    copy = f"a copy of checkpoint {savepoint.checkpoint_id} of {savepoint.created}"
    text = (
        f"savepoint {savepoint.name}, {copy}, at {savepoint.location}",
        "removes it from the list and deletes its objects; the job, its checkpoints and its tables stay",
    )
    approved = {"created": savepoint.created, "location": savepoint.location}
    return about.plan(f"dispose of savepoint {savepoint.name}", text, approved)


def _recheck_dispose(context: ActContext) -> ActResult | None:
    name = context.form[NAME]
    if context.retried and all(savepoint.name != name for savepoint in context.master.list_savepoints()):
        return ActResult("disposed", (f"already done by an earlier try: savepoint {name} is deleted",))
    savepoint = context.master.find_savepoint(name)
    now = {"created": savepoint.created, "location": savepoint.location}
    if now != dict(context.plan.approved):
        raise PlanOutdated(f"savepoint {name} was replaced after the plan: {now}. Nothing was changed.")
    return None


def _disposed(context: ActContext, done: DisposedSavepoint) -> ActResult:
    text = f"savepoint {done.name} is removed; deleted: {counted(done.deleted_objects, 'object')}"
    return ActResult("disposed", (text, *([f"at {done.location}: {done.left}"] if done.left else ())))


CREATE = Act(
    "savepoint_create",
    "Create a savepoint",
    "Create a self-contained copy of a completed checkpoint: state, positions, rows in flight and tables.",
    (
        Field(
            NAME,
            NEW_SAVEPOINT,
            "Name of the savepoint: a-z, 0-9, _ and -, not only digits. Default: checkpoint-<id>.",
            "Name",
        ),
        Field(
            AT, checkpoint_from(1, or_moment=True), "The retained checkpoint to copy. Default: the head.", "Checkpoint"
        ),
        Field(TARGET, URL, "Write it to <URL>/<name>. Default: below the job's storage."),
        switch(
            WITH_INPUT,
            "Also copy the input landed after the checkpoint, for jobs elsewhere that cannot read the external system.",
            "With landed input",
        ),
    ),
    _plan_create,
    _create,
    _created,
    recheck=_recheck_create,
    needs_approval=False,
    undo=_undo_create,
)
DISPOSE = Act(
    "savepoint_dispose",
    "Dispose of a savepoint",
    "Remove a savepoint from the list and delete its objects. The job, its checkpoints and tables stay.",
    (Field(NAME, SAVEPOINT, "Name of the savepoint to dispose of.", "Name", required=True),),
    _plan_dispose,
    lambda context: context.master.savepoints.dispose(context.form[NAME], context.session),
    _disposed,
    recheck=_recheck_dispose,
)
