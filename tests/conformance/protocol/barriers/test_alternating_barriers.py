"""Aligned checkpoints that become unaligned once their timeout has passed, by the timer or by the next event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier, Prioritise, TriggerCheckpoint
from milepost.protocol.subtask.barrier_states import AlignmentState
from milepost_testkit.tasks.input_gate import (
    Announcement,
    Cancel,
    Data,
    End,
    InputGate,
    Payload,
    barrier,
    timeoutable,
    unaligned,
)

TIMEOUT = 100


def _kinds(gate: InputGate, count: int) -> list[type[Payload]]:
    """Read `count` items and say what they were."""
    return [type(item) for item in (gate.poll() for _ in range(count)) if item is not None]


def _alignments(gate: InputGate) -> list[Alignment]:
    return [item.alignment for item in gate.triggered]


def _two_channels_time_out(gate: InputGate, timeout_ms: int) -> None:
    """Both barriers wait after data, and the timeout passes between their announcements."""
    waiting = timeoutable(1, gate.now_ms, timeout_ms)
    gate.put(0, Data("0a"), Data("0b"), waiting)
    gate.put(1, Data("1a"), waiting)
    assert gate.triggered == []
    assert _kinds(gate, 1) == [Announcement]
    gate.pass_time(timeout_ms * 2)
    assert _kinds(gate, 3) == [Announcement, CheckpointBarrier, CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert [data.name for data in gate.recorded] == ["0a", "0b", "1a"]
    assert _kinds(gate, 4) == [Data, Data, Data]


def test_a_newer_unaligned_barrier_records_the_buffers_of_a_blocked_channel() -> None:
    """Case: AlternatingCheckpointsTest.testChannelResetOnNewBarrier"""
    gate = InputGate(2)
    gate.send(0, barrier(1), Data("to be captured"))
    assert gate.output == []
    gate.send(1, unaligned(2))
    assert [data.name for data in gate.recorded] == ["to be captured"]
    assert gate.blocked == set()
    assert (gate.triggered_ids, gate.aborted_ids) == ([2], [1])


def test_an_unaligned_barrier_from_upstream_triggers_at_once() -> None:
    """Case: AlternatingCheckpointsTest.testSwitchToUnalignedByUpstream"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, 10_000)
    gate.put(0, Data("0"), waiting)
    assert _kinds(gate, 1) == [Announcement]
    assert gate.triggered == []
    gate.deliver(1, waiting.unaligned())
    assert gate.triggered == [unaligned(1, gate.now_ms)]
    assert Prioritise(0, waiting.checkpoint_id, 1) in gate.commands
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert [data.name for data in gate.recorded] == ["0"]
    assert not gate.handler.pending


def test_an_unaligned_checkpoint_triggers_at_its_first_barrier_and_never_blocks() -> None:
    """Case: AlternatingCheckpointsTest.testCheckpointHandling"""
    gate = InputGate(2)
    gate.send(0, unaligned(123))
    assert gate.triggered_ids == [123]
    gate.send(1, unaligned(123))
    assert gate.triggered_ids == [123]
    assert gate.blocked == set()


@pytest.mark.long
def test_aligned_and_unaligned_checkpoints_alternate() -> None:
    """Case: AlternatingCheckpointsTest.testAlternation"""
    gate = InputGate(123)
    for checkpoint_id in range(1, 124):
        for channel in range(123):
            gate.deliver(channel, unaligned(checkpoint_id) if checkpoint_id % 2 else barrier(checkpoint_id))
    assert gate.triggered_ids == list(range(1, 124))
    assert gate.aborted == []


def test_the_checkpoint_after_one_that_timed_out_is_aligned_again() -> None:
    """Case: AlternatingCheckpointsTest.testAlignedAfterTimedOut"""
    gate = InputGate(1)
    gate.put(0, timeoutable(1, gate.now_ms, TIMEOUT))
    assert _kinds(gate, 1) == [Announcement]
    gate.pass_time(TIMEOUT + 1)
    assert _kinds(gate, 1) == [CheckpointBarrier]
    second = timeoutable(2, gate.now_ms, TIMEOUT)
    gate.put(0, second)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    assert gate.triggered == [unaligned(1, 1_000), second]


