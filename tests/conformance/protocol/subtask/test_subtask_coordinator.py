"""One subtask's checkpoints: the rules of Flink's SubtaskCheckpointCoordinator, applied to ours."""

from __future__ import annotations

import pytest

from milepost.errors import ProtocolViolation
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import Alignment
from milepost.protocol.subtask.snapshot import SnapshotState, SubmitUpload
from milepost.protocol.subtask.subtask import MAX_ABORT_MARKS
from milepost.protocol.subtask.subtask_commands import (
    AbortChannelState,
    AcknowledgeCheckpoint,
    BroadcastBarrier,
    BroadcastCancelMarker,
    CancelUpload,
    CollectInFlight,
    DeclineCheckpoint,
    DiscardSnapshot,
    FinishInput,
    FinishOutput,
    FreezeState,
    Notification,
    NotifyOperators,
    NotifyState,
    PrepareOperators,
    RecordIncomplete,
    StartChannelState,
)
from milepost_testkit import wording
from milepost_testkit.tasks.input_gate import unaligned
from milepost_testkit.tasks.subtask_driver import SubtaskDriver, barrier, data

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


@pytest.mark.parametrize(
    ("alignment", "started"),
    [
        (Alignment.UNALIGNED, True),
        (Alignment.TIMEOUTABLE, True),
        (Alignment.ALIGNED, False),
    ],
)
def test_only_a_checkpoint_that_may_overtake_data_opens_channel_state(alignment: Alignment, started: bool) -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testInitCheckpoint"""
    subtask = SubtaskDriver()
    subtask.init(barrier(1, alignment))
    assert bool(subtask.all(StartChannelState)) is started
    assert bool(subtask.all(CollectInFlight)) is (alignment is Alignment.UNALIGNED)
    assert bool(subtask.all(FinishInput)) is started


def test_a_barrier_that_may_time_out_is_no_priority_event_and_still_has_a_channel_state_result() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testTimeoutableAlignedBarrierNotPriorityAndChannelStateResult"""
    subtask = SubtaskDriver()
    subtask.take(barrier(7, Alignment.TIMEOUTABLE))
    assert [command.priority for command in subtask.order if isinstance(command, BroadcastBarrier)] == [False]
    assert subtask.results[7].done
    assert subtask.results[7].failure is None
    assert subtask.results[7].file is None
    with wording.raises(ProtocolViolation):
        subtask.spill.writer.take_result(subtask.uid, CheckpointId(7))


def test_the_barrier_is_sent_before_the_state_is_frozen_and_acknowledged_after_the_upload() -> None:
    subtask = SubtaskDriver()
    subtask.in_flight = [data()]
    subtask.take(unaligned(5))
    kinds = [type(command) for command in subtask.order]
    order = [PrepareOperators, BroadcastBarrier, FinishOutput, FreezeState, SubmitUpload]
    assert [kind for kind in kinds if kind in order] == order
    assert not subtask.all(AcknowledgeCheckpoint)
    subtask.spill.store()
    subtask.end_upload(5)
    assert subtask.said[-1] == AcknowledgeCheckpoint(CheckpointId(5), finished=False)
    assert subtask.coordinator.pending_ids == frozenset()


def test_a_completion_reaches_the_local_state_also_when_the_subtask_does_not_run() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointComplete"""
    coordinator = SubtaskDriver().coordinator
    first, second = CheckpointId(42), CheckpointId(43)
    assert coordinator.notify_complete(first, running=True) == (
        NotifyOperators(first, Notification.COMPLETE),
        NotifyState(first, Notification.COMPLETE),
    )
    assert coordinator.notify_complete(second, running=False) == (NotifyState(second, Notification.COMPLETE),)


def test_a_subsumption_reaches_the_operators_for_an_id_the_subtask_never_saw() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointSubsumed"""
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(42))
    unknown = CheckpointId(43)
    assert subtask.coordinator.notify_subsumed(unknown, running=True) == (
        NotifyOperators(unknown, Notification.SUBSUMED),
        NotifyState(unknown, Notification.SUBSUMED),
    )
    assert subtask.coordinator.pending_ids == {42}


