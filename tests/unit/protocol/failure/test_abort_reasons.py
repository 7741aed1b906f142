"""Abort reason of a checkpoint by the error that ended it."""

from __future__ import annotations

import pytest

from milepost.errors import (
    CheckpointExpired,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    QualityGateFailed,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.failure.abort_reasons import UNCONFIRMED_WRITE_ERRORS, reason_for, with_reason
from milepost.protocol.records.reasons import CheckpointFailureReason


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
def test_an_error_has_its_own_reason_or_that_of_its_class(error: BaseException, name: str) -> None:
    assert reason_for(error) is CheckpointFailureReason[name]


def test_the_failed_step_supplies_the_reason_if_the_error_has_none() -> None:
    """The same outage is a read that failed, or a checkpoint that could not be finalized."""
    finalize = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
    for raised, expected in [
        (StoreUnavailable("down"), "FINALIZE_CHECKPOINT_FAILURE"),
        (StoreUnavailable("down", reason="CHECKPOINT_EXPIRED"), "CHECKPOINT_EXPIRED"),
        (EnvironmentUnusable("full"), "ENVIRONMENT_UNUSABLE"),
    ]:
        with pytest.raises(type(raised)) as caught, with_reason(finalize, *UNCONFIRMED_WRITE_ERRORS):
            raise raised
        assert reason_for(caught.value) is CheckpointFailureReason[expected]
