"""The acts `quarantine` and `release`: leave an object of a file source out of all epochs, and read it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, PlanSubject, ShownPlan, subject
from milepost.acts.fields import FILE_SOURCE, OBJECT, Field
from milepost.codec import to_json
from milepost.errors import PlanOutdated

if TYPE_CHECKING:
    from milepost.jobmaster import ApprovedQuarantine, JobMaster, QuarantinePlan, QuarantineResult

SOURCE, KEY = "source", "object"


def _plan(master: JobMaster, form: Form) -> ActPlan:
    about = subject(master, QUARANTINE.name)
    return _shown(about, master.quarantine.plan(form[SOURCE], form[KEY]))


def _plan_release(master: JobMaster, form: Form) -> ActPlan:
    about = subject(master, RELEASE.name)
    return _shown(about, master.quarantine.plan_release(form[SOURCE], form[KEY]))


def _shown(about: PlanSubject, plan: QuarantinePlan) -> ActPlan:
    title = f"{about.what} object {plan.approved.key} of source {plan.approved.source}"
    return about.plan(title, plan.text, to_json(plan.approved), idle=plan.done, document=plan)


def _approved(context: ActContext) -> ApprovedQuarantine:
    from milepost.jobmaster import ApprovedQuarantine

    return context.plan.approval(ApprovedQuarantine)


def _recheck(context: ActContext) -> None:
    """Check that the plan is for the object of the form. A repeated try finds it quarantined, or released."""
    approved = _approved(context)
    if (approved.source, approved.key) != (context.form[SOURCE], context.form[KEY]):
        raise PlanOutdated(
            f"the form is for object {context.form[KEY]} of source {context.form[SOURCE]}, but the plan for "
            f"{approved.key} of {approved.source}. Nothing was changed."
        )


def _quarantine(context: ActContext) -> QuarantineResult:
    return context.master.quarantine.quarantine(context.session, _approved(context), context.decided_by)


def _release(context: ActContext) -> QuarantineResult:
    return context.master.quarantine.release(context.session, _approved(context), context.decided_by)


def _quarantined(context: ActContext, done: QuarantineResult) -> ActResult:
    said = f"object {done.key} of source {done.source} is quarantined: no later epoch reads it"
    kept = () if done.read_by is None else (f"checkpoint {done.read_by} has read it: tables keep its rows for now",)
    return ActResult(done.outcome, (said, *kept))


def _released(context: ActContext, done: QuarantineResult) -> ActResult:
    effect = "the next epoch reads it" if done.read_by is None else f"checkpoint {done.read_by} has read it"
    return ActResult(done.outcome, (f"object {done.key} of source {done.source} is not quarantined: {effect}",))


def _undo_quarantine(plan: ShownPlan, result: ActResult) -> tuple[str, Form] | None:
    return (RELEASE.name, _object_of(plan)) if result.outcome == "quarantined" else None


def _undo_release(plan: ShownPlan, result: ActResult) -> tuple[str, Form] | None:
    return (QUARANTINE.name, _object_of(plan)) if result.outcome == "released" else None


def _object_of(plan: ShownPlan) -> Form:
    from milepost.jobmaster import ApprovedQuarantine

    approved = plan.approval(ApprovedQuarantine)
    return {SOURCE: approved.source, KEY: approved.key}


_FIELDS = (
    Field(SOURCE, FILE_SOURCE, "A source of files, not a static one.", "Source", required=True, is_argument=True),
    Field(
        KEY,
        OBJECT,
        "Name of the object, relative to the folder of the source, as errors, `show` and `_object` have it.",
        "Object",
        required=True,
        is_argument=True,
    ),
)

QUARANTINE = Act(
    "quarantine",
    "Quarantine an object",
    "Leave an object of a file source out of all epochs and backfills until it is released.\n\n"
    "Tables keep the rows of an object that was read before, until a rollback or a backfill. A corrected object under "
    "the same name is read.",
    _FIELDS,
    _plan,
    _quarantine,
    _quarantined,
    recheck=_recheck,
    takes_plan=True,
    needs_approval=False,
    undo=_undo_quarantine,
)
RELEASE = Act(
    "release",
    "Release a quarantined object",
    "Let epochs read a quarantined object again.",
    _FIELDS,
    _plan_release,
    _release,
    _released,
    recheck=_recheck,
    takes_plan=True,
    needs_approval=False,
    undo=_undo_release,
)
