"""A plan as one task shows it and the next ones do it.

The plan travels through XCom, which can be edited. So its digest is part of what a person approves, and each task that
carries it out compares the two first; what a plan stands for is compared with the form besides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from milepost.airflow.task_output.outcome import told_in_words
from milepost.codec.records import encode, from_json
from milepost.errors import StateCorrupt

T = TypeVar("T")

PLAN_DIGEST = "plan_digest"
"""Key of an approval: the digest of the plan that was shown."""

REJECTED_BY = "rejected_by"
"""Key of a rejection: who said no."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as XCom carries it from the task that makes it to those that show it and carry it out.

    Attributes:
        what: the act, by its name in the form. checkpoint_id, timeline, token: whom it acts for.
        subject, text: for people. manifest_version: of the head that it was made from.
        approved: what it takes for granted, as JSON. rows: of each table that follows it, once it is carried out; None
            where the plan cannot know.
        idle: there is nothing to do, so nobody is asked and nothing is done.
    """

    what: str
    checkpoint_id: int
    timeline: str
    token: str
    subject: str
    text: tuple[str, ...]
    manifest_version: int
    approved: Mapping[str, object]
    rows: Mapping[str, int | None]
    idle: bool

    def approval(self, kind: type[T]) -> T:
        """Return what the plan takes for granted. Raises StateCorrupt: it is not of this kind."""
        return from_json(kind, self.approved, "the plan", hint="trigger a new run")


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
