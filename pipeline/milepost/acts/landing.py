"""The act `land`: approve a gap in the log of a landed source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, subject
from milepost.acts.fields import RESUME_FROM, SOURCE, Field
from milepost.codec import to_json
from milepost.errors import PlanOutdated

if TYPE_CHECKING:
    from milepost.jobmaster import AppendedGap, JobMaster

NAME, FROM = "source", "resume_from"


def _plan(master: JobMaster, form: Form) -> ActPlan:
    about, plan = subject(master, LAND.name), master.gaps.plan(form[NAME], form[FROM])
    title = f"approve a gap after record {plan.approved.sequence} of source {form[NAME]}"
    return about.plan(title, plan.text, to_json(plan.approved), document=plan)


def _recheck(context: ActContext) -> ActResult | None:
    """Check that the plan is for the source of the form, and whether an earlier try appended the gap."""
    from milepost.jobmaster import ApprovedGap

    approved = context.plan.approval(ApprovedGap)
    if approved.source != context.form[NAME]:
        raise PlanOutdated(
            f"the form is for source {context.form[NAME]}, but the plan for {approved.source}. Nothing was changed."
        )
    done = context.master.gaps.find(approved) if context.retried else None
    return None if done is None else _result(context, done)


def _carry_out(context: ActContext) -> AppendedGap:
    from milepost.jobmaster import ApprovedGap

    return context.master.gaps.approve(context.plan.approval(ApprovedGap), context.decided_by)


def _result(context: ActContext, done: AppendedGap) -> ActResult:
    said = f"source {done.source}: record {done.sequence} of its log is a gap; the next landing goes on after it"
    return ActResult(done.outcome, (said,))


LAND = Act(
    "land",
    "Land past lost data",
    "Let the log of a source go on after data that the external system deleted before it was landed. The log gets a "
    "gap record, and the next landing goes on from there.",
    (
        Field(NAME, SOURCE, "A landed source that stopped with PositionExpired.", "Source", required=True),
        Field(
            FROM,
            RESUME_FROM,
            "Where the log goes on: at the earliest data that the external system has, at the end of its data, or at a "
            "time. Kafka partitions that lost nothing stay where they are.",
            "Resume from",
            required=True,
        ),
    ),
    _plan,
    _carry_out,
    _result,
    recheck=_recheck,
    takes_plan=True,
)
