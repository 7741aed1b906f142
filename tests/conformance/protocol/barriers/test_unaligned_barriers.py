"""Unaligned checkpoints: snapshot at the first barrier; channel state is everything before the others."""

from __future__ import annotations

import pytest

from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import AbortCheckpoint, Command, StopRecording, TriggerCheckpoint
from milepost.protocol.subtask.barrier_states import AlignmentState
from milepost_testkit.tasks.input_gate import Cancel, Data, End, InputGate, unaligned

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


def _names(data: list[Data]) -> list[str]:
    """Names in order; the list is emptied for the next checkpoint."""
    names = [item.name for item in data]
    data.clear()
    return names


@pytest.mark.parametrize("channels", [1, 4])
def test_data_without_barriers_passes_and_none_is_channel_state(channels: int) -> None:
    """Case: UnalignedCheckpointsTest.testSingleChannelNoBarriers
    Case: UnalignedCheckpointsTest.testMultiChannelNoBarriers
    """
    gate = InputGate(channels)
    for number in (2, 6, 0, 1, 4, 3, 5):
        gate.send(number % channels, Data(str(number)))
    for channel in range(channels):
        gate.send(channel, End())
    assert _names(gate.output) == ["2", "6", "0", "1", "4", "3", "5"]
    assert gate.recorded == []
    assert gate.commands == []


def test_one_channel_has_nothing_in_flight() -> None:
    """Case: UnalignedCheckpointsTest.testSingleChannelWithBarriers"""
    gate = InputGate(1)
    for checkpoint_id in range(1, 7):
        gate.send(0, Data("x"), unaligned(checkpoint_id))
    gate.send(0, Data("x"), End())
    assert gate.triggered_ids == [1, 2, 3, 4, 5, 6]
    assert gate.recorded == []
    assert len(gate.output) == 7


def test_buffers_before_a_barrier_become_channel_state_and_are_still_processed() -> None:
    """Case: UnalignedCheckpointsTest.testMultiChannelWithBarriers"""
    gate = InputGate(3)
    gate.send(0, Data("0a"))
    gate.send(2, Data("2a"))
    gate.send(1, unaligned(1))
    assert gate.triggered_ids == [1]
    gate.send(2, unaligned(1), Data("2b"))
    gate.send(1, Data("1a"))
    gate.send(0, Data("0b"), unaligned(1))
    assert _names(gate.recorded) == ["0b"]
    assert _names(gate.output) == ["0a", "2a", "2b", "1a", "0b"]

    for channel in (0, 1, 2):
        gate.send(channel, Data("x"))
    for channel in (0, 1, 2):
        gate.send(channel, unaligned(2))
    assert _names(gate.recorded) == []

    gate.send(2, unaligned(3), Data("after"), Data("after"))
    gate.send(0, unaligned(3))
    gate.send(1, unaligned(3))
    assert _names(gate.recorded) == []

    for channel in (1, 2, 0):
        gate.send(channel, unaligned(4))
    assert _names(gate.recorded) == []

    gate.send(1, unaligned(5))
    gate.send(2, Data("2c"))
    gate.send(0, Data("0c"))
    gate.send(2, Data("2d"))
    gate.send(1, Data("after"))
    gate.send(2, unaligned(5))
    gate.send(1, Data("after"))
    gate.send(0, Data("0d"))
    gate.send(2, Data("after"))
    gate.send(0, unaligned(5))
    assert _names(gate.recorded) == ["2c", "0c", "2d", "0d"]

    for channel in (0, 1, 2):
        gate.send(channel, Data("x"), End())
    assert _names(gate.recorded) == []
    assert gate.triggered_ids == [1, 2, 3, 4, 5]
    assert gate.initialised == gate.triggered
    assert gate.aborted == []


def test_data_that_a_barrier_has_overtaken_on_its_own_channel_is_channel_state() -> None:
    """The point of overtaking: the snapshot is taken without it, so it must be stored."""
    gate = InputGate(2)
    gate.put(0, Data("overtaken 1"), Data("overtaken 2"), unaligned(1))
    gate.poll()
    assert gate.triggered_ids == [1]
    assert _names(gate.recorded) == ["overtaken 1", "overtaken 2"]
    gate.drain()
    assert _names(gate.recorded) == []


def test_an_unaligned_alignment_lasts_until_the_last_barrier() -> None:
    """Case: UnalignedCheckpointsTest.testMetrics"""
    gate = InputGate(3)
    created_ms = gate.now_ms
    gate.pass_time(10)
    for channel in range(3):
        gate.send(channel, Data("before"))
    gate.send(1, unaligned(1, created_ms))
    for channel in range(3):
        gate.send(channel, Data("during"))
    gate.send(0, unaligned(1, created_ms))
    for channel in range(3):
        gate.send(channel, Data("during"))
    gate.pass_time(10)
    gate.send(2, unaligned(1, created_ms))
    for channel in range(3):
        gate.send(channel, Data("after"), End())
    times = gate.handler.alignment_times
    assert (times.started_ms, times.duration_ms, times.start_delay_ms) == (None, 10, 10)
    assert gate.read_while_aligning == 6 * 100
    assert gate.handler.current_checkpoint_id == 1