def test_a_checkpoint_whose_timeout_does_not_pass_stays_aligned() -> None:
    """Case: AlternatingCheckpointsTest.testAlignedNeverTimeoutableCheckpoint"""
    gate = InputGate(2, local=frozenset({0, 1}))
    never = timeoutable(1, gate.now_ms, 2**31)
    gate.send(0, never)
    gate.send(1, Data("1"))
    gate.pass_time(10**6)
    assert gate.triggered == []
    gate.send(1, never)
    assert gate.triggered == [never]
    assert gate.recorded == []


def test_after_a_timeout_announced_barriers_overtake_buffers_which_become_channel_state() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignment"""
    _two_channels_time_out(InputGate(2), 10)


def test_a_timeout_after_the_first_barrier() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentAfterProcessingBarrier"""
    gate = InputGate(3, local=frozenset({2}))
    gate.send(2, timeoutable(1, gate.now_ms, 10_000))
    assert gate.triggered == []
    _two_channels_time_out(gate, 10_000)


def test_a_timeout_between_announcements_and_the_first_barrier() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentOnFirstBarrier"""
    gate = InputGate(2)
    for channel in (0, 1):
        gate.put(channel, timeoutable(1, gate.now_ms, TIMEOUT))
    assert _kinds(gate, 2) == [Announcement, Announcement]
    assert gate.triggered == []
    gate.pass_time(TIMEOUT * 4)
    assert gate.handler.state is AlignmentState.FIRST_UNALIGNED
    assert gate.triggered == []
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]


def test_a_barrier_that_comes_after_its_timeout_triggers_unaligned_at_once() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentBeforeFirstBarrier"""
    gate = InputGate(2, local=frozenset({0, 1}))
    late = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.pass_time(TIMEOUT + 1)
    gate.put(0, late)
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]


def test_the_timeout_counts_from_the_barrier_of_a_channel_without_announcements() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentWhenLocalBarrierFirst"""
    gate = InputGate(3, local=frozenset({0}))
    first = timeoutable(1, gate.now_ms, TIMEOUT)
    for channel in (0, 1, 2):
        gate.put(channel, first)
    assert _kinds(gate, 5) == [Announcement] * 2 + [CheckpointBarrier] * 3
    assert gate.triggered == [first]
    gate.pass_time(TIMEOUT + 1)
    second = timeoutable(2, gate.now_ms, TIMEOUT)
    gate.put(0, second)
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert gate.triggered_ids == [1]
    gate.pass_time(TIMEOUT + 1)
    gate.put(1, second)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    assert gate.triggered_ids == [1, 2]
    assert _alignments(gate)[-1] is Alignment.UNALIGNED


def test_timer_after_late_announcement_of_another_channel_triggers_once() -> None:
    """What follows the barrier of a blocked channel is not channel state.

    Case: AlternatingCheckpointsTest.testActiveTimeoutAfterLocalBarrierPassiveTimeout
    """
    gate = InputGate(2, local=frozenset({0}))
    waiting = timeoutable(1, gate.now_ms, 10)
    gate.put(0, waiting, Data("after the barrier"))
    assert _kinds(gate, 1) == [CheckpointBarrier]
    gate.put(1, Data("in flight"), waiting)
    assert gate.triggered == []
    gate.pass_time(11, fire=False)
    assert _kinds(gate, 1) == [Announcement]
    gate.fire()
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert _kinds(gate, 2) == [Data, Data]
    assert [data.name for data in gate.recorded] == ["in flight"]


def test_a_timeout_of_the_second_checkpoint_between_announcements_and_barrier() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentOnAnnouncementForSecondCheckpoint"""
    gate = InputGate(2)
    for channel in (0, 1):
        gate.put(channel, timeoutable(1, gate.now_ms, TIMEOUT))
    gate.drain()
    assert gate.triggered_ids == [1]
    for channel in (0, 1):
        gate.put(channel, Data("overtaken"), timeoutable(2, gate.now_ms, TIMEOUT))
    assert _kinds(gate, 2) == [Announcement, Announcement]
    assert gate.triggered_ids == [1]
    gate.pass_time(TIMEOUT * 4)
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert gate.triggered_ids == [1, 2]


