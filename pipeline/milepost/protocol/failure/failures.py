"""The failure manager adds failed epochs up to a FAILED job: Flink's, as pure functions.

Each checkpoint id counts once; a failure of an id up to the last success is ignored; a success resets; only counted
reasons count (`reasons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import Failures
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_COUNTED_IDS = 256
MAX_DETAIL_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """What one failure means.

    Attributes:
        failures: the counters after it. counted: whether it raised them. tolerated: whether the job may go on.
    """

    failures: Failures
    counted: bool
    tolerated: bool


def printable_detail(detail: str) -> str:
    """Return a text that can be stored: at most 2,000 characters, all of which have a UTF-8 form."""
    # A lone surrogate (an odd file name) has none: it must not make the abort itself impossible.
    detail = detail.encode("utf-8", "backslashreplace").decode()
    return detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"


def record_failure(
    failures: Failures, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str, tolerable: int | None
) -> FailureVerdict:
    """Count one failed checkpoint.

    Args:
        failures: the counters before.
        checkpoint_id: whose failure. reason: why. detail: for people; kept up to 2,000 characters.
        tolerable: that many failures in a row are tolerated; the next one is not. None: all are.
    """
    detail = printable_detail(detail)
    noted = replace(failures, last_reason=reason.value, last_detail=detail, last_checkpoint=checkpoint_id)
    if not reason.counted or checkpoint_id <= failures.last_success or checkpoint_id in failures.counted:
        return FailureVerdict(noted, counted=False, tolerated=True)
    counted = tuple(sorted((*failures.counted, checkpoint_id)))[-MAX_COUNTED_IDS:]
    noted = replace(noted, consecutive=failures.consecutive + 1, counted=counted)
    return FailureVerdict(noted, counted=True, tolerated=tolerable is None or noted.consecutive <= tolerable)


def record_success(failures: Failures, checkpoint_id: CheckpointId) -> Failures:
    """Reset the counters, unless a newer checkpoint has already done so."""
    if checkpoint_id <= failures.last_success:
        return failures
    return Failures(last_success=checkpoint_id)
