"""The tasks of `<job>__operate`: plan, act, reconcile; between the first two a person may be asked.

What is approved is what is done: the plan's digest is what a person approves, and the act is refused when what the plan
takes for granted is not so any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from milepost.airflow.operate.act import Doing, Done
from milepost.airflow.operate.registry import Asked, asked
from milepost.airflow.operators.base import RETURN_VALUE, JobOperator
from milepost.airflow.operators.planned import (
    PLAN_DIGEST,
    ShownPlan,
    digest_of,
    plan_of,
    require_digest,
    who_answered,
)
from milepost.airflow.task_output.outcome import Reaction, told_in_words
from milepost.codec.records import from_json, to_json
from milepost.errors import CommitConflict

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PLAN, APPROVAL, ACT, RECONCILE = "plan", "approve", "act", "reconcile"


class PlanOperator(JobOperator):
    """Makes the plan of what the form asks for, and logs it. Changes nothing."""

    if_busy = Reaction.FAIL

    def act(self, context: Context) -> Any:
        master = self.jobmaster()
        wanted = asked(context["params"], master.job)
        plan = wanted.act.plan(master, wanted.form)
        self.say_for_whom(plan.checkpoint_id, plan.timeline, plan.token)
        for line in (plan.subject, *plan.text):
            log.info("%s", line)
        log.info("plan digest %s", digest_of(plan))
        skipped = self._skipped(wanted, plan)
        if skipped:
            # Skipping by exception returns no value.
            context["ti"].xcom_push(key=RETURN_VALUE, value=to_json(plan))
            raise DownstreamTasksSkipped(tasks=skipped)
        return to_json(plan)

    def _skipped(self, wanted: Asked, plan: ShownPlan) -> list[str]:
        """Return the tasks that must not run."""
        if wanted.dry_run:
            log.info("only planned: nothing was changed")
        elif plan.idle:
            log.info("there is nothing to do: nothing was changed")
        else:
            return [] if wanted.approve else [APPROVAL]
        return [APPROVAL, ACT, RECONCILE]


class PlannedOperator(JobOperator):
    """Base of the tasks that carry out the plan of the run."""

    if_busy = Reaction.FAIL

    def planned(self, context: Context, wanted: Asked) -> ShownPlan:
        """Return the plan of this run. Raises AirflowFailException: it is not the one that was approved, or only that.

        A task that its plan has skipped is run all the same by Airflow when a person clears it.
        """
        if wanted.dry_run:
            raise AirflowFailException(
                "this run was asked to only plan. Nothing was changed. Trigger a new run to have it done."
            )
        plan = plan_of(context["ti"], PLAN)
        if wanted.approve:
            answer: dict[str, Any] = context["ti"].xcom_pull(task_ids=APPROVAL) or {}
            require_digest(plan, answer.get(PLAN_DIGEST))
        if plan.what != wanted.act.name or plan.idle:
            raise AirflowFailException(
                f"the plan in this run's XCom is to {plan.what}{' nothing' if plan.idle else ''}, and the form asks to "
                f"{wanted.act.name}. Nothing was changed. Trigger a new run, and ask who edited XCom."
            )
        return plan


class ActOperator(PlannedOperator):
    """Does what the plan says, if it holds still; skips `reconcile` when no table has to follow."""

    def act(self, context: Context) -> Any:
        master, ti = self.jobmaster(), context["ti"]
        wanted = asked(context["params"], master.job)
        plan = self.planned(context, wanted)
        self.say_for_whom(plan.checkpoint_id, plan.timeline, plan.token)
        doing = Doing(
            master=master,
            session=self.session(context),
            form=wanted.form,
            plan=plan,
            decided_by=self.decided_by(context),
            retried=ti.try_number > 1,
            say=_say,
        )
        try:
            done = wanted.act.carry_out(doing)
        except CommitConflict as moved:
            raise AirflowFailException(
                f"the plan does not hold any more, plan again by a new run: {told_in_words(moved)}"
            ) from moved
        log.info("%s: %s", wanted.act.name, done.outcome)
        for line in done.text:
            log.info("%s", line)
        if not done.follows:
            ti.xcom_push(key=RETURN_VALUE, value=to_json(done))
            raise DownstreamTasksSkipped(tasks=[RECONCILE])
        return to_json(done)

    def decided_by(self, context: Context) -> str:
        """Return who decided it, for the history."""
        run = context["dag_run"]
        answer: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=APPROVAL)
        asker = f", triggered by {run.triggering_user_name}" if run.triggering_user_name else ""
        by = f", approved by {who_answered(answer)}" if answer else ""
        return f"Airflow run {run.dag_id}/{run.run_id}{asker}{by}"

    def on_kill(self) -> None:
        """Airflow asked the task to stop: unwind, so that a runner stops its Spark session on the way out."""
        from airflow.sdk.exceptions import AirflowTaskTerminated

        raise AirflowTaskTerminated(f"{self.task_id} was told to stop; another run of the same form goes on with it")


class ReconcileOperator(PlannedOperator):
    """Sees that every sink has followed, and emits the asset event of each table that changed.

    The event is that of `notify_complete`; its `rows` are those of the whole table, None where the plan cannot know.

    Args:
        sink_assets: asset URI of every sink of the job.
    """

    def __init__(self, *, sink_assets: dict[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sink_assets = sink_assets

    def act(self, context: Context) -> None:
        master = self.jobmaster()
        plan = self.planned(context, asked(context["params"], master.job))
        left = context["ti"].xcom_pull(task_ids=ACT)
        done = from_json(Done, left, f"what {ACT} left", hint="trigger a new run")
        checkpoint_id = done.checkpoint_id
        self.say_for_whom(checkpoint_id, done.timeline)
        master.finish_reconciliation(self.session(context))
        watermark = master.show(checkpoint_id).watermark if checkpoint_id else None
        about = {"checkpoint_id": checkpoint_id, "timeline": done.timeline, "watermark": watermark}
        for sink, rows in sorted(plan.rows.items()):
            log.info("sink %s stands at checkpoint %d of timeline %s", sink, checkpoint_id, done.timeline)
            for alias in self.outlets:
                if isinstance(alias, AssetAlias):
                    context["outlet_events"][alias].add(Asset(self.sink_assets[sink]), extra=about | {"rows": rows})


def _say(step: str) -> None:
    log.info("%s", step)
