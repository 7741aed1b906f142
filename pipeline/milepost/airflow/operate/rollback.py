"""The act `rollback`: return state, source positions, rows in flight and every table to one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, Doing, Done
from milepost.airflow.operate.field_values import ID_OR_MOMENT, MOMENT_EXAMPLES
from milepost.airflow.operate.switch import switched_before
from milepost.airflow.operators import forms
from milepost.airflow.operators.planned import ShownPlan
from milepost.codec.records import to_json
from milepost.errors import PlanOutdated
from milepost.protocol.records.ids import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.jobspec.load.load import LoadedJob

TO, TAKE_OVER = "to", "take_over"

NOTHING = "nothing_to_roll_back"


def _fields(job: LoadedJob) -> dict[str, Param]:
    return {
        TO: forms.optional_text(
            "Back to",
            "A checkpoint id (0: the empty state), or a time: the newest checkpoint triggered at or before it. "
            f"As in 41, {MOMENT_EXAMPLES}.",
        ),
        TAKE_OVER: forms.take_over(),
    }


def _plan(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    plan = master.plan_rollback(form[TO])
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


def _carry_out(doing: Doing) -> Done:
    """Go back to the checkpoint of the plan, if the head is still the plan's."""
    from milepost.jobmaster.jobmaster import ApprovedRollback

    before = switched_before(doing)
    if before is not None:
        return before
    target, asked = doing.plan.checkpoint_id, doing.form[TO]
    meant = doing.master.rollback_target(asked)
    if meant != target:
        raise PlanOutdated(
            f"back to {asked} is {checkpoint_name(meant)} now, and {checkpoint_name(target)} in the plan. Nothing was "
            "changed."
        )
    result = doing.master.rollback(
        doing.session,
        target,
        take_over=bool(doing.form[TAKE_OVER]),
        detail=doing.decided_by,
        approved=doing.plan.approval(ApprovedRollback),
    )
    left = ", ".join(map(str, result.discarded)) or "none"
    said = f"{checkpoint_name(result.checkpoint_id)} is the head of timeline {result.timeline}; discarded: {left}"
    return Done(result.outcome, (said,), result.checkpoint_id, result.timeline, follows=result.outcome != NOTHING)


ROLLBACK = Act(
    "rollback",
    "Roll back to a checkpoint",
    _fields,
    _plan,
    _carry_out,
    takes={TO: ID_OR_MOMENT},
    required=(TO,),
)
