"""The act `backfill`: process recorded input again on a fork, which then takes the live timeline's place.

While it replays, the schedule goes on; what that completes meanwhile is replayed too. What must not change between
plan and replay is the fork point, the live timeline, the code and the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, Doing, Done, refuse
from milepost.airflow.operate.field_values import MOMENT, MOMENT_EXAMPLES, checkpoint_from
from milepost.airflow.operate.switch import switched_before
from milepost.airflow.operators import forms
from milepost.airflow.operators.planned import ShownPlan
from milepost.codec.records import to_json
from milepost.protocol.records.ids import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.jobspec.load.load import LoadedJob

FROM, UNTIL, FROM_CHECKPOINT = "from", "to", "from_checkpoint"


def _fields(job: LoadedJob) -> dict[str, Param]:
    return {
        FROM: forms.optional_text(
            "From",
            f"Event time from which rows are processed again: {MOMENT_EXAMPLES}. Either this or a checkpoint.",
        ),
        UNTIL: forms.optional_text(
            "To",
            "Event time before which the quality gate judges and the plan counts. Replay always goes on to the head.",
        ),
        FROM_CHECKPOINT: forms.optional_id(
            "From checkpoint",
            "Replay what was read after this checkpoint; 0: everything. Either this or a time.",
        ),
    }


def _check(form: Mapping[str, Any]) -> None:
    if (form[FROM] is None) == (form[FROM_CHECKPOINT] is None):
        names = " and ".join(map(BACKFILL.field, (FROM, FROM_CHECKPOINT)))
        got = "neither" if form[FROM] is None else f"{form[FROM]} and {form[FROM_CHECKPOINT]}"
        raise refuse(names, "From, From checkpoint", "exactly one of the two", got)


def _plan(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    version = master.history(limit=1)[0]["version"]
    plan = master.plan_backfill(form[FROM], form[UNTIL], form[FROM_CHECKPOINT])
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


def _carry_out(doing: Doing) -> Done:
    """Replay what the plan names and what was completed since, then make the fork the live timeline.

    A retried task, and another run of the same form, go on with the fork.
    """
    from milepost.jobmaster.jobmaster import ApprovedBackfill
    from milepost.spark.driver.open_runner import open_runner

    before = switched_before(doing)
    if before is not None:
        return before
    asked = (doing.form[FROM], doing.form[UNTIL], doing.form[FROM_CHECKPOINT])
    approved = doing.plan.approval(ApprovedBackfill)
    result = doing.master.backfill(doing.session, open_runner(), *asked, approved=approved, progress=doing.say)
    said = f"checkpoint {result.checkpoint_id} is the head of timeline {result.timeline}"
    return Done(result.outcome, (said,), result.checkpoint_id, result.timeline, follows=True)


BACKFILL = Act(
    "backfill",
    "Backfill: process recorded input again",
    _fields,
    _plan,
    _carry_out,
    takes={FROM: MOMENT, UNTIL: MOMENT, FROM_CHECKPOINT: checkpoint_from(0)},
    check=_check,
)
