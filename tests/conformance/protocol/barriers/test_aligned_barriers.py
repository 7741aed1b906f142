"""Aligned checkpoints: each channel waits at its barrier until all barriers have arrived."""

from __future__ import annotations

import pytest

from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_states import AlignmentState
from milepost_testkit.tasks.input_gate import Cancel, Data, End, InputGate, Payload, barrier

SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


def _gate(channels: int) -> InputGate:
    return InputGate(channels, alternating=False)


def _checkpoint(gate: InputGate, checkpoint_id: int, *channels: int) -> None:
    for channel in channels:
        gate.send(channel, barrier(checkpoint_id))


@pytest.mark.parametrize("channels", [1, 4])
def test_data_without_barriers_passes_in_order_and_requests_nothing(channels: int) -> None:
    """Case: AlignedCheckpointsTest.testSingleChannelNoBarriers
    Case: AlignedCheckpointsTest.testMultiChannelNoBarriers
    Case: CheckpointBarrierTrackerTest.testSingleChannelNoBarriers
    Case: CheckpointBarrierTrackerTest.testMultiChannelNoBarriers
    """
    gate = _gate(channels)
    sent = [(number % channels, Data(str(number))) for number in (2, 6, 0, 1, 4, 3, 5)]
    for channel, data in sent:
        gate.send(channel, data)
    for channel in range(channels):
        gate.send(channel, End())
    assert gate.output == [data for _, data in sent]
    assert gate.commands == []
    assert gate.handler.alignment_times.duration_ms == 0
    assert gate.handler.open_channels == frozenset()


def test_one_channel_triggers_at_each_barrier() -> None:
    """Case: AlignedCheckpointsTest.testSingleChannelWithBarriers
    Case: CheckpointBarrierTrackerTest.testSingleChannelWithBarriers
    """
    gate = _gate(1)
    for checkpoint_id in range(1, 7):
        gate.send(0, Data(f"before {checkpoint_id}"), barrier(checkpoint_id))
        assert gate.triggered_ids == list(range(1, checkpoint_id + 1))
        assert gate.blocked == set()
    gate.send(0, Data("last"), End())
    assert [data.name for data in gate.output] == [*(f"before {number}" for number in range(1, 7)), "last"]
    assert gate.aborted == []


def test_ids_may_leave_gaps() -> None:
    """Case: CheckpointBarrierTrackerTest.testSingleChannelWithSkippedBarriers"""
    gate = _gate(1)
    for checkpoint_id in (1, 3, 4, 6, 7, 10):
        gate.send(0, Data("x"), barrier(checkpoint_id))
    assert gate.triggered_ids == [1, 3, 4, 6, 7, 10]
    assert gate.aborted == []


def test_several_channels_trigger_at_the_last_barrier_and_hold_back_what_follows_the_others() -> None:
    """Case: AlignedCheckpointsTest.testMultiChannelWithBarriers
    Case: CheckpointBarrierTrackerTest.testMultiChannelWithBarriers
    """
    gate = _gate(3)
    gate.send(0, Data("0a"))
    gate.send(1, barrier(1))
    gate.send(2, barrier(1), Data("2, after the barrier"))
    gate.send(0, Data("0b"))
    assert gate.blocked == {1, 2} == gate.handler.blocked_channels
    assert [data.name for data in gate.output] == ["0a", "0b"]
    assert gate.triggered_ids == []
    gate.send(0, barrier(1))
    assert gate.triggered_ids == [1]
    assert gate.blocked == set()
    assert [data.name for data in gate.output] == ["0a", "0b", "2, after the barrier"]

    _checkpoint(gate, 2, 0, 1, 2)
    gate.send(2, Data("2b"), barrier(3))
    gate.send(0, Data("0c"), barrier(3))
    gate.send(1, barrier(3))
    _checkpoint(gate, 4, 1, 2, 0)
    gate.send(0, Data("0d"), End())
    gate.send(1, End())
    gate.send(2, End())
    assert gate.triggered_ids == [1, 2, 3, 4]
    assert [item.alignment for item in gate.triggered] == [barrier(1).alignment] * 4
    assert gate.aborted == []


def test_a_newer_barrier_gives_the_pending_checkpoint_up_and_frees_its_channels() -> None:
    """Case: AlignedCheckpointsTest.testMultiChannelJumpingOverCheckpoint"""
    gate = _gate(3)
    _checkpoint(gate, 1, 1, 2, 0)
    gate.send(1, barrier(2))
    gate.send(0, barrier(2))
    assert gate.blocked == {0, 1}
    gate.send(2, barrier(3))
    assert gate.handler.current_checkpoint_id == 3
    assert gate.blocked == {2}
    gate.send(0, barrier(3))
    assert gate.blocked == {0, 2}
    gate.send(1, barrier(4))
    assert gate.handler.current_checkpoint_id == 4
    assert gate.blocked == {1}
    gate.send(0, End())
    gate.send(2, Data("2"), End())
    assert gate.blocked == set()
    assert gate.triggered_ids == [1, 4]
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(2, SUBSUMED), (3, SUBSUMED)]


