"""A plan, and the tasks that carry it out: what one task has shown is what the next ones do.

The plan travels through XCom, which can be edited. So its digest is part of what a person approves, and each task that
carries it out compares the two first; what a plan stands for is compared with the form besides.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from milepost.airflow.operators.base import RETURN_VALUE, JobOperator
from milepost.airflow.operators.forms import APPROVE, DRY_RUN
from milepost.airflow.task_output.outcome import Reaction, told_in_words
from milepost.protocol.codec.records import encode, from_json, to_json
from milepost.protocol.records.errors import StateCorrupt

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster

T = TypeVar("T")

log = logging.getLogger(__name__)

PLAN_DIGEST = "plan_digest"
"""Key of an approval: the digest of the plan that was shown."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as XCom carries it from the task that makes it to those that show it and carry it out.

    Attributes:
        checkpoint_id, timeline, token: whom it acts for. subject, text: for people.
        manifest_version: of the head that it was made from. approved: what it takes for granted, as JSON.
        rows: of each table once it is carried out; None where the plan cannot know.
    """

    checkpoint_id: int
    timeline: str
    token: str
    subject: str
    text: tuple[str, ...]
    manifest_version: int
    approved: Mapping[str, object]
    rows: Mapping[str, int | None]

    def approval(self, kind: type[T]) -> T:
        """Return what the plan takes for granted. Raises StateCorrupt: it is not of this kind."""
        return from_json(kind, self.approved, "the plan", hint="trigger a new run")


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

    def plan(self, master: JobMaster, form: dict[str, Any]) -> ShownPlan:
        """Return the plan of what the form asks for."""
        raise TypeError(f"{type(self).__name__} must define plan()")

    def act(self, context: Context) -> Any:
        form = dict(context["params"])
        plan = self.plan(self.jobmaster(), form)
        self.say_for_whom(plan.checkpoint_id, plan.timeline, plan.token)
        for line in plan.text:
            log.info("%s", line)
        log.info("plan digest %s", digest_of(plan))
        skipped = [self.approval, *self.following] if form[DRY_RUN] else [] if form[APPROVE] else [self.approval]
        if form[DRY_RUN]:
            log.info("only planned: nothing was changed")
        if skipped:
            # Skipping by exception returns no value.
            context["ti"].xcom_push(key=RETURN_VALUE, value=to_json(plan))
            raise DownstreamTasksSkipped(tasks=skipped)
        return to_json(plan)


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

    def planned(self, context: Context) -> ShownPlan:
        """Return the plan of this run. Raises AirflowFailException: it is not the one that was approved."""
        plan = plan_of(context["ti"], self.plan_task)
        if context["params"][APPROVE]:
            answer: dict[str, Any] = context["ti"].xcom_pull(task_ids=self.approval) or {}
            require_digest(plan, answer.get(PLAN_DIGEST))
        return plan

    def decided_by(self, context: Context) -> str:
        """Return who decided it, for the history."""
        run = context["dag_run"]
        answer: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=self.approval)
        by = f", approved by {who_answered(answer)}" if answer else ""
        return f"Airflow run {run.dag_id}/{run.run_id}{by}"


def plan_of(ti: Any, plan_task: str) -> ShownPlan:
    """Return the plan that a task of the run left. Raises AirflowFailException: it left none that is one."""
    hint = f"clear the run from {plan_task} on, or trigger a new run"
    try:
        return from_json(ShownPlan, ti.xcom_pull(task_ids=plan_task), f"plan that {plan_task} left", hint=hint)
    except StateCorrupt as error:
        raise AirflowFailException(f"{ti.task_id}: {told_in_words(error)}") from error


def digest_of(plan: object) -> str:
    """Return the hex SHA-256 of a plan's canonical JSON."""
    return hashlib.sha256(encode(plan)).hexdigest()


def require_digest(plan: ShownPlan, approved: str | None) -> None:
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
    """Return the name of the person who answered a request for approval."""
    return str((answer.get("responded_by_user") or {}).get("name") or "somebody")