@pytest.mark.parametrize("ends", [(1, 2, 0), (2, 1, 0)])
def test_trailing_data_of_an_aborted_checkpoint_is_no_channel_state(ends: tuple[int, ...]) -> None:
    """Case: UnalignedCheckpointsTest.testMultiChannelTrailingInflightData
    Case: UnalignedCheckpointsTest.testEarlyCleanup
    """
    gate = InputGate(3)
    for channel in (1, 2, 0):
        gate.send(channel, Data("x"))
    for channel in (1, 2, 0):
        gate.send(channel, unaligned(1))
    assert gate.recorded == []
    gate.send(1, unaligned(2), Data("after"))
    assert gate.triggered_ids == [1, 2]
    gate.send(ends[0], Cancel(2))
    assert gate.aborted_ids == [2]
    gate.recorded.clear()
    for channel in ends[1:]:
        gate.send(channel, Data("trailing"), unaligned(2), Data("trailing"), End())
    assert gate.recorded == []
    assert gate.aborted_ids == [2]
    assert gate.triggered_ids == [1, 2]


def test_cancel_markers_of_checkpoints_without_barriers() -> None:
    """Case: UnalignedCheckpointsTest.testMissingCancellationBarriers"""
    gate = InputGate(2)
    gate.send(0, unaligned(1), Cancel(2), Cancel(3))
    gate.send(1, Cancel(3))
    gate.send(0, Data("0"), End())
    gate.send(1, End())
    assert gate.triggered_ids == [1]
    assert gate.aborted_ids == [1, 2, 3]
    assert gate.recorded == []
    assert not gate.handler.recording_channels


def test_ended_channels_are_neither_awaited_nor_recorded() -> None:
    """Case: UnalignedCheckpointsTest.testStartAlignmentWithClosedChannels"""
    gate = InputGate(4)
    gate.send(2, End())
    gate.send(1, End())
    gate.send(0, Data("0"))
    gate.send(3, unaligned(2))
    assert gate.handler.recording_channels == {0}
    gate.send(0, unaligned(2))
    assert _names(gate.recorded) == []
    gate.send(3, unaligned(3), Data("after"))
    gate.send(0, Data("in flight"), unaligned(3))
    assert _names(gate.recorded) == ["in flight"]
    gate.send(0, unaligned(4))
    gate.send(3, unaligned(4))
    gate.send(0, Data("0"), End())
    assert gate.triggered_ids == [2, 3, 4]
    gate.send(3, Data("3"), unaligned(5), Data("3"), End())
    assert gate.triggered_ids == [2, 3, 4, 5]
    assert _names(gate.recorded) == []


def test_the_end_of_a_channel_ends_its_recording() -> None:
    """Case: UnalignedCheckpointsTest.testEndOfStreamWhileCheckpoint"""
    gate = InputGate(3)
    for channel in (0, 1, 2):
        gate.send(channel, unaligned(1))
    gate.send(2, unaligned(2))
    gate.send(0, unaligned(2), Data("after"))
    gate.send(2, Data("after"))
    gate.send(1, Data("in flight"))
    gate.send(2, End())
    assert gate.handler.pending
    gate.send(1, End())
    gate.send(0, Data("after"), End())
    assert gate.triggered_ids == [1, 2]
    assert _names(gate.recorded) == ["in flight"]
    assert gate.aborted == []
    assert gate.handler.state is AlignmentState.ALTERNATING_WAITING_FOR_FIRST


def test_all_received_is_reported_only_after_the_abort_was_sent() -> None:
    """Who waits for the barriers must know by then that it is over: the abort comes back from the call itself.

    Case: UnalignedCheckpointsTest.testNotifyAbortCheckpointBeforeCancellingAsyncCheckpoint
    """
    gate = InputGate(2)
    gate.send(0, unaligned(1))
    current = gate.handler.current_checkpoint_id
    assert not gate.handler.all_received(current)
    commands = gate.handler.cancel(1, current)
    assert gate.handler.all_received(current)
    detail = "channel 1 carried the cancel marker of checkpoint 1"
    assert commands == (StopRecording(1), AbortCheckpoint(current, CANCELLED, detail))


def test_cancel_markers_on_one_channel_abort_checkpoints_that_have_not_started() -> None:
    """Case: UnalignedCheckpointsTest.testSingleChannelAbortCheckpoint"""
    gate = InputGate(1)
    gate.send(0, Data("a"), unaligned(1), Data("b"), unaligned(2), Cancel(4))
    assert (gate.triggered_ids, gate.aborted_ids) == ([1, 2], [4])
    gate.send(0, unaligned(5), Data("c"), Cancel(6), Data("d"), End())
    assert (gate.triggered_ids, gate.aborted_ids) == ([1, 2, 5], [4, 6])
    assert gate.recorded == []