def test_the_last_barrier_completes_aligned_even_when_it_is_late() -> None:
    """Case: AlternatingCheckpointsTest.testPassiveTimeoutAlignmentOnAnnouncement"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.put(0, waiting)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    gate.pass_time(TIMEOUT * 4, fire=False)
    gate.put(1, waiting)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    assert gate.triggered == [waiting]


def test_the_timer_triggers_while_the_second_barrier_is_missing() -> None:
    """Case: AlternatingCheckpointsTest.testActiveTimeoutAlignmentOnFirstBarrier"""
    gate = InputGate(2)
    gate.send(0, timeoutable(1, gate.now_ms, TIMEOUT))
    gate.pass_time(TIMEOUT + 1)
    assert gate.triggered == [unaligned(1, 1_000)]


def test_every_channel_is_free_after_a_timeout() -> None:
    """Case: AlternatingCheckpointsTest.testAllChannelsUnblockedAfteralignedCheckpointTimeout"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.deliver(0, Announcement(waiting), waiting)
    assert gate.blocked == {0}
    gate.pass_time(TIMEOUT + 1)
    gate.deliver(1, waiting)
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert gate.blocked == set()


def test_a_timer_after_the_last_barrier_changes_nothing() -> None:
    """Case: AlternatingCheckpointsTest.testNoActiveTimeoutAlignmentAfterLastBarrier"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.send(0, waiting)
    gate.send(1, waiting)
    assert gate.timer is None
    gate.pass_time(TIMEOUT + 1)
    assert gate.handler.timeout(waiting.checkpoint_id, gate.now_ms) == ()
    assert gate.triggered == [waiting]


def test_a_timer_after_an_abort_changes_nothing() -> None:
    """Case: AlternatingCheckpointsTest.testNoActiveTimeoutAlignmentAfterAbort"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.send(0, waiting, Cancel(1))
    gate.send(1, Cancel(1))
    assert gate.timer is None
    gate.pass_time(TIMEOUT + 1)
    assert gate.handler.timeout(waiting.checkpoint_id, gate.now_ms) == ()
    assert (gate.triggered, gate.aborted_ids) == ([], [1])


