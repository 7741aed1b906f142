"""The plan of an act, as tasks pass it through XCom and show it to a person.

Users can edit XCom. Therefore a person approves the plan together with its digest, and every task that carries out the
plan compares the digests first. It also compares the plan with the form.
"""

from __future__ import annotations

import hashlib
from typing import Any

from milepost.acts import ShownPlan
from milepost.airflow.compat import AirflowFailException
from milepost.airflow.task_output.outcome import error_text
from milepost.codec import encode, from_json
from milepost.errors import StateCorrupt

PLAN_DIGEST = "plan_digest"
"""Key of the digest of the shown plan, in the XCom of an approval."""

REJECTED_BY = "rejected_by"
"""Key of the name of the person who rejected the plan, in the XCom of a rejection."""


def pull_plan(ti: Any, plan_task: str) -> ShownPlan:
    """Return the plan in the XCom of a task of the run. Raises AirflowFailException: it has no valid plan."""
    hint = f"clear the run from {plan_task} on, or trigger a new run"
    try:
        return from_json(ShownPlan, ti.xcom_pull(task_ids=plan_task), f"plan in the XCom of {plan_task}", hint=hint)
    except StateCorrupt as error:
        raise AirflowFailException(f"{ti.task_id}: {error_text(error)}") from error


def digest_of(plan: object) -> str:
    """Return the hex SHA-256 of a plan's canonical JSON."""
    return hashlib.sha256(encode(plan)).hexdigest()


def require_digest(plan: ShownPlan, approved: str | None) -> None:
    """Raise AirflowFailException if the plan is not the approved one.

    Args:
        approved: digest of the plan that was shown; None: no plan was approved.
    """
    digest = digest_of(plan)
    if digest != approved:
        expected = "no plan was approved" if approved is None else f"the approved plan has digest {approved}"
        raise AirflowFailException(
            f"the plan in this run's XCom is not the approved one: its digest is {digest}, {expected}. Nothing was "
            "changed. Trigger a new run, and find out who edited XCom."
        )


def responder_name(answer: dict[str, Any]) -> str:
    """Return the name of the person who answered a request for approval."""
    return str((answer.get("responded_by_user") or {}).get("name") or "somebody")