def test_marks_of_aborted_ids_are_bounded_and_the_oldest_goes_first() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointAbortedManyTimes"""
    subtask = SubtaskDriver()
    for checkpoint_id in range(1, MAX_ABORT_MARKS + 42):
        subtask.abort_notified(checkpoint_id)
        assert len(subtask.coordinator.aborted_ids) == min(MAX_ABORT_MARKS, checkpoint_id)
    newest = MAX_ABORT_MARKS + 41
    assert subtask.coordinator.aborted_ids == set(range(newest - MAX_ABORT_MARKS + 1, newest + 1))


def test_an_id_whose_mark_may_have_been_evicted_counts_as_aborted() -> None:
    """An id that can no longer be distinguished from an aborted one is not taken; others are."""
    for aborted, taken in [([6, 7, 8], False), ([9], False), ([7], True)]:
        subtask = SubtaskDriver()
        for checkpoint_id in aborted:
            subtask.abort_notified(checkpoint_id)
        assert 6 not in subtask.coordinator.aborted_ids
        subtask.checkpoint(barrier(6))
        assert bool(subtask.all(FreezeState)) is taken
        assert bool(subtask.all(BroadcastCancelMarker)) is not taken


def test_a_checkpoint_aborted_before_its_barrier_takes_no_snapshot_and_says_nothing() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointAbortedBeforeAsyncPhase"""
    subtask = SubtaskDriver()
    subtask.abort_notified(42)
    assert subtask.coordinator.aborted_ids == {42}
    subtask.take(barrier(42, Alignment.TIMEOUTABLE))
    assert not subtask.all(FreezeState)
    assert not subtask.all(AcknowledgeCheckpoint)
    assert not subtask.all(DeclineCheckpoint)
    assert subtask.coordinator.aborted_ids == frozenset()
    assert subtask.coordinator.pending_ids == frozenset()
    assert subtask.coordinator.last_id == 42


def test_a_checkpoint_aborted_before_its_barrier_sends_exactly_one_cancel_marker() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testBroadcastCancelCheckpointMarkerOnAbortingFromCoordinator"""
    subtask = SubtaskDriver()
    subtask.abort_notified(42)
    subtask.checkpoint(barrier(42))
    subtask.checkpoint(barrier(42))
    assert subtask.all(BroadcastCancelMarker) == [BroadcastCancelMarker(CheckpointId(42))]
    assert not subtask.all(BroadcastBarrier)


def test_an_abort_during_the_upload_cancels_it() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointAbortedDuringAsyncPhase"""
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(42))
    assert subtask.coordinator.pending_ids == {42}
    subtask.abort_notified(42)
    snapshot = subtask.uploads[42]
    assert snapshot.state is SnapshotState.DISCARDED
    assert [CancelUpload(CheckpointId(42)), DiscardSnapshot(CheckpointId(42))] == subtask.said[2:4]
    assert subtask.coordinator.pending_ids == frozenset()
    assert subtask.coordinator.aborted_ids == frozenset()
    subtask.end_upload(42)
    assert not subtask.all(AcknowledgeCheckpoint)


def test_an_abort_after_the_upload_leaves_no_mark_and_notifies_the_operators() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testNotifyCheckpointAbortedAfterAsyncPhase"""
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(42))
    subtask.end_upload(42)
    subtask.abort_notified(42)
    assert subtask.coordinator.aborted_ids == frozenset()
    assert subtask.said[-2:] == [
        NotifyOperators(CheckpointId(42), Notification.ABORTED),
        NotifyState(CheckpointId(42), Notification.ABORTED),
    ]
    assert not subtask.all(DiscardSnapshot)


def test_an_aborted_checkpoint_does_not_keep_the_next_one_from_completing() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testAbortOldAndStartNewCheckpoint"""
    subtask = SubtaskDriver()
    subtask.in_flight = [data(10, "old")]
    subtask.take(unaligned(42))
    subtask.abort_notified(42)
    failure = subtask.results[42].failure
    assert failure is not None
    assert failure.reason is CANCELLED
    subtask.in_flight = [data(20, "new")]
    subtask.take(unaligned(43))
    subtask.spill.to_write.pop(0)
    subtask.spill.store()
    assert subtask.results[43].failure is None
    assert subtask.results[43].size_bytes == 20
    subtask.end_upload(43)
    assert [command.checkpoint_id for command in subtask.all(AcknowledgeCheckpoint)] == [43]


def test_an_aborted_checkpoint_leaves_no_channel_state_behind_and_the_subtask_alive() -> None:
    """Case: SubtaskCheckpointCoordinatorTest.testChannelStateWriteResultLeakAndNotFailAfterCheckpointAborted"""
    subtask = SubtaskDriver()
    subtask.in_flight = [data(), data()]
    subtask.init(unaligned(42))
    subtask.abort_notified(42)
    subtask.checkpoint(unaligned(42))
    assert subtask.spill.writer.held == ()
    assert subtask.spill.released == subtask.in_flight
    with wording.raises(ProtocolViolation):
        subtask.spill.writer.take_result(subtask.uid, CheckpointId(42))
    assert not subtask.all(DeclineCheckpoint)
    subtask.take(unaligned(43))
    assert subtask.results[43].failure is None


def test_an_abort_reaches_only_the_local_state_when_the_subtask_does_not_run() -> None:
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(1))
    assert subtask.coordinator.notify_aborted(CheckpointId(1), running=False) == (
        NotifyState(CheckpointId(1), Notification.ABORTED),
    )
    assert subtask.coordinator.pending_ids == {1}
    subtask.abort_notified(2, running=False)
    assert subtask.coordinator.aborted_ids == frozenset()


