"""A plan, and the tasks that carry it out: what one task has shown is what the next ones do.

The plan travels through XCom, which can be edited. So its digest is part of what a person approves, and each task that
carries it out compares the two first; what a plan stands for is compared with the form besides.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from milepost.airflow.operators.base import RETURN_VALUE, JobOperator
from milepost.airflow.operators.forms import APPROVE, DRY_RUN
from milepost.airflow.task_output.outcome import Reaction

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster

log = logging.getLogger(__name__)

PLAN_DIGEST = "plan_digest"
"""Key of an approval: the digest of the plan that was shown."""


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
        log.info("plan digest %s", digest_of(plan))
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
        """Return the plan of this run. Raises AirflowFailException: it is not the one that was approved."""
        plan = plan_of(context["ti"], self.plan_task)
        if context["params"][APPROVE]:
            answer: dict[str, Any] = context["ti"].xcom_pull(task_ids=self.approval) or {}
            require_digest(plan, answer.get(PLAN_DIGEST))
        return plan

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


def digest_of(plan: dict[str, Any]) -> str:
    """Return the hex SHA-256 of a plan's canonical JSON."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_digest(plan: dict[str, Any], approved: str | None) -> None:
    """Refuse a plan that is not the one a person was shown. Raises AirflowFailException.

    Args:
        approved: digest of the plan that was shown; None: nobody has approved any.
    """
    found = digest_of(plan)
    if found != approved:
        shown = "no approval of a plan is on record" if approved is None else f"the one shown has digest {approved}"
        raise AirflowFailException(
            f"the plan is not what was approved: this run's XCom holds one with digest {found}, {shown}. Nothing was "
            "changed. Trigger a new run, and ask who edited XCom."
        )


def who_answered(answer: dict[str, Any]) -> str:
    """The name of the person who answered a request for approval."""
    return str((answer.get("responded_by_user") or {}).get("name") or "somebody")
