"""A plan, and the tasks that carry it out: what one task has shown is what the next ones do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from pipeline.orchestration.base import RETURN_VALUE, JobOperator
from pipeline.orchestration.forms import APPROVE, DRY_RUN
from pipeline.orchestration.outcome import Reaction

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline.jobmaster import JobMaster

log = logging.getLogger(__name__)


class PlanOperator(JobOperator):
    """Makes the plan of what the form asks for, and logs it. Changes nothing.

    Args:
        approval: the task that asks a person; skipped when the form does not want one.
        following: all tasks that would carry the plan out; skipped when the form wants the plan only.
    """

    if_busy = Reaction.FAIL

    def __init__(self, *, approval: str, following: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval = approval
        self.following = following

    def plan(self, master: JobMaster, form: dict[str, Any]) -> dict[str, Any]:
        """The plan: `checkpoint_id`, `timeline`, `token`, `subject` and `text` for people, and what the next need."""
        raise TypeError(f"{type(self).__name__} must define plan()")

    def act(self, context: Context) -> dict[str, Any]:
        form = dict(context["params"])
        plan = self.plan(self.jobmaster(), form)
        self.say_for_whom(plan)
        for line in plan["text"]:
            log.info("%s", line)
        skipped = [self.approval, *self.following] if form[DRY_RUN] else [] if form[APPROVE] else [self.approval]
        if form[DRY_RUN]:
            log.info("only planned: nothing was changed")
        if skipped:
            # Skipping by exception returns no value.
            context["ti"].xcom_push(key=RETURN_VALUE, value=plan)
            raise DownstreamTasksSkipped(tasks=skipped)
        return plan


class PlannedOperator(JobOperator):
    """Carries out a part of the plan that another task of the run has made.

    Args:
        plan_task: that task. approval: the one that may have asked a person.
    """

    if_busy = Reaction.FAIL

    def __init__(self, *, plan_task: str, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_task = plan_task
        self.approval = approval

    def planned(self, context: Context) -> dict[str, Any]:
        """The plan of this run."""
        return plan_of(context["ti"], self.plan_task)

    def decided_by(self, context: Context) -> str:
        """Who decided it, for the history."""
        run = context["dag_run"]
        answer: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=self.approval)
        by = f", approved by {who_answered(answer)}" if answer else ""
        return f"Airflow run {run.dag_id}/{run.run_id}{by}"


def plan_of(ti: Any, plan_task: str) -> dict[str, Any]:
    """The plan that a task of the run left. Raises AirflowFailException when there is none."""
    plan: dict[str, Any] | None = ti.xcom_pull(task_ids=plan_task)
    if not plan:
        raise AirflowFailException(
            f"{ti.task_id}: {plan_task} of this run left no plan. Nothing was changed. Clear the run from "
            f"{plan_task} on, or trigger a new run."
        )
    return plan


def who_answered(answer: dict[str, Any]) -> str:
    """The name of the person who answered a request for approval."""
    return str((answer.get("responded_by_user") or {}).get("name") or "somebody")
