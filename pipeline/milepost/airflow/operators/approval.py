"""The approval operator shows a plan to a person; what is approved is what is then done."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.operators.planned import (
    PLAN_DIGEST,
    REJECTED_BY,
    ShownPlan,
    digest_of,
    plan_of,
    require_digest,
    who_answered,
)
from milepost.airflow.task_output.task_log import keep_task_log_short

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

APPROVAL_WITHIN = timedelta(days=1)
"""How long a plan waits for an answer. Most plans are out of date long before: the head has moved by then."""


class PlanApprovalOperator(ApprovalOperator):
    """Shows the plan of another task and parks until a person answers; a rejection skips everything that follows.

    Takes no worker slot and no triggerer while it waits.

    Args:
        plan_task: the `PlanOperator` whose plan is shown.
    """

    ui_color = "#fdf3d8"

    def __init__(self, *, plan_task: str, **kwargs: Any) -> None:
        # What is shown is set when the plan is there.
        super().__init__(
            subject=plan_task,
            response_timeout=APPROVAL_WITHIN,
            ignore_downstream_trigger_rules=True,
            retries=0,
            **kwargs,
        )
        self.plan_task = plan_task

    def execute(self, context: Context) -> Any:
        plan = self._say_for_whom(context)
        digest = digest_of(plan)
        self.subject, self.body = plan.subject, as_markdown([*plan.text, f"plan digest {digest}"])
        log.info("waiting for a person to approve or reject the plan of %s, digest %s", self.plan_task, digest)
        try:
            return super().execute(context)
        except TaskAwaitingInput as parked:
            # Airflow keeps it with the parked task, where no edit of an XCom reaches it.
            kept = (parked.kwargs or {}) | {PLAN_DIGEST: digest}
            raise TaskAwaitingInput(method_name=parked.method_name, kwargs=kept, timeout=parked.timeout) from None

    def execute_complete(self, context: Context, event: dict[str, Any], plan_digest: str | None = None) -> Any:
        """Take the answer. Returns it with the digest of the plan that was shown."""
        require_digest(self._say_for_whom(context), plan_digest)
        if "error" not in event:
            approved = self.APPROVE in event["chosen_options"]
            log.info("approved by %s" if approved else "rejected by %s: nothing was changed", who_answered(event))
            if not approved:  # skipping what follows returns no value, and a digest is of an approval alone
                context["ti"].xcom_push(key=RETURN_VALUE, value={REJECTED_BY: who_answered(event)})
        try:
            return {**super().execute_complete(context, event), PLAN_DIGEST: plan_digest}
        except HITLTimeoutError as error:
            raise AirflowFailException(
                f"{self.task_id}: nobody answered within {APPROVAL_WITHIN}. Nothing was changed. Trigger a new run."
            ) from error

    def _say_for_whom(self, context: Context) -> ShownPlan:
        keep_task_log_short()
        plan = plan_of(context["ti"], self.plan_task)
        log.info(
            "checkpoint %d, timeline %s, token %s: %s", plan.checkpoint_id, plan.timeline, plan.token, self.task_id
        )
        return plan


def as_markdown(lines: list[str]) -> str:
    """Return the lines of a plan as a list of verbatim texts: nothing that a store or a spec says becomes markup."""
    return "\n".join(f"* `{line.replace('`', chr(39))}`" for line in lines)
