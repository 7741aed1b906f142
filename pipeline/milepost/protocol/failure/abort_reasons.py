"""Abort reasons follow from an error's class and the step that failed: one table for every caller.

A reason comes from the class of the error, unless the step that failed says more than the class does (`with_reason`): a
store that does not answer is IO_EXCEPTION while rows are read, and FINALIZE_CHECKPOINT_FAILURE once all have answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milepost.protocol.records.errors import (
    CheckpointError,
    CheckpointExpired,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    QualityGateFailed,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.records.reasons import CheckpointFailureReason

_REASONS: tuple[tuple[type[CheckpointError], CheckpointFailureReason], ...] = (
    (QualityGateFailed, CheckpointFailureReason.QUALITY_GATE_FAILED),
    (CheckpointExpired, CheckpointFailureReason.CHECKPOINT_EXPIRED),
    (SubtaskDeclined, CheckpointFailureReason.CHECKPOINT_DECLINED),
    (StateCorrupt, CheckpointFailureReason.STATE_CORRUPT),
    (EnvironmentUnusable, CheckpointFailureReason.ENVIRONMENT_UNUSABLE),
    (StoreUnavailable, CheckpointFailureReason.IO_EXCEPTION),
    (CommitOutcomeUnknown, CheckpointFailureReason.IO_EXCEPTION),
)


NOT_WRITTEN: tuple[type[CheckpointError], ...] = (StoreUnavailable, CommitOutcomeUnknown, CommitConflict)
"""What a write raises when it may not have landed although nothing is wrong with the machine or the request."""


@contextmanager
def with_reason(reason: CheckpointFailureReason, *kinds: type[CheckpointError]) -> Iterator[None]:
    """Give the errors of these kinds that leave the block this reason, unless they state one of their own."""
    try:
        yield
    except kinds as error:
        error.details.setdefault("reason", reason.value)
        raise


def reason_for(error: BaseException) -> CheckpointFailureReason:
    """Return the reason that the error carries in `details`, else that of its class.

    An error that is not ours is a failed task: a bug, or Spark's own. A person's Ctrl-C is INTERRUPTED.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return CheckpointFailureReason.INTERRUPTED
    if isinstance(error, CheckpointError):
        stated = error.details.get("reason")
        if isinstance(stated, str) and stated in CheckpointFailureReason.__members__:
            return CheckpointFailureReason[stated]
        for kind, reason in _REASONS:
            if isinstance(error, kind):
                return reason
    return CheckpointFailureReason.TASK_FAILURE


def detail_for(error: BaseException) -> str:
    """Return what the error says, for people: a decline's own words, without the frame that its message gives them."""
    if isinstance(error, CheckpointError):
        return str(error.details.get("detail") or error.message)
    if isinstance(error, KeyboardInterrupt):
        return "by a person, or a signal"
    return f"{type(error).__name__}: {error}"
