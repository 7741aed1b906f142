"""Airflow operator that waits for a person to approve a plan."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator

from milepost.acts import ShownPlan
from milepost.airflow.compat import AirflowFailException, TaskParked
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.operators.shown_plan import (
    PLAN_DIGEST,
    REJECTED_BY,
    digest_of,
    pull_plan,
    require_digest,
    responder_name,
)
from milepost.airflow.task_output.task_log import keep_task_log_short

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

APPROVAL_WITHIN = timedelta(days=1)
"""How long a plan waits for an answer. Most plans become outdated much sooner, because the head moves."""


class PlanApprovalOperator(ApprovalOperator):
    """Shows the plan of another task and waits for a person's answer. A rejection skips all downstream tasks.

    While it waits it occupies no worker slot. Before Airflow 3.3 the triggerer waits for it.

    Args:
        plan_task: task id of the `PlanOperator`.
    """

    ui_color = "#fdf3d8"

    def __init__(self, *, plan_task: str, **kwargs: Any) -> None:
        # `execute` sets the real subject and body, from the plan.
        super().__init__(
            subject=plan_task,
            response_timeout=APPROVAL_WITHIN,
            ignore_downstream_trigger_rules=True,
            retries=0,
            **kwargs,
        )
        self.plan_task = plan_task

    def execute(self, context: Context) -> Any:
        plan = self._log_plan(context)
        digest = digest_of(plan)
        self.subject, self.body = plan.subject, as_markdown([*plan.text, f"plan digest {digest}"])
        log.info("waiting for a person to approve or reject the plan of %s, digest %s", self.plan_task, digest)
        try:
            return super().execute(context)
        except TaskParked as parked:
            # Airflow stores these arguments with the parked task, so that editing an XCom cannot change the digest.
            parked.kwargs = (parked.kwargs or {}) | {PLAN_DIGEST: digest}
            raise

    def execute_complete(self, context: Context, event: dict[str, Any], plan_digest: str | None = None) -> Any:
        """Process the answer. Returns it with the digest of the plan that was shown."""
        require_digest(self._log_plan(context), plan_digest)
        if "error" not in event:
            approved = self.APPROVE in event["chosen_options"]
            log.info("approved by %s" if approved else "rejected by %s: nothing was changed", responder_name(event))
            if not approved:  # the call below raises to skip the tasks, so it returns nothing
                context["ti"].xcom_push(key=RETURN_VALUE, value={REJECTED_BY: responder_name(event)})
        try:
            return {**super().execute_complete(context, event), PLAN_DIGEST: plan_digest}
        except HITLTimeoutError as error:
            raise AirflowFailException(
                f"{self.task_id}: there was no answer within {APPROVAL_WITHIN}. Nothing was changed. Trigger a new run."
            ) from error

    def _log_plan(self, context: Context) -> ShownPlan:
        keep_task_log_short()
        plan = pull_plan(context["ti"], self.plan_task)
        log.info(
            "checkpoint %d, timeline %s, token %s: %s", plan.checkpoint_id, plan.timeline, plan.token, self.task_id
        )
        return plan


def as_markdown(lines: list[str]) -> str:
    """Return the lines of a plan as a Markdown list of code spans, so that no text of a store or spec becomes markup.

    ["roll back to `41`"] -> "* `roll back to '41'`"
    """
    return "\n".join(f"* `{line.replace('`', chr(39))}`" for line in lines)
