"""Reason, detail and remedy of an error, for its checkpoint and its user."""

from __future__ import annotations

import pytest

from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    QualityGateFailed,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.exchange.acknowledgements import decode_answer, encode_answer, verify
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.failure.abort_reasons import detail_for
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording

IDENTITY = SubtaskIdentity(CheckpointId(42), FencingToken(7), 1, 0)
IO = CheckpointFailureReason.IO_EXCEPTION


def refused(error: CheckpointError) -> CheckpointError:
    """What the driver raises for a subtask's refusal, after its journey with the data."""
    decline = decode_answer(encode_answer(IDENTITY.decline_for(error, "sink late", IO)))
    with wording.raises(CheckpointError) as caught:
        verify(CheckpointId(42), FencingToken(7), [], [decline])
    return caught.value


def test_a_full_disk_under_a_subtask_is_an_environment_fault_with_its_own_remedy() -> None:
    """It is not counted as a failure of the job, and exits 8."""
    error = refused(EnvironmentUnusable("no space.", hint="free space on /data"))
    assert isinstance(error, EnvironmentUnusable)
    assert error.details["reason"] == "ENVIRONMENT_UNUSABLE"
    assert not CheckpointFailureReason.ENVIRONMENT_UNUSABLE.counted


def test_a_store_that_does_not_answer_a_subtask_fails_the_epoch() -> None:
    error = refused(StoreUnavailable("no answer"))
    assert isinstance(error, SubtaskDeclined)
    assert error.details["reason"] == "IO_EXCEPTION"
    assert error.hint == IO.remedy


def test_a_reason_without_a_remedy_has_none() -> None:
    assert CheckpointFailureReason.QUALITY_GATE_FAILED.remedy == ""


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (SubtaskDeclined("checkpoint 1: subtask 0/0 declined: line 3", detail="line 3"), "line 3"),
        (QualityGateFailed("the gate says no"), "the gate says no"),
        (ValueError("odd"), "ValueError: odd"),
        (KeyboardInterrupt(), "by a person, or a signal"),
    ],
)
def test_the_detail_of_an_abort_is_the_errors_own_text(error: BaseException, detail: str) -> None:
    assert detail_for(error) == detail
