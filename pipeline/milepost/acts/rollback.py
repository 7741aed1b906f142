"""The act `rollback`: return state, source positions, rows in flight and every table to one checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, PlanSubject, ShownPlan
from milepost.acts.earlier_try import find_earlier_switch
from milepost.acts.fields import ID_OR_MOMENT, TAKE_OVER, Field
from milepost.codec import to_json
from milepost.epoch import numbered
from milepost.errors import PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster, RollbackResult

TO = "to"


def _plan(master: JobMaster, form: Form) -> ActPlan:
    plan = master.rollbacks.plan(form[TO])
    target = plan.target.checkpoint_id
    return PlanSubject(ROLLBACK.name, plan.job, target, plan.timeline, plan.manifest_version).plan(
        f"roll back to {checkpoint_name(target)}",
        plan.text,
        to_json(plan.approved),
        rows={name: getattr(sink, "rows_then", None) for name, sink in plan.sinks.items()},
        document=plan,
    )


def _recheck(context: ActContext) -> ActResult | None:
    """Check that the form still selects the checkpoint of the plan."""
    from milepost.jobmaster import ApprovedRollback

    earlier = find_earlier_switch(context)
    if earlier is not None:
        return earlier
    requested = context.form[TO]
    current = context.master.rollbacks.target(requested)
    for target in (context.plan.checkpoint_id, context.plan.approval(ApprovedRollback).target):
        if current != target:
            raise PlanOutdated(
                f"{requested} now selects {checkpoint_name(current)}, but the plan is for {checkpoint_name(target)}. "
                "Nothing was changed."
            )
    return None


def _carry_out(context: ActContext) -> RollbackResult:
    """Roll back to the plan's checkpoint, if the head has not moved after the plan."""
    from milepost.jobmaster import ApprovedRollback

    approved = context.plan.approval(ApprovedRollback)
    return context.master.rollbacks.run(
        context.session, approved, take_over=context.form[TAKE_OVER.name], decision=context.decided_by
    )


def _result(context: ActContext, done: RollbackResult) -> ActResult:
    at, text = checkpoint_name(done.checkpoint_id), []
    if done.aborted_checkpoint is not None:
        text.append(f"checkpoint {done.aborted_checkpoint} is aborted; the session that ran it is fenced")
    moved = done.outcome != "nothing_to_roll_back"
    if moved:
        discarded = numbered("checkpoint", done.discarded) if done.discarded else "none"
        text.append(f"job {done.job} is back at {at}, on timeline {done.timeline}; discarded: {discarded}")
        text.append(f"sinks rolled back: {', '.join(done.sinks) or 'none'}")
    else:
        followed = f"; reconciled sinks: {', '.join(done.followed)}" if done.followed else ""
        text.append(f"nothing to roll back: job {done.job} is at {at}{followed}")
    return ActResult(done.outcome, tuple(text), done.checkpoint_id, done.timeline, follows=moved)


def _undo(plan: ShownPlan, result: ActResult) -> tuple[str, Form] | None:
    """Return the rollback to the head that the plan left, if it moved."""
    from milepost.jobmaster import ApprovedRollback

    return (ROLLBACK.name, {TO: str(plan.approval(ApprovedRollback).head)}) if result.follows else None


ROLLBACK = Act(
    "rollback",
    "Roll back to a checkpoint",
    "Return state, source positions, rows in flight and every table to a checkpoint. Nothing is deleted.",
    (
        Field(
            TO,
            ID_OR_MOMENT,
            "A retained checkpoint, 0 for the empty state, or a time, which means the newest checkpoint triggered at "
            "or before it.",
            "Back to",
            required=True,
        ),
        TAKE_OVER,
    ),
    _plan,
    _carry_out,
    _result,
    recheck=_recheck,
    takes_plan=True,
    undo=_undo,
)
