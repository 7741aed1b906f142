"""Which reason and detail an error gives the checkpoint that it ends: one table for every caller."""

from __future__ import annotations

from pipeline.protocol.errors import (
    CheckpointError,
    CheckpointExpired,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    QualityGateFailed,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from pipeline.protocol.reasons import CheckpointFailureReason

_REASONS: tuple[tuple[type[CheckpointError], CheckpointFailureReason], ...] = (
    (QualityGateFailed, CheckpointFailureReason.QUALITY_GATE_FAILED),
    (CheckpointExpired, CheckpointFailureReason.CHECKPOINT_EXPIRED),
    (SubtaskDeclined, CheckpointFailureReason.CHECKPOINT_DECLINED),
    (StateCorrupt, CheckpointFailureReason.STATE_CORRUPT),
    (EnvironmentUnusable, CheckpointFailureReason.ENVIRONMENT_UNUSABLE),
    (StoreUnavailable, CheckpointFailureReason.IO_EXCEPTION),
    (CommitOutcomeUnknown, CheckpointFailureReason.IO_EXCEPTION),
)


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
    return f"{type(error).__name__}: {error}"