def test_a_skipped_checkpoint_is_never_triggered() -> None:
    """Case: CheckpointBarrierTrackerTest.testMultiChannelSkippingCheckpoints"""
    gate = _gate(3)
    _checkpoint(gate, 1, 1, 2, 0)
    _checkpoint(gate, 2, 0, 1, 2)
    gate.send(2, barrier(3))
    _checkpoint(gate, 4, 0, 1, 2)
    assert gate.triggered_ids == [1, 2, 4]
    assert gate.aborted_ids == [3]


@pytest.mark.parametrize("alternating", [False, True])
def test_alignment_lasts_from_the_first_barrier_to_the_last(alternating: bool) -> None:
    """Case: AlignedCheckpointsTest.testMetrics
    Case: CheckpointBarrierTrackerTest.testMetrics
    """
    gate = InputGate(3, alternating=alternating)
    created_ms = gate.now_ms
    gate.pass_time(10)
    for channel in range(3):
        gate.send(channel, Data("before"))
    gate.send(1, barrier(1, created_ms))
    assert gate.handler.alignment_times.started_ms == gate.now_ms
    gate.send(0, Data("during"))
    gate.send(2, Data("during"))
    gate.send(0, barrier(1, created_ms))
    gate.send(2, Data("during"))
    gate.pass_time(10)
    gate.send(2, barrier(1, created_ms))
    for channel in range(3):
        gate.send(channel, Data("after"), End())
    times = gate.handler.alignment_times
    assert (times.started_ms, times.duration_ms, times.start_delay_ms) == (None, 10, 10)
    assert gate.read_while_aligning == 3 * 100
    assert gate.handler.current_checkpoint_id == 1


def test_one_channel_aligns_in_no_time() -> None:
    """Case: CheckpointBarrierTrackerTest.testSingleChannelMetrics"""
    gate = _gate(1)
    created_ms = gate.now_ms
    gate.pass_time(10)
    gate.send(0, Data("before"), barrier(1, created_ms), Data("after"), End())
    times = gate.handler.alignment_times
    assert (times.started_ms, times.duration_ms, times.start_delay_ms) == (None, 0, 10)
    assert gate.read_while_aligning == 0


def test_cancel_markers_of_checkpoints_without_barriers_leave_no_channel_blocked() -> None:
    """Case: AlignedCheckpointsTest.testMissingCancellationBarriers"""
    gate = _gate(2)
    gate.send(0, barrier(1))
    gate.send(1, Cancel(3))
    gate.send(0, Cancel(2), Cancel(3), Data("0"))
    assert gate.blocked == set()
    assert [data.name for data in gate.output] == ["0"]
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(1, SUBSUMED), (3, CANCELLED)]
    assert gate.handler.current_checkpoint_id == 3


def test_interleaved_cancel_markers_give_each_checkpoint_up_once() -> None:
    """Case: CheckpointBarrierTrackerTest.testInterleavedCancellationBarriers"""
    gate = _gate(3)
    gate.send(0, barrier(1), Cancel(2))
    gate.send(1, Cancel(1), Cancel(2))
    gate.send(2, Cancel(1), Cancel(2))
    gate.send(0, Data("0"))
    assert gate.aborted_ids == [1, 2]
    assert gate.triggered_ids == []
    assert gate.blocked == set()


def test_ended_channels_are_not_awaited() -> None:
    """Case: AlignedCheckpointsTest.testStartAlignmentWithClosedChannels"""
    gate = _gate(4)
    gate.send(2, End())
    gate.send(1, End())
    gate.send(0, Data("0"))
    _checkpoint(gate, 2, 3, 0)
    assert gate.handler.current_checkpoint_id == 2
    assert gate.blocked == set()
    _checkpoint(gate, 3, 0, 3)
    gate.send(0, Data("0"), End())
    gate.send(3, barrier(4))
    assert gate.blocked == set()
    gate.send(3, End())
    assert gate.triggered_ids == [2, 3, 4]
    assert gate.aborted == []


