"""Map errors to abort reasons, by their class and the step that failed.

The step takes precedence if it says more than the class (`with_reason`): a store that does not answer is IO_EXCEPTION
while rows are read, and FINALIZE_CHECKPOINT_FAILURE after all subtasks have acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milepost.errors import (
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


UNCONFIRMED_WRITE_ERRORS: tuple[type[CheckpointError], ...] = (StoreUnavailable, CommitOutcomeUnknown, CommitConflict)
"""Errors of a write that may not have landed, with nothing wrong with the machine or the request."""


@contextmanager
def with_reason(reason: CheckpointFailureReason, *kinds: type[CheckpointError]) -> Iterator[None]:
    """Give errors of these kinds that leave the block this reason, unless they carry their own."""
    try:
        yield
    except kinds as error:
        error.details.setdefault("reason", reason.value)
        raise


def reason_for(error: BaseException) -> CheckpointFailureReason:
    """Return the reason in the error's `details`, or else that of its class.

    An error of another class is a failed task: a bug, or Spark's. A person's Ctrl-C is INTERRUPTED.
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
    """Return the error's text for people; for a decline, the subtask's own words without the surrounding message."""
    if isinstance(error, CheckpointError):
        return str(error.details.get("detail") or error.message)
    if isinstance(error, KeyboardInterrupt):
        return "by a person, or a signal"
    return f"{type(error).__name__}: {error}"
