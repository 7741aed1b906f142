"""Count consecutive failed epochs until a job is FAILED, as Flink's failure manager does.

Each checkpoint id counts once. A failure of an id up to the last success is ignored. A success resets the counters.
Only some reasons raise the counters (`reasons.py`). For example, with two tolerable failures::

    checkpoint 7 fails, 8 fails, 8 fails again, 9 fails    consecutive 1, 2, 2, 3: not tolerated
    checkpoint 7 fails, 8 completes, 7 fails again         consecutive 1, 0, 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.protocol.records.decisions import Actor, Decision
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import Failures
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_COUNTED_IDS = 256
MAX_DETAIL_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """The consequence of one failure.

    Attributes:
        failures: counters after the failure. counted: whether it raised them. tolerated: whether the job may continue.
    """

    failures: Failures
    counted: bool
    tolerated: bool


def printable_detail(detail: str) -> str:
    """Return a text that can be stored: at most 2,000 characters, all encodable as UTF-8."""
    # A lone surrogate (from an odd file name) is not encodable, and must not make the abort itself impossible.
    detail = detail.encode("utf-8", "backslashreplace").decode()
    return detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"


def printable_decision(decision: Decision) -> Decision:
    """Return a decision with texts that can be stored."""
    actor = decision.actor
    shown = Actor(actor.kind, *map(_printable, (actor.person, actor.approved_by, actor.dag_id, actor.run_id)))
    return replace(decision, actor=shown, why=printable_detail(decision.why))


def _printable(text: str | None) -> str | None:
    return None if text is None else printable_detail(text)


def record_failure(
    failures: Failures, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str, tolerable: int | None
) -> FailureVerdict:
    """Count one failed checkpoint.

    Args:
        failures: counters before the failure.
        checkpoint_id: the failed checkpoint. reason: its cause. detail: for people; cut to 2,000 characters.
        tolerable: number of consecutive failures to tolerate; None: no limit.
    """
    detail = printable_detail(detail)
    after = replace(failures, last_reason=reason.value, last_detail=detail, last_checkpoint=checkpoint_id)
    if not reason.counted or checkpoint_id <= failures.last_success or checkpoint_id in failures.counted:
        return FailureVerdict(after, counted=False, tolerated=True)
    counted = tuple(sorted((*failures.counted, checkpoint_id)))[-MAX_COUNTED_IDS:]
    after = replace(after, consecutive=failures.consecutive + 1, counted=counted)
    return FailureVerdict(after, counted=True, tolerated=tolerable is None or after.consecutive <= tolerable)


def record_success(failures: Failures, checkpoint_id: CheckpointId) -> Failures:
    """Reset the counters, unless a newer checkpoint has already done so."""
    if checkpoint_id <= failures.last_success:
        return failures
    return Failures(last_success=checkpoint_id)