def test_the_end_of_a_channel_completes_the_checkpoint_that_waits_for_it() -> None:
    """Case: AlignedCheckpointsTest.testEndOfStreamWhileCheckpoint"""
    gate = _gate(3)
    _checkpoint(gate, 1, 0, 1, 2)
    gate.send(2, barrier(2))
    gate.send(0, barrier(2))
    gate.send(1, Data("1"))
    assert gate.triggered_ids == [1]
    gate.send(1, End())
    assert gate.triggered_ids == [1, 2]
    assert gate.blocked == set()
    gate.send(2, End())
    gate.send(0, Data("0"), End())
    assert gate.handler.all_received(gate.handler.current_checkpoint_id)
    assert gate.handler.state is AlignmentState.WAITING_FOR_FIRST


def test_cancel_markers_on_one_channel_abort_checkpoints_that_have_not_started() -> None:
    """Case: AlignedCheckpointsTest.testSingleChannelAbortCheckpoint
    Case: CheckpointBarrierTrackerTest.testSingleChannelAbortCheckpoint
    """
    gate = _gate(1)
    gate.send(0, Data("a"), barrier(1), Data("b"), barrier(2), Data("c"), Cancel(4))
    assert gate.handler.current_checkpoint_id == 4
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(4, CANCELLED)]
    assert gate.handler.alignment_times.duration_ms == 0
    gate.send(0, barrier(5))
    assert gate.handler.current_checkpoint_id == 5
    gate.send(0, Data("d"), Cancel(6), Data("e"))
    assert gate.handler.current_checkpoint_id == 6
    assert gate.triggered_ids == [1, 2, 5]
    assert gate.aborted_ids == [4, 6]
    assert gate.blocked == set()


def test_cancel_markers_among_several_channels() -> None:
    """Case: AlignedCheckpointsTest.testMultiChannelAbortCheckpoint
    Case: CheckpointBarrierTrackerTest.testMultiChannelAbortCheckpoint
    """
    gate = _gate(3)
    _checkpoint(gate, 1, 1, 2, 0)
    gate.send(0, barrier(2))
    gate.send(2, barrier(2))
    assert gate.blocked == {0, 2}
    gate.send(1, Cancel(2))
    assert gate.blocked == set()
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(2, CANCELLED)]
    _checkpoint(gate, 3, 1, 2, 0)
    gate.send(1, Cancel(4))
    assert gate.handler.alignment_times.duration_ms == 0
    _checkpoint(gate, 4, 2, 0)
    assert gate.blocked == set()
    _checkpoint(gate, 5, 2, 1, 0)
    gate.send(1, Cancel(6))
    gate.send(2, Cancel(6))
    gate.send(0, barrier(6), Data("0"))
    assert gate.blocked == set()
    assert gate.triggered_ids == [1, 3, 5]
    assert gate.aborted_ids == [2, 4, 6]


def test_a_late_barrier_of_a_cancelled_checkpoint_is_dropped_and_its_channel_free() -> None:
    """Case: AlignedCheckpointsTest.testAbortOnCanceledBarriers"""
    gate = _gate(3)
    gate.send(1, barrier(1))
    gate.send(0, Cancel(1))
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(1, CANCELLED)]
    assert gate.blocked == set()
    gate.send(1, barrier(2))
    gate.blocked.add(2)  # a channel stops at its own aligned barrier
    gate.deliver(2, barrier(1))
    assert gate.blocked == {1}
    gate.send(0, barrier(2))
    gate.send(2, barrier(2))
    assert gate.triggered_ids == [2]
    assert gate.aborted_ids == [1]
    assert gate.blocked == set()


def test_the_cancel_marker_of_a_subsumed_checkpoint_is_ignored() -> None:
    """Case: AlignedCheckpointsTest.testIgnoreCancelBarrierIfCheckpointSubsumed"""
    gate = _gate(3)
    gate.send(1, barrier(3))
    gate.send(0, barrier(3))
    gate.send(2, barrier(5))
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(3, SUBSUMED)]
    assert gate.blocked == {2}
    gate.send(0, Cancel(3), Data("0"), barrier(5))
    gate.send(1, barrier(5))
    assert gate.triggered_ids == [5]
    assert gate.aborted_ids == [3]


def test_the_end_of_the_last_channel_triggers() -> None:
    """Case: AlignedCheckpointsTest.testTriggerCheckpointsWithEndOfPartition"""
    gate = _gate(3)
    _checkpoint(gate, 1, 0, 1)
    gate.send(2, End())
    assert gate.triggered_ids == [1]
    assert gate.aborted == []
    assert not gate.handler.pending