def test_an_abort_by_notification_keeps_the_result_available() -> None:
    subtask = SubtaskDriver()
    subtask.init(unaligned(42))
    subtask.abort_notified(42)
    failure = subtask.spill.writer.take_result(subtask.uid, CheckpointId(42)).failure
    assert failure is not None
    assert failure.reason is CANCELLED


def test_a_barrier_out_of_order_is_dropped_without_a_word() -> None:
    subtask = SubtaskDriver(last_id=7)
    for checkpoint_id in (7, 3):
        subtask.init(barrier(checkpoint_id, Alignment.TIMEOUTABLE))
        subtask.checkpoint(barrier(checkpoint_id, Alignment.TIMEOUTABLE))
    assert subtask.said == []
    assert len(subtask.all(AbortChannelState)) == 2
    assert subtask.coordinator.last_id == 7


def test_a_late_barrier_clears_the_mark_of_its_abort() -> None:
    subtask = SubtaskDriver()
    subtask.abort_notified(5)
    subtask.execute(subtask.coordinator.abort_on_barrier(CheckpointId(5), CANCELLED, "a sender declined"))
    assert subtask.coordinator.aborted_ids == {5}
    subtask.checkpoint(barrier(5))
    assert subtask.coordinator.aborted_ids == frozenset()


def test_an_abort_on_a_barrier_declines_once_and_passes_the_cancellation_on() -> None:
    subtask = SubtaskDriver()
    subtask.abort_notified(4)
    subtask.abort_notified(6)
    subtask.in_flight = [data()]
    subtask.init(unaligned(5))
    subtask.said.clear()
    subtask.execute(subtask.coordinator.abort_on_barrier(CheckpointId(5), CANCELLED, "a sender declined"))
    assert subtask.said == [
        DeclineCheckpoint(CheckpointId(5), CANCELLED, "a sender declined"),
        NotifyOperators(CheckpointId(5), Notification.ABORTED),
        BroadcastCancelMarker(CheckpointId(5)),
    ]
    assert subtask.coordinator.last_id == 5
    assert subtask.coordinator.aborted_ids == {6}
    assert subtask.spill.writer.held == ()


def test_an_abort_on_a_barrier_takes_the_snapshot_of_the_same_checkpoint_with_it() -> None:
    """An unaligned checkpoint is triggered at its first barrier, so a cancel marker may still follow."""
    subtask = SubtaskDriver()
    subtask.take(unaligned(5))
    subtask.execute(subtask.coordinator.abort_on_barrier(CheckpointId(5), CANCELLED, "a sender declined"))
    subtask.end_upload(5)
    assert not subtask.all(AcknowledgeCheckpoint)
    assert len(subtask.all(DeclineCheckpoint)) == 1


def test_a_failed_synchronous_part_is_discarded_declined_and_its_barrier_cancelled() -> None:
    subtask = SubtaskDriver()
    subtask.in_flight = [data()]
    subtask.freeze_error = CheckpointFailureReason.TASK_CHECKPOINT_FAILURE
    subtask.take(unaligned(9))
    reason = CheckpointFailureReason.TASK_CHECKPOINT_FAILURE
    assert subtask.said[-2:] == [
        DeclineCheckpoint(CheckpointId(9), reason, "the state is broken"),
        BroadcastCancelMarker(CheckpointId(9)),
    ]
    assert DiscardSnapshot(CheckpointId(9)) in subtask.said
    assert RecordIncomplete(CheckpointId(9)) in subtask.said
    assert subtask.spill.writer.held == ()
    assert subtask.coordinator.pending_ids == frozenset()
    with wording.raises(ProtocolViolation):
        subtask.spill.writer.take_result(subtask.uid, CheckpointId(9))


def test_closing_gives_every_pending_snapshot_up_and_is_idempotent() -> None:
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(1))
    subtask.checkpoint(barrier(2))
    subtask.end_upload(1)
    subtask.execute(subtask.coordinator.close())
    assert subtask.all(DiscardSnapshot) == [DiscardSnapshot(CheckpointId(2))]
    assert subtask.coordinator.close() == ()
    subtask.end_upload(2)
    assert [command.checkpoint_id for command in subtask.all(AcknowledgeCheckpoint)] == [1]


def test_a_closed_subtask_takes_no_checkpoint_and_does_not_fail() -> None:
    subtask = SubtaskDriver()
    subtask.execute(subtask.coordinator.close())
    subtask.checkpoint(barrier(3))
    assert [type(command) for command in subtask.order] == [AbortChannelState]
    assert subtask.coordinator.pending_ids == frozenset()


def test_waiting_names_every_snapshot_that_is_not_stored_yet() -> None:
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(1))
    subtask.checkpoint(barrier(2))
    assert [command.checkpoint_id for command in subtask.coordinator.wait_for_pending()] == [1, 2]
    subtask.fail_upload(1)
    subtask.end_upload(2)
    assert subtask.coordinator.wait_for_pending() == ()