def test_a_timer_after_close_changes_nothing() -> None:
    """Case: AlternatingCheckpointsTest.testNoActiveTimeoutAlignmentAfterClose"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, TIMEOUT)
    gate.send(0, waiting)
    gate.close()
    assert gate.timer is None
    gate.pass_time(TIMEOUT + 1)
    assert gate.handler.timeout(waiting.checkpoint_id, gate.now_ms) == ()
    assert gate.triggered == []
    assert gate.handler.close() == ()


def test_the_timer_lets_announced_barriers_overtake() -> None:
    """Case: AlternatingCheckpointsTest.testActiveTimeoutAlignmentOnAnnouncement"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, 10)
    gate.put(0, Data("0a"), Data("0b"), waiting)
    gate.put(1, Data("1a"), waiting)
    assert _kinds(gate, 2) == [Announcement, Announcement]
    gate.pass_time(11)
    assert _kinds(gate, 2) == [CheckpointBarrier, CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert _kinds(gate, 4) == [Data, Data, Data]
    assert [data.name for data in gate.recorded] == ["0a", "0b", "1a"]


def test_a_timer_that_fires_after_a_late_announcement_triggers_once() -> None:
    """Case: AlternatingCheckpointsTest.testActiveTimeoutAfterAnnouncementPassiveTimeout"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, 10)
    gate.put(0, Data("0a"), Data("0b"), waiting)
    gate.put(1, Data("1a"), waiting)
    assert _kinds(gate, 1) == [Announcement]
    gate.pass_time(11, fire=False)
    assert _kinds(gate, 1) == [Announcement]
    gate.fire()
    assert _kinds(gate, 2) == [CheckpointBarrier, CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert _kinds(gate, 4) == [Data, Data, Data]


def test_a_timer_armed_after_its_time_is_due_at_once() -> None:
    """Case: AlternatingCheckpointsTest.testActiveTimeoutBeforeFirstAnnouncementPassiveTimeout"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, 10)
    gate.put(0, Data("0a"), waiting)
    gate.put(1, Data("1a"), waiting)
    gate.pass_time(11, fire=False)
    assert _kinds(gate, 1) == [Announcement]
    assert gate.timer is not None and gate.timer.at_ms == gate.now_ms
    gate.fire()
    assert _kinds(gate, 3) == [Announcement, CheckpointBarrier, CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert _kinds(gate, 3) == [Data, Data]
    assert [data.name for data in gate.recorded] == ["0a", "1a"]


def test_a_timer_that_fires_after_a_late_barrier_triggers_once() -> None:
    """Case: AlternatingCheckpointsTest.testActiveTimeoutAfterBarrierPassiveTimeout"""
    gate = InputGate(2)
    waiting = timeoutable(1, gate.now_ms, 10)
    gate.put(0, Data("0a"), Data("0b"), waiting)
    assert _kinds(gate, 3) == [Announcement, Data, Data]
    gate.pass_time(11, fire=False)
    assert _kinds(gate, 1) == [CheckpointBarrier]
    gate.fire()
    gate.put(1, Data("1a"), waiting)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert _kinds(gate, 2) == [Data]
    assert [data.name for data in gate.recorded] == ["1a"]
    assert gate.blocked == set()


def test_an_unaligned_barrier_after_an_aligned_one_captures_the_overtaken_buffers() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentOnUnalignedCheckpoint"""
    gate = InputGate(3)
    gate.put(0, timeoutable(1, gate.now_ms, 10_000))
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    gate.put(1, Data("1a"), Data("1b"), unaligned(1, gate.now_ms))
    assert _kinds(gate, 1) == [CheckpointBarrier]
    assert [data.name for data in gate.recorded] == ["1a", "1b"]
    assert gate.triggered_ids == [1]


def test_the_end_of_a_channel_makes_a_late_checkpoint_unaligned() -> None:
    """Case: AlternatingCheckpointsTest.testTimeoutAlignmentAfterReceivedEndOfPartition"""
    gate = InputGate(3)
    gate.put(0, timeoutable(1, gate.now_ms, TIMEOUT))
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    gate.pass_time(TIMEOUT + 1, fire=False)
    gate.put(1, Data("1"), End())
    assert _kinds(gate, 2) == [Data, End]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert gate.handler.recording_channels == {2}
    gate.put(2, Data("2"), End())
    assert _kinds(gate, 2) == [Data, End]
    assert _alignments(gate) == [Alignment.UNALIGNED]
    assert [data.name for data in gate.recorded] == ["2"]
    assert gate.blocked == set()


def test_an_announcement_begins_the_checkpoint_and_the_end_of_a_channel_its_alignment() -> None:
    """Case: AlternatingCheckpointsTest.testStartNewCheckpointViaAnnouncement"""
    gate = InputGate(3)
    waiting = timeoutable(1, gate.now_ms, 10_000)
    gate.put(0, waiting)
    assert _kinds(gate, 1) == [Announcement]
    assert gate.handler.pending
    assert gate.handler.alignment_times.started_ms is None
    gate.deliver(1, End())
    assert gate.handler.alignment_times.started_ms == gate.now_ms
    assert _kinds(gate, 1) == [CheckpointBarrier]
    gate.put(2, waiting)
    assert _kinds(gate, 2) == [Announcement, CheckpointBarrier]
    assert gate.triggered == [waiting]


def test_alignment_is_measured_alike_for_aligned_and_unaligned_checkpoints() -> None:
    """Case: AlternatingCheckpointsTest.testMetricsAlternation"""
    gate = InputGate(2)
    gate.deliver(0, barrier(1, gate.now_ms - 10), Data("0"))
    gate.deliver(1, Data("1"))
    gate.pass_time(6)
    gate.deliver(1, barrier(1, gate.now_ms - 16))
    times = gate.handler.alignment_times
    assert (gate.handler.current_checkpoint_id, times.duration_ms, times.start_delay_ms) == (1, 6, 10)
    assert gate.read_while_aligning == 200

    gate.deliver(0, barrier(2, gate.now_ms - 5), Data("0"))
    assert (gate.handler.alignment_times.start_delay_ms, gate.handler.alignment_times.started_ms) == (5, gate.now_ms)
    gate.pass_time(5)
    gate.deliver(1, barrier(2, gate.now_ms - 10))
    assert gate.handler.alignment_times.duration_ms == 5
    assert gate.read_while_aligning == 100

    gate.deliver(0, unaligned(3, gate.now_ms - 7), Data("0"))
    gate.deliver(1, Data("1"))
    assert gate.triggered_ids == [1, 2, 3]
    assert gate.handler.alignment_times.duration_ms == 0
    gate.pass_time(10)
    gate.deliver(1, unaligned(3, gate.now_ms - 17))
    times = gate.handler.alignment_times
    assert (gate.handler.current_checkpoint_id, times.duration_ms, times.start_delay_ms) == (3, 10, 7)
    assert gate.read_while_aligning == 200


@pytest.mark.parametrize("make", [barrier, unaligned])
def test_one_channel_aligns_in_no_time(make: Callable[[int, int], CheckpointBarrier]) -> None:
    """Case: AlternatingCheckpointsTest.testMetricsSingleChannel"""
    gate = InputGate(1)
    gate.send(0, Data("0"), make(1, gate.now_ms - 10), Data("0"))
    gate.pass_time(6)
    times = gate.handler.alignment_times
    assert (times.started_ms, times.duration_ms, times.start_delay_ms) == (None, 0, 10)
    assert gate.read_while_aligning == 0


def test_a_newer_checkpoint_replaces_a_pending_one() -> None:
    """Case: AlternatingCheckpointsTest.testPreviousHandlerReset"""
    gate = InputGate(2)
    for checkpoint_id in range(1, 5):
        channel = (checkpoint_id - 1) % 2
        gate.deliver(channel, barrier(checkpoint_id))
        assert gate.blocked == {channel} == gate.handler.blocked_channels
        assert gate.handler.pending
        assert not gate.handler.all_received(gate.handler.current_checkpoint_id)
    assert (gate.triggered_ids, gate.aborted_ids) == ([], [1, 2, 3])


def test_data_is_awaited_until_the_last_barrier() -> None:
    """Case: AlternatingCheckpointsTest.testHasInflightDataBeforeProcessBarrier"""
    gate = InputGate(2)
    gate.deliver(0, barrier(1))
    assert not gate.handler.all_received(gate.handler.current_checkpoint_id)
    gate.deliver(1, barrier(1))
    assert gate.handler.all_received(gate.handler.current_checkpoint_id)


def test_an_older_barrier_is_dropped_and_its_channel_free() -> None:
    """Case: AlternatingCheckpointsTest.testOutOfOrderBarrier"""
    gate = InputGate(2)
    gate.deliver(0, barrier(10))
    gate.blocked.add(1)  # a channel stops at its own aligned barrier
    gate.deliver(1, barrier(5))
    assert gate.handler.current_checkpoint_id == 10
    assert gate.blocked == {0}
    assert gate.handler.pending


def test_the_cancel_marker_of_an_older_checkpoint_does_not_touch_the_alignment_of_the_newer() -> None:
    """Case: AlternatingCheckpointsTest.testNextFirstCheckpointBarrierOvertakesCancellationBarrier"""
    gate = InputGate(2)
    events: list[tuple[int, Payload]] = [
        (0, timeoutable(1, gate.now_ms, 10_000)),
        (0, timeoutable(2, gate.now_ms + 1_000, 10_000)),
        (1, Cancel(1)),
        (1, timeoutable(2, gate.now_ms + 1_000, 10_000)),
    ]
    for channel, payload in events:
        gate.deliver(channel, payload)
        gate.pass_time(1_000)
    assert gate.handler.alignment_times.duration_ms == 2_000
    assert gate.triggered_ids == [2]
    assert [type(command) for command in gate.commands].count(TriggerCheckpoint) == 1
