"""The act `backfill`: process recorded input again on a fork, then make the fork live.

The schedule continues during the replay, and the backfill also replays the epochs that complete during it. Between plan
and replay, the fork point, the live timeline, the code and the spec must not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, PlanSubject, ShownPlan
from milepost.acts.earlier_try import find_earlier_switch
from milepost.acts.fields import MOMENT, Field, checkpoint_from, number, switch
from milepost.acts.rollback import ROLLBACK, TO
from milepost.codec import to_json
from milepost.protocol.records import checkpoint_name
from milepost.views import show_rows

if TYPE_CHECKING:
    from milepost.jobmaster import BackfillResult, JobMaster

FROM, UNTIL, FROM_CHECKPOINT = "from", "to", "from_checkpoint"
RANGES, ALLOW = "ranges_per_epoch", "allow_non_restored_state"


def _span(form: Form) -> dict[str, Any]:
    return {"from_" if name == FROM else name: form[name] for name in (FROM, UNTIL, FROM_CHECKPOINT, RANGES, ALLOW)}


def _plan(master: JobMaster, form: Form) -> ActPlan:
    history = master.reports.history(limit=1)  # empty for a job that has never run, which has no plan either
    plan = master.backfills.plan(**_span(form))
    return PlanSubject(BACKFILL.name, plan.job, plan.fork_point, plan.timeline, history[0]["version"]).plan(
        f"backfill, forked at {checkpoint_name(plan.fork_point)}",
        plan.text,
        to_json(plan.approved),
        rows=dict.fromkeys(plan.sinks),
        document=plan,
    )


def _recheck(context: ActContext) -> ActResult | None:
    """Check that the form still selects the epochs of the plan."""
    from milepost.jobmaster import ApprovedBackfill

    earlier = find_earlier_switch(context)
    if earlier is None:
        now = context.master.backfills.target(**_span(context.form))
        context.plan.approval(ApprovedBackfill).require_same(now)
    return earlier


def _carry_out(context: ActContext) -> BackfillResult:
    """Replay the planned epochs and those completed after the plan, then make the fork live.

    A retried task, or another run with the same form, continues the existing fork.
    """
    from milepost.jobmaster import ApprovedBackfill
    from milepost.spark.driver import spark_runner

    approved = context.plan.approval(ApprovedBackfill)
    return context.master.backfills.run(
        context.session, spark_runner(), approved, progress=context.progress, decision=context.decided_by
    )


def _epochs(done: BackfillResult) -> Iterator[str]:
    for epoch in done.epochs:
        rows = show_rows(epoch)
        yield f"checkpoint {epoch.checkpoint_id}: epoch {epoch.epoch}, {rows}, quality {epoch.quality}"


def _result(context: ActContext, done: BackfillResult) -> ActResult:
    at = f"checkpoint {done.checkpoint_id} of timeline {done.timeline}"
    text = (
        f"job {done.job} continues {at}; timeline {done.from_timeline} stays until retention removes it",
        f"sinks that show it: {', '.join(done.sinks) or 'none'}",
    )
    head = done.previous_head
    return ActResult(done.outcome, text, done.checkpoint_id, done.timeline, follows=True, previous_head=head)


def _undo(plan: ShownPlan, result: ActResult) -> tuple[str, Form] | None:
    """Return the rollback to the head of the replaced timeline."""
    return None if result.previous_head is None else (ROLLBACK.name, {TO: str(result.previous_head)})


BACKFILL = Act(
    "backfill",
    "Backfill: process recorded input again",
    "Process recorded input again with the current code and spec. The tables change at the end, all at once.\n\n"
    "The schedule continues meanwhile. To continue an interrupted backfill, run the same command again.",
    (
        Field(FROM, MOMENT, "Process rows again from this event time on. Give either this or a checkpoint.", "From"),
        Field(
            UNTIL,
            MOMENT,
            "Quality-check and count rows before this event time. Later rows are replayed unchecked.",
            "To",
        ),
        Field(
            FROM_CHECKPOINT,
            checkpoint_from(0),
            "Replay the input that was read after this checkpoint; 0: all input.",
            "From checkpoint",
        ),
        Field(
            RANGES,
            number("N", 1, "a number"),
            "Replay N recorded epochs in one. Faster, and fewer rows are late.",
            default=1,
        ),
        switch(ALLOW, "Discard state at the fork point that no operator of the spec restores. `--dry-run` lists it."),
    ),
    _plan,
    _carry_out,
    _result,
    details=_epochs,
    recheck=_recheck,
    takes_plan=True,
    undo=_undo,
    exactly_one=(FROM, FROM_CHECKPOINT),
)
