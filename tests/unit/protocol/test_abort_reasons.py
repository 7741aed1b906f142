"""Which reason an error gives the checkpoint that it ends."""

from __future__ import annotations

import pytest

from pipeline.protocol.abort_reasons import reason_for
from pipeline.protocol.errors import (
    CheckpointExpired,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    QualityGateFailed,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from pipeline.protocol.reasons import CheckpointFailureReason


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (SubtaskDeclined("no", reason="BAD_RECORD"), "BAD_RECORD"),
        (SubtaskDeclined("no", reason="no such reason"), "CHECKPOINT_DECLINED"),
        (SubtaskDeclined("no", reason=7), "CHECKPOINT_DECLINED"),
        (QualityGateFailed("no"), "QUALITY_GATE_FAILED"),
        (CheckpointExpired("late"), "CHECKPOINT_EXPIRED"),
        (StateCorrupt("torn"), "STATE_CORRUPT"),
        (EnvironmentUnusable("full"), "ENVIRONMENT_UNUSABLE"),
        (StoreUnavailable("down"), "IO_EXCEPTION"),
        (CommitOutcomeUnknown("lost"), "IO_EXCEPTION"),
        (InvalidRequest("bad"), "TASK_FAILURE"),
        (RuntimeError("bug"), "TASK_FAILURE"),
        (KeyboardInterrupt(), "INTERRUPTED"),
        (SystemExit(1), "INTERRUPTED"),
    ],
)
def test_an_error_names_its_own_reason_or_its_class_does(error: BaseException, name: str) -> None:
    assert reason_for(error) is CheckpointFailureReason[name]
