"""The DAG `<job>__backfill`: plan, have the plan approved, replay on a fork, fast-forward, see every table follow.

While it replays, the schedule goes on; what that completes meanwhile is replayed too. What must not change between
plan and replay is the fork point, the live timeline, the code and the spec.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTerminated

from milepost.airflow.dags.dag_settings import form_dag
from milepost.airflow.dags.switched import Switched, add_switch, switched_before
from milepost.airflow.operators import forms
from milepost.airflow.operators.job_specs import backfill_dag_id
from milepost.airflow.operators.planned import PlannedOperator, PlanOperator, ShownPlan
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import PlanOutdated
from milepost.protocol.records.ids import checkpoint_name
from milepost.spec.load.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster

log = logging.getLogger(__name__)

PLAN = "plan_backfill"
BACKFILL = "replay_and_fast_forward"

FROM, UNTIL, FROM_CHECKPOINT = "from", "to", "from_checkpoint"


def backfill_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__backfill`."""
    name = job.spec.name
    with form_dag(
        job,
        backfill_dag_id(name),
        f"Process recorded input of {name} again with today's code, beside the schedule, then switch to the result",
        _DOC.format(name=name),
        _form(),
    ) as dag:
        add_switch(job, (PLAN, PlanBackfillOperator), (BACKFILL, BackfillOperator))
    return dag


class PlanBackfillOperator(PlanOperator):
    """Says what a backfill of the form's range would fork, replay and change. Changes nothing."""

    def plan(self, master: JobMaster, form: dict[str, Any]) -> ShownPlan:
        version = master.history(limit=1)[0]["version"]
        plan = master.plan_backfill(form[FROM], form[UNTIL], form[FROM_CHECKPOINT])
        return ShownPlan(
            checkpoint_id=plan.fork_point,
            timeline=plan.timeline,
            token=f"none (planned at manifest version {version})",
            subject=f"{plan.job}: backfill, forked at {checkpoint_name(plan.fork_point)}",
            text=plan.text,
            manifest_version=version,
            approved=to_json(plan.approved),
            rows=dict.fromkeys(plan.sinks),
        )


class BackfillOperator(PlannedOperator):
    """Replays on a fork what the plan names and what has been completed since, then makes the fork the live timeline.

    A retried task, and another run of the same form, go on with the fork.
    """

    def act(self, context: Context) -> Any:
        from milepost.jobmaster.jobmaster import ApprovedBackfill
        from milepost.spark.driver.open_runner import open_runner

        plan, form = self.planned(context), dict(context["params"])
        self.say_for_whom(plan.checkpoint_id, plan.timeline, plan.token)
        master, session = self.jobmaster(), self.session(context)
        done = switched_before(context, master, session, plan)
        if done is None:
            asked = form[FROM], form[UNTIL], form[FROM_CHECKPOINT]
            approved = plan.approval(ApprovedBackfill)
            try:
                result = master.backfill(session, open_runner(), *asked, approved=approved, progress=_say)
            except PlanOutdated as moved:
                raise AirflowFailException(
                    f"the plan does not hold any more, plan again by a new run: {moved.message}"
                ) from moved
            done = Switched(result.outcome, result.checkpoint_id, result.timeline)
        log.info("%s: checkpoint %s is the head of timeline %s", done.outcome, done.checkpoint_id, done.timeline)
        return to_json(done)

    def on_kill(self) -> None:
        """Airflow asked the task to stop: unwind, so that the runner stops its Spark session on the way out."""
        raise AirflowTaskTerminated(
            f"{self.task_id} was told to stop; another run of the same form goes on with its fork"
        )


def _say(step: str) -> None:
    log.info("%s", step)


def _form() -> dict[str, Param]:
    return {
        FROM: forms.optional_text(
            "From",
            f"Event time from which rows are processed again: {forms.MOMENT_EXAMPLES}. Either this or a checkpoint.",
            forms.MOMENT_PATTERN,
        ),
        UNTIL: forms.optional_text(
            "To",
            "Event time before which the quality gate judges and the plan counts. Replay always goes on to the head.",
            forms.MOMENT_PATTERN,
        ),
        FROM_CHECKPOINT: forms.optional_id(
            "From checkpoint",
            "Replay what was read after this checkpoint; 0: everything. Either this or a time.",
            lowest=0,
        ),
        forms.DRY_RUN: forms.dry_run(),
        forms.APPROVE: forms.approve("replay and switch"),
    }


_DOC = """### {name}: backfill

Processes recorded input again with today's code, on a fork beside the schedule; when it has caught up, the fork takes
the live timeline's place in one step, and every table follows. Until then the schedule and the tables do not notice.

`plan_backfill` says where it forks and what it replays; `approve` shows that under *Required Actions*;
`replay_and_fast_forward` does it, and goes on with its fork when it is retried or run again; `reconcile` sees that
every table has followed. A failed or rejected run has left the live timeline as it was.

Airflow's own backfill of `{name}__epoch` is something else: it runs epochs for past dates, which a later epoch covers.
"""
