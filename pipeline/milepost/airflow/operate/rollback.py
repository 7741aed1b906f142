"""The act `rollback`: return state, source positions, rows in flight and every table to one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, ActContext, ActResult
from milepost.airflow.operate.earlier_try import find_earlier_switch
from milepost.airflow.operate.field_values import ID_OR_MOMENT, MOMENT_EXAMPLES
from milepost.airflow.operators import forms
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.codec import to_json
from milepost.errors import PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import LoadedJob

TO, TAKE_OVER = "to", "take_over"

NOTHING = "nothing_to_roll_back"


def _fields(job: LoadedJob) -> dict[str, Param]:
    return {
        TO: forms.optional_text(
            "Back to",
            "A checkpoint id (0: the empty state), or a time, which means the newest checkpoint triggered at or before "
            f"it. Examples: 41, {MOMENT_EXAMPLES}.",
        ),
        TAKE_OVER: forms.take_over(),
    }


def _plan(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    plan = master.rollbacks.plan(form[TO])
    target = plan.target.checkpoint_id
    return ShownPlan(
        what=ROLLBACK.name,
        checkpoint_id=target,
        timeline=plan.timeline,
        token=f"none (planned at manifest version {plan.manifest_version})",
        subject=f"{plan.job}: roll back to {checkpoint_name(target)}",
        text=plan.text,
        manifest_version=plan.manifest_version,
        approved=to_json(plan.approved),
        rows={name: getattr(sink, "rows_then", None) for name, sink in plan.sinks.items()},
        idle=False,
    )


def _carry_out(context: ActContext) -> ActResult:
    """Go back to the checkpoint of the plan, if the head is still the plan's."""
    from milepost.jobmaster import ApprovedRollback

    earlier = find_earlier_switch(context)
    if earlier is not None:
        return earlier
    approved, requested = context.plan.approval(ApprovedRollback), context.form[TO]
    current = context.master.rollbacks.target(requested)
    for target in (context.plan.checkpoint_id, approved.target):
        if current != target:
            raise PlanOutdated(
                f"back to {requested} means {checkpoint_name(current)} now, but {checkpoint_name(target)} in the plan. "
                "Nothing was changed."
            )
    result = context.master.rollbacks.run(
        context.session, approved, take_over=bool(context.form[TAKE_OVER]), detail=context.decided_by
    )
    discarded = ", ".join(map(str, result.discarded)) or "none"
    said = f"{checkpoint_name(result.checkpoint_id)} is the head of timeline {result.timeline}; discarded: {discarded}"
    return ActResult(result.outcome, (said,), result.checkpoint_id, result.timeline, follows=result.outcome != NOTHING)


ROLLBACK = Act(
    "rollback",
    "Roll back to a checkpoint",
    _fields,
    _plan,
    _carry_out,
    rules={TO: ID_OR_MOMENT},
    required=(TO,),
)
