"""The act `land`: approve a gap, or that landed records are void, in the log of a landed source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, subject
from milepost.acts.fields import RESUME_FROM, SOURCE, VOID_FROM, Field, switch
from milepost.codec import to_json
from milepost.errors import PlanOutdated

if TYPE_CHECKING:
    from milepost.jobmaster import AppendedGap, AppendedVoid, ApprovedGap, ApprovedVoid, JobMaster

NAME, FROM, VOID, ACCEPT = "source", "resume_from", "void_from", "accept_void"


def _plan(master: JobMaster, form: Form) -> ActPlan:
    about = subject(master, LAND.name)
    if form[FROM] is not None:
        gap = master.gaps.plan(form[NAME], form[FROM])
        title = f"approve a gap after record {gap.approved.sequence} of source {form[NAME]}"
        return about.plan(title, gap.text, to_json(gap.approved), document=gap)
    if form[VOID] is not None:
        void = master.voids.plan(form[NAME], form[VOID])
        title = f"approve that the records of source {form[NAME]} from {void.approved.void_from} on are void"
    else:
        void = master.voids.plan_acceptance(form[NAME])
        title = f"accept the false rows from record {void.approved.void_from} of source {form[NAME]} on"
    return about.plan(title, void.text, to_json(void.approved), document=void)


def _recheck(context: ActContext) -> ActResult | None:
    """Check that the plan is for the source of the form, and whether an earlier try appended its record."""
    from milepost.jobmaster import ApprovedGap

    approved = _approved(context)
    if approved.source != context.form[NAME]:
        raise PlanOutdated(
            f"the form is for source {context.form[NAME]}, but the plan for {approved.source}. Nothing was changed."
        )
    if not context.retried:
        return None
    done = (
        context.master.gaps.find(approved) if isinstance(approved, ApprovedGap) else context.master.voids.find(approved)
    )
    return None if done is None else _result(context, done)


def _approved(context: ActContext) -> ApprovedGap | ApprovedVoid:
    """Return what the plan of the form's kind approves. Raises PlanOutdated: the plan is of another kind."""
    from milepost.jobmaster import ApprovedGap, ApprovedVoid

    if context.form[FROM] is not None:
        return context.plan.approval(ApprovedGap)
    return context.plan.approval(ApprovedVoid)


def _carry_out(context: ActContext) -> AppendedGap | AppendedVoid:
    from milepost.jobmaster import ApprovedGap

    approved = _approved(context)
    if isinstance(approved, ApprovedGap):
        return context.master.gaps.approve(approved, context.decided_by.text)
    return context.master.voids.approve(approved, context.decided_by.text)


def _result(context: ActContext, done: AppendedGap | AppendedVoid) -> ActResult:
    from milepost.jobmaster import AppendedGap

    record = f"source {done.source}: record {done.sequence} of its log"
    if isinstance(done, AppendedGap):
        return ActResult(done.outcome, (f"{record} is a gap; the next landing continues after it",))
    if done.accepts:
        text = f"{record} accepts the false rows from record {done.void_from} on; the next epoch continues"
    else:
        text = f"{record} makes the records from {done.void_from} on void; the next landing continues from before them"
    return ActResult(done.outcome, (text,))


LAND = Act(
    "land",
    "Land past lost data, or void false data",
    "Let the log of a source continue after data that the external system deleted before it was landed (a gap), or "
    "after it went back (void records). The log gets a record of that, and the next landing continues from there. "
    "Fill in exactly one of Resume from, Void from and Accept false rows.",
    (
        Field(
            NAME,
            SOURCE,
            "A landed source that stopped with PositionExpired or SourceWentBack.",
            "Source",
            required=True,
        ),
        Field(
            FROM,
            RESUME_FROM,
            "After PositionExpired: approve a gap. The log continues at the earliest data of the external system, at "
            "the end of its data, or at a time. Kafka partitions that lost nothing stay where they are.",
            "Resume from",
        ),
        Field(
            VOID,
            VOID_FROM,
            "After SourceWentBack: approve that the landed records from there on are void. `auto` is the first false "
            "one that the source finds. A gap that was approved by mistake is voided by its number.",
            "Void from",
        ),
        switch(
            ACCEPT,
            "After InputVoided: continue from the live head, and keep what its false rows changed.",
            "Accept false rows",
        ),
    ),
    _plan,
    _carry_out,
    _result,
    recheck=_recheck,
    takes_plan=True,
    exactly_one=(FROM, VOID, ACCEPT),
)