def test_cancel_markers_among_several_channels() -> None:
    """Case: UnalignedCheckpointsTest.testMultiChannelAbortCheckpoint"""
    gate = InputGate(3)
    for channel in (1, 2, 0):
        gate.send(channel, unaligned(1))
    gate.send(0, unaligned(2))
    gate.send(2, unaligned(2), Data("after"))
    gate.send(1, Cancel(2))
    assert gate.handler.recording_channels == frozenset()
    assert (gate.triggered_ids, gate.aborted_ids) == ([1, 2], [2])
    for channel in (1, 2, 0):
        gate.send(channel, Data("x"), unaligned(3))
    assert _names(gate.recorded) == ["x", "x"]
    gate.send(1, Cancel(4))
    gate.send(2, unaligned(4))
    gate.send(0, Data("x"), unaligned(4))
    assert (gate.triggered_ids, gate.aborted_ids) == ([1, 2, 3], [2, 4])
    for channel in (2, 1, 0):
        gate.send(channel, unaligned(5))
    gate.send(1, Cancel(6))
    gate.send(2, Cancel(6))
    gate.send(0, unaligned(6), Data("x"), End())
    gate.send(1, End())
    gate.send(2, End())
    assert (gate.triggered_ids, gate.aborted_ids) == ([1, 2, 3, 5], [2, 4, 6])
    assert _names(gate.recorded) == []


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_cancel_marker_gives_a_triggered_checkpoint_up(ahead: int) -> None:
    """Case: UnalignedCheckpointsTest.testProcessCancellationBarrierAfterProcessBarrier"""
    gate = InputGate(2)
    gate.deliver(0, unaligned(1))
    assert (gate.handler.pending, gate.handler.current_checkpoint_id) == (True, 1)
    gate.deliver(0, Cancel(1 + ahead))
    assert (gate.handler.pending, gate.handler.current_checkpoint_id) == (False, 1 + ahead)
    assert gate.aborted_ids[-1] == 1 + ahead
    gate.deliver(0, Cancel(2 + ahead))
    assert (gate.handler.pending, gate.handler.current_checkpoint_id) == (False, 2 + ahead)
    assert gate.aborted_ids == list(range(1, 3 + ahead))


def test_a_barrier_after_its_cancel_marker_is_ignored() -> None:
    """Case: UnalignedCheckpointsTest.testProcessCancellationBarrierBeforeProcessAndReceiveBarrier"""
    gate = InputGate(1)
    gate.deliver(0, Cancel(1))
    assert (gate.handler.pending, gate.handler.current_checkpoint_id, gate.aborted_ids) == (False, 1, [1])
    before: list[Command] = list(gate.commands)
    gate.deliver(0, unaligned(1))
    assert gate.commands == before
    assert (gate.handler.pending, gate.handler.current_checkpoint_id, gate.triggered_ids) == (False, 1, [])


def test_the_end_of_the_last_channel_ends_the_checkpoint() -> None:
    """Case: UnalignedCheckpointsTest.testTriggerCheckpointsWithEndOfPartition"""
    gate = InputGate(3)
    gate.send(1, unaligned(1))
    gate.send(0, Data("in flight"), unaligned(1))
    gate.send(1, Data("after"))
    gate.send(2, End())
    assert not gate.handler.pending
    gate.send(0, End())
    gate.send(1, End())
    assert gate.triggered_ids == [1]
    assert gate.aborted == []
    assert _names(gate.recorded) == ["in flight"]


def test_checkpoints_continue_after_channels_have_ended() -> None:
    """Case: UnalignedCheckpointsTest.testTriggerCheckpointsAfterReceivedEndOfPartition"""
    gate = InputGate(3)
    gate.send(0, End())
    gate.send(1, unaligned(3), Data("after"))
    gate.send(2, Data("in flight"))
    gate.send(1, End())
    gate.send(2, unaligned(3))
    assert _names(gate.recorded) == ["in flight"]
    assert gate.triggered_ids == [3]
    gate.send(2, Data("x"), unaligned(4), End())
    assert _names(gate.recorded) == []
    assert gate.triggered_ids == [3, 4]
    assert gate.aborted == []


def test_channel_state_is_opened_before_and_the_snapshot_taken_after_recording_starts() -> None:
    """Between InitInputs and TriggerCheckpoint nothing is read, so the cut is one point of all channels."""
    gate = InputGate(2)
    gate.send(0, unaligned(1))
    names = [type(command).__name__ for command in gate.commands]
    assert names == ["InitInputs", "StartRecording", "StartRecording", "TriggerCheckpoint", "StopRecording"]
    assert TriggerCheckpoint(unaligned(1)) in gate.commands
