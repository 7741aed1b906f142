"""The act `backfill`: process recorded input again on a fork, then make the fork live.

The schedule continues during the replay, and the backfill also replays the epochs that complete meanwhile. Between plan
and replay, the fork point, the live timeline, the code and the spec must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, ActContext, ActResult, invalid_field
from milepost.airflow.operate.earlier_try import find_earlier_switch
from milepost.airflow.operate.field_values import MOMENT, MOMENT_EXAMPLES, checkpoint_from
from milepost.airflow.operators import forms
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.codec import to_json
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import LoadedJob

FROM, UNTIL, FROM_CHECKPOINT = "from", "to", "from_checkpoint"


def _fields(job: LoadedJob) -> dict[str, Param]:
    return {
        FROM: forms.optional_text(
            "From",
            f"Process rows again from this event time on: {MOMENT_EXAMPLES}. Fill in either this or a checkpoint.",
        ),
        UNTIL: forms.optional_text(
            "To",
            "The quality gate checks, and the plan counts, rows before this event time. The replay always runs to the "
            "head.",
        ),
        FROM_CHECKPOINT: forms.optional_id(
            "From checkpoint",
            "Replay the input that was read after this checkpoint; 0: all input. Fill in either this or a time.",
        ),
    }


def _check(form: Mapping[str, Any]) -> None:
    if (form[FROM] is None) == (form[FROM_CHECKPOINT] is None):
        names = " and ".join(map(BACKFILL.field, (FROM, FROM_CHECKPOINT)))
        got = "neither" if form[FROM] is None else f"{form[FROM]} and {form[FROM_CHECKPOINT]}"
        raise invalid_field(names, "From, From checkpoint", "exactly one of the two", got)


def _plan(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    version = master.reports.history(limit=1)[0]["version"]
    plan = master.backfills.plan(form[FROM], form[UNTIL], form[FROM_CHECKPOINT])
    return ShownPlan(
        what=BACKFILL.name,
        checkpoint_id=plan.fork_point,
        timeline=plan.timeline,
        token=f"none (planned at manifest version {version})",
        subject=f"{plan.job}: backfill, forked at {checkpoint_name(plan.fork_point)}",
        text=plan.text,
        manifest_version=version,
        approved=to_json(plan.approved),
        rows=dict.fromkeys(plan.sinks),
        idle=False,
    )


def _carry_out(context: ActContext) -> ActResult:
    """Replay the planned epochs and those completed since, then make the fork the live timeline.

    A retried task, or another run with the same form, continues the existing fork.
    """
    from milepost.jobmaster import ApprovedBackfill
    from milepost.spark.driver import spark_runner

    earlier = find_earlier_switch(context)
    if earlier is not None:
        return earlier
    span = (context.form[FROM], context.form[UNTIL], context.form[FROM_CHECKPOINT])
    approved = context.plan.approval(ApprovedBackfill)
    result = context.master.backfills.run(
        context.session, spark_runner(), *span, approved=approved, progress=context.say
    )
    said = f"checkpoint {result.checkpoint_id} is the head of timeline {result.timeline}"
    return ActResult(result.outcome, (said,), result.checkpoint_id, result.timeline, follows=True)


BACKFILL = Act(
    "backfill",
    "Backfill: process recorded input again",
    _fields,
    _plan,
    _carry_out,
    rules={FROM: MOMENT, UNTIL: MOMENT, FROM_CHECKPOINT: checkpoint_from(0)},
    check=_check,
)