def test_barrier_and_end_of_one_channel_count_once() -> None:
    """Case: AlignedCheckpointsTest.testDeduplicateChannelsWithBothBarrierAndEndOfPartition
    Case: CheckpointBarrierTrackerTest.testDeduplicateChannelsWithBothBarrierAndEndOfPartition
    """
    gate = _gate(3)
    gate.deliver(0, barrier(2))
    gate.deliver(1, barrier(2), End())
    assert (gate.triggered_ids, gate.aborted_ids) == ([], [])
    gate.deliver(2, barrier(2))
    assert gate.triggered_ids == [2]
    assert not gate.handler.pending


def test_a_channel_that_ended_before_counts_for_no_later_checkpoint() -> None:
    """Case: AlignedCheckpointsTest.testTriggerCheckpointsAfterReceivedEndOfPartition"""
    gate = _gate(3)
    gate.send(2, End())
    _checkpoint(gate, 6, 0, 1)
    gate.send(1, End())
    gate.send(0, barrier(7))
    assert gate.triggered_ids == [6, 7]
    assert gate.aborted == []
    assert not gate.handler.pending


def test_a_channel_that_ended_before_counts_for_none_also_when_ids_are_skipped() -> None:
    """A handler works on one checkpoint at a time, so it aborts the skipped one and reports that.

    Case: CheckpointBarrierTrackerTest.testTriggerCheckpointsAfterReceivedEndOfPartition
    """
    gate = _gate(3)
    gate.send(2, End())
    gate.send(0, barrier(5), barrier(6))
    gate.send(1, barrier(6), End())
    gate.send(0, barrier(7))
    assert gate.triggered_ids == [6, 7]
    assert [(item.checkpoint_id, item.reason) for item in gate.aborted] == [(5, SUBSUMED)]


@pytest.mark.parametrize("alternating", [False, True])
def test_a_channel_that_ends_after_its_barrier_leaves_the_checkpoint_to_the_others(alternating: bool) -> None:
    """Case: CheckpointBarrierTrackerTest.testNoFastPathWithChannelFinishedDuringCheckpoints"""
    gate = InputGate(2, alternating=alternating)
    gate.deliver(0, barrier(1), End())
    assert gate.handler.pending
    gate.deliver(1, barrier(1))
    assert gate.triggered_ids == [1]
    assert not gate.handler.pending


@pytest.mark.parametrize("alternating", [False, True])
def test_a_checkpoint_is_cancelled_also_when_one_channel_has_ended_in_it(alternating: bool) -> None:
    """Case: CheckpointBarrierTrackerTest.testNoFastPathWithChannelFinishedDuringCheckpointsCancel"""
    gate = InputGate(2, alternating=alternating)
    gate.deliver(0, barrier(1), End())
    gate.deliver(1, Cancel(1))
    assert gate.aborted_ids == [1]
    assert not gate.handler.pending


def test_the_end_of_a_channel_counts_for_the_newest_checkpoint_only() -> None:
    """Case: CheckpointBarrierTrackerTest.testCompleteAndRemoveAbortedCheckpointWithEndOfPartition"""
    gate = _gate(3)
    gate.send(0, Cancel(4))
    gate.send(1, barrier(4), barrier(5))
    gate.send(2, End())
    assert gate.aborted_ids == [4]
    assert gate.triggered_ids == []
    assert (gate.handler.current_checkpoint_id, gate.handler.pending) == (5, True)
    assert gate.handler.open_channels == {0, 1}


def test_checkpoints_can_be_aborted_after_channels_have_ended() -> None:
    """Case: CheckpointBarrierTrackerTest.testAbortCheckpointsAfterEndOfPartitionReceived"""
    events: list[tuple[int, Payload]] = [
        (2, End()), (0, barrier(5)), (0, barrier(6)), (1, Cancel(6)), (1, End()), (0, Cancel(7)),
    ]  # fmt: skip
    gate = _gate(3)
    for channel, payload in events:
        gate.deliver(channel, payload)
    assert gate.aborted_ids == [5, 6, 7]
    assert gate.triggered_ids == []


@pytest.mark.parametrize("late", [Cancel(1), barrier(1)], ids=["cancel marker", "barrier"])
def test_late_barriers_of_an_older_checkpoint_do_not_affect_the_newer_alignment(late: Payload) -> None:
    """Case: CheckpointBarrierTrackerTest.testNextFirstCheckpointBarrierOvertakesCancellationBarrier
    Case: CheckpointBarrierTrackerTest.testTwoLastBarriersOneByOne
    """
    gate = _gate(2)
    events: list[tuple[int, Payload]] = [(1, barrier(1)), (1, barrier(2)), (0, late), (0, barrier(2))]
    for channel, payload in events:
        gate.deliver(channel, payload)
        gate.pass_time(1_000)
    assert gate.triggered_ids == [2]
    assert gate.aborted_ids == [1]
    assert gate.handler.alignment_times.duration_ms == 2_000
