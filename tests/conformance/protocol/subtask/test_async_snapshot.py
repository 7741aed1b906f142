"""The asynchronous part of a snapshot: acknowledged or discarded, never both (Flink's AsyncCheckpointRunnable)."""

from __future__ import annotations

import pytest

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.snapshot import AsyncSnapshot, SnapshotState
from milepost.protocol.subtask.subtask_commands import (
    AcknowledgeCheckpoint,
    CancelUpload,
    DeclineCheckpoint,
    DiscardSnapshot,
    RecordIncomplete,
)
from milepost_testkit.tasks.subtask_driver import SubtaskDriver, barrier

ID = CheckpointId(1)
GONE = (CancelUpload(ID), DiscardSnapshot(ID), RecordIncomplete(ID))


def test_a_failed_upload_declines_while_the_subtask_runs() -> None:
    """Case: AsyncCheckpointRunnableTest.testDeclineWithAsyncCheckpointExceptionWhenRunning
    Case: AsyncCheckpointRunnableTest.testAsyncCheckpointException
    """
    snapshot = AsyncSnapshot(ID)
    reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
    assert snapshot.failed("no space", running=True) == (*GONE, DeclineCheckpoint(ID, reason, "no space"))
    assert snapshot.state is SnapshotState.DISCARDED


def test_a_failed_upload_of_a_subtask_that_stopped_is_silent() -> None:
    """Case: AsyncCheckpointRunnableTest.testDeclineWithAsyncCheckpointExceptionWhenNotRunning
    Case: AsyncCheckpointRunnableTest.testAsyncCheckpointException
    """
    snapshot = AsyncSnapshot(ID)
    assert snapshot.failed("no space", running=False) == GONE
    assert snapshot.state is SnapshotState.DISCARDED


def test_a_cause_with_a_reason_of_its_own_keeps_it() -> None:
    """Case: AsyncCheckpointRunnableTest.testDeclineAsyncCheckpoint"""
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
    commands = AsyncSnapshot(ID).failed("an input ended", running=True, reason=reason)
    assert commands[-1] == DeclineCheckpoint(ID, reason, "an input ended")


def test_closing_a_running_snapshot_reports_its_measurements_as_incomplete() -> None:
    """Case: AsyncCheckpointRunnableTest.testReportIncompleteStats"""
    snapshot = AsyncSnapshot(ID)
    assert snapshot.close() == GONE
    assert snapshot.close() == ()


def test_acknowledged_state_is_never_discarded() -> None:
    snapshot = AsyncSnapshot(ID)
    assert snapshot.completed() == (AcknowledgeCheckpoint(ID, finished=False),)
    assert snapshot.close() == ()
    assert snapshot.failed("late", running=True) == ()
    assert snapshot.completed() == ()
    assert snapshot.state is SnapshotState.COMPLETED


@pytest.mark.parametrize("ended_by", ["close", "failure"])
def test_objects_stored_after_a_discard_are_dropped_and_not_acknowledged(ended_by: str) -> None:
    snapshot = AsyncSnapshot(ID)
    _ = snapshot.close() if ended_by == "close" else snapshot.failed("no space", running=True)
    assert snapshot.completed() == (DiscardSnapshot(ID),)
    assert snapshot.failed("a sibling, cancelled", running=True) == ()
    assert snapshot.state is SnapshotState.DISCARDED


def test_a_finished_subtask_says_so_in_its_last_acknowledgement() -> None:
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(1), finished=True)
    subtask.end_upload(1)
    assert subtask.all(AcknowledgeCheckpoint) == [AcknowledgeCheckpoint(ID, finished=True)]
