"""Barrier handler: decides when a subtask takes its snapshot. Barriers in, commands out.

One handler serves one subtask and works on one checkpoint at a time; a barrier of a newer checkpoint aborts the older
one. The driver reports what it reads on the channels, and executes the returned commands (`barrier_events.py`) in order
before its next report. The transitions are the table in `barrier_states.py`.

The handler holds no data and no clock: `now_ms` comes with the events and must not decrease. An illegal event raises
`ProtocolViolation` and leaves the handler unchanged.

With two channels and a timeout of 10 s, at time 0 in ms::

    barrier(0, barrier of 5, 0)       ArmTimer(5, 10000), BlockChannel(0)
    barrier(1, barrier of 5, 400)     BlockChannel(1), InitInputs, TriggerCheckpoint, UnblockChannel(0 and 1),
                                      CancelTimer(5)

Source: Flink SingleCheckpointBarrierHandler (aligned and alternating).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.errors import ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_channels import InputChannels
from milepost.protocol.subtask.barrier_events import (
    AbortCheckpoint,
    AlignmentTimes,
    ArmTimer,
    CancelTimer,
    CheckpointBarrier,
    Command,
    InitInputs,
    Prioritise,
    TriggerCheckpoint,
    UnblockChannel,
)
from milepost.protocol.subtask.barrier_states import AlignmentEvent, AlignmentState, Condition, Step, transition


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One event with everything that a row may need; `channel` is -1 if the event belongs to no channel."""

    event: AlignmentEvent
    barrier: CheckpointBarrier
    now_ms: int
    channel: int = -1
    sequence: int = -1


class BarrierHandler:
    """Align the barriers of one subtask's channels, and change to unaligned if that takes too long.

    Each checkpoint is triggered at most once, ids increase, and no channel stays blocked after its checkpoint.

    Args:
        channels: number of input channels, at least 1; they are numbered from 0.
        alternating: whether checkpoints may become unaligned. If not, timeouts of barriers are ignored.

    Raises:
        ProtocolViolation: `channels` is below 1.
    """

    def __init__(self, channels: int, *, alternating: bool) -> None:
        self._channels = InputChannels(channels)
        self._alternating = alternating
        self._state = AlignmentState.ALTERNATING_WAITING_FOR_FIRST if alternating else AlignmentState.WAITING_FOR_FIRST
        self._current = NO_CHECKPOINT
        self._pending: CheckpointBarrier | None = None
        self._target = 0
        self._received: set[int] = set()
        self._promised: set[int] = set()
        self._armed: ArmTimer | None = None
        self._times = AlignmentTimes()
        self._closed = False

    @property
    def state(self) -> AlignmentState:
        """The handler's state in the table of `barrier_states.py`."""
        return self._state

    @property
    def current_checkpoint_id(self) -> CheckpointId:
        """The newest checkpoint observed, pending or over; `NO_CHECKPOINT` before the first."""
        return self._current

    @property
    def pending(self) -> bool:
        """Whether barriers of the current checkpoint are still missing."""
        return self._pending is not None

    @property
    def open_channels(self) -> frozenset[int]:
        """The channels that have not ended."""
        return self._channels.open

    @property
    def blocked_channels(self) -> frozenset[int]:
        """The channels that must not be read from."""
        return self._channels.blocked

    @property
    def recording_channels(self) -> frozenset[int]:
        """The channels whose buffers before the barrier become channel state."""
        return self._channels.recording

    @property
    def alignment_times(self) -> AlignmentTimes:
        """When the newest alignment started and how long it took."""
        return self._times

    def all_received(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether no barrier of the checkpoint is missing: all arrived, it was aborted, or it is over.

        Raises:
            ProtocolViolation: the checkpoint has not started yet.
        """
        if checkpoint_id < self._current or not self._channels.open:
            return True
        if checkpoint_id > self._current:
            raise ProtocolViolation(
                f"checkpoint {checkpoint_id} has not started: the newest one observed is {self._current}"
            )
        return self._pending is None

    def announcement(self, channel: int, sequence: int, barrier: CheckpointBarrier, now_ms: int) -> tuple[Command, ...]:
        """Register that a barrier is queued in a channel behind unread data.

        The first announcement of a checkpoint starts it and arms the timer.

        Args:
            sequence: position of the barrier in its channel, returned in `Prioritise`.
            barrier: a queued one, so never unaligned.
            now_ms: by the clock of `barrier.timestamp_ms`.
        Raises:
            ProtocolViolation: the channel is unknown or has ended, or this barrier was registered before.
        """
        self._check_open(channel, "an announcement")
        if barrier.is_unaligned:
            raise ProtocolViolation(
                f"announcement of checkpoint {barrier.checkpoint_id} on channel {channel} refused: an unaligned barrier"
                " does not wait in the queue. Nothing was changed."
            )
        if self._is_over(barrier.checkpoint_id):
            return ()
        self._check_new("announcement", channel, barrier, self._promised | self._received)
        out: list[Command] = []
        self._begin(barrier, now_ms, out)
        self._promised.add(channel)
        self._apply(_Occurrence(AlignmentEvent.ANNOUNCEMENT, barrier, now_ms, channel, sequence), out)
        return tuple(out)

    def barrier(self, channel: int, barrier: CheckpointBarrier, now_ms: int) -> tuple[Command, ...]:
        """Process a barrier that the driver has reached on a channel, or moved ahead of its unread buffers.

        A barrier of a checkpoint that is over is dropped, and its channel stays unblocked.

        Args:
            barrier: unaligned if it has overtaken data of its channel.
        Raises:
            ProtocolViolation: the channel is unknown or has ended, this barrier was processed before, or it is
                unaligned and the handler only aligns.
        """
        self._check_open(channel, "a barrier")
        if self._is_over(barrier.checkpoint_id):
            is_ignored = barrier.is_unaligned or channel in self._channels.blocked
            return () if is_ignored else (UnblockChannel(channel),)
        self._check_new("barrier", channel, barrier, self._received)
        occurrence = _Occurrence(AlignmentEvent.BARRIER, barrier, now_ms, channel)
        self._row(occurrence)
        out: list[Command] = []
        self._begin(barrier, now_ms, out)
        self._receive(occurrence, out)
        return tuple(out)

    def cancel(self, channel: int, checkpoint_id: CheckpointId) -> tuple[Command, ...]:
        """Process a cancel marker: the sender aborted the checkpoint, so this subtask aborts it too.

        A marker of a checkpoint that is over is ignored, and later barriers of a cancelled one are dropped. A marker
        may overtake data, even on a blocked channel.

        Raises:
            ProtocolViolation: the channel is unknown or has ended.
        """
        self._check_open(channel, "a cancel marker")
        if self._is_over(checkpoint_id):
            return ()
        out: list[Command] = []
        if checkpoint_id > self._current:
            self._subsume(checkpoint_id, out)
        self._abort(
            checkpoint_id,
            CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
            f"channel {channel} carried the cancel marker of checkpoint {checkpoint_id}",
            out,
        )
        return tuple(out)

    def end_of_partition(self, channel: int, now_ms: int) -> tuple[Command, ...]:
        """Process the end of a channel after its sender has finished permanently.

        While a checkpoint is pending, the channel counts as received, once. Later checkpoints do not wait for it.

        Raises:
            ProtocolViolation: the channel is unknown or has ended, or a barrier announced on it never arrived.
        """
        self._check_open(channel, "its end")
        if channel in self._promised:
            raise ProtocolViolation(
                f"end of channel {channel} refused: its barrier of checkpoint {self._current} was announced and has not"
                " come. Nothing was changed."
            )
        self._channels.end(channel)
        out: list[Command] = []
        if self._pending is None:
            return ()
        self._receive(_Occurrence(AlignmentEvent.END_OF_PARTITION, self._pending, now_ms, channel), out)
        return tuple(out)

    def timeout(self, checkpoint_id: CheckpointId, now_ms: int) -> tuple[Command, ...]:
        """Continue unaligned after the timer of `ArmTimer` fired, unless the checkpoint is over or already unaligned.

        A timer that fires late, twice, or after `close` changes nothing.

        Raises:
            ProtocolViolation: the alignment of this checkpoint never times out, or not yet.
        """
        if self._closed or self._pending is None or checkpoint_id != self._current:
            return ()
        occurrence = _Occurrence(AlignmentEvent.TIMEOUT, self._pending, now_ms)
        self._row(occurrence)
        if self._armed is not None and now_ms < self._armed.at_ms:
            raise ProtocolViolation(
                f"timeout of checkpoint {checkpoint_id} refused: it is due at {self._armed.at_ms} ms, and it is"
                f" {now_ms} ms. Nothing was changed."
            )
        self._armed = None
        out: list[Command] = []
        self._apply(occurrence, out)
        return tuple(out)

    def close(self) -> tuple[Command, ...]:
        """End the handler: no barrier is expected any longer, and the timer is cancelled. Idempotent."""
        self._closed = True
        self._pending = None
        out: list[Command] = []
        self._cancel_timer(out)
        return tuple(out)

    def _check_open(self, channel: int, event: str) -> None:
        if self._closed:
            raise ProtocolViolation(f"channel {channel}: {event} refused, the barrier handler is closed")
        self._channels.check_open(channel, event)

    def _check_new(self, event: str, channel: int, barrier: CheckpointBarrier, earlier_channels: set[int]) -> None:
        """Raise ProtocolViolation if a channel reports the same barrier of the pending checkpoint twice."""
        if self._pending is None or barrier.checkpoint_id != self._current:
            return
        if channel in earlier_channels:
            raise ProtocolViolation(
                f"{event} of checkpoint {self._current} on channel {channel} refused: it was processed before."
                " Nothing was changed."
            )

    def _is_over(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id < self._current or (checkpoint_id == self._current and self._pending is None)

    def _begin(self, barrier: CheckpointBarrier, now_ms: int, out: list[Command]) -> None:
        """Make the barrier's checkpoint current if it is new. An older pending checkpoint is aborted."""
        if barrier.checkpoint_id == self._current:
            return
        self._subsume(barrier.checkpoint_id, out)
        self._current = barrier.checkpoint_id
        self._pending = barrier
        self._target = len(self._channels.open)
        if self._alternating and barrier.deadline_ms is not None:
            self._armed = ArmTimer(barrier.checkpoint_id, max(now_ms, barrier.deadline_ms))
            out.append(self._armed)

    def _subsume(self, newer: CheckpointId, out: list[Command]) -> None:
        """Abort the pending checkpoint in favour of a newer one, so that none ends unnoticed."""
        if self._pending is not None:
            self._abort(
                self._current,
                CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED,
                f"checkpoint {newer} was observed before every barrier of checkpoint {self._current} arrived",
                out,
            )

    def _receive(self, occurrence: _Occurrence, out: list[Command]) -> None:
        """Count the channel, apply the table, and end the checkpoint after its last channel."""
        self._promised.discard(occurrence.channel)
        self._channels.arrive(occurrence.channel)
        self._received.add(occurrence.channel)
        if self._times.started_ms is None:
            self._times = AlignmentTimes.begin(occurrence.barrier.timestamp_ms, occurrence.now_ms)
        is_complete = len(self._received) == self._target
        self._apply(occurrence, out)
        if is_complete:
            self._end(self._times.end(occurrence.now_ms))
            self._cancel_timer(out)

    def _abort(
        self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str, out: list[Command]
    ) -> None:
        """Abort all pending checkpoints. No checkpoint up to `checkpoint_id` can start any longer."""
        self._current = max(self._current, checkpoint_id)
        self._end(self._times.give_up())
        self._cancel_timer(out)
        steps, self._state = transition(self._state, AlignmentEvent.ABORT, {Condition.ALWAYS})
        for step in steps:
            self._perform_for_all(step, out)
        out.append(AbortCheckpoint(checkpoint_id, reason, detail))

    def _end(self, times: AlignmentTimes) -> None:
        self._pending = None
        self._received.clear()
        self._promised.clear()
        self._times = times

    def _cancel_timer(self, out: list[Command]) -> None:
        if self._armed is not None:
            out.append(CancelTimer(self._armed.checkpoint_id))
            self._armed = None

    def _row(self, occurrence: _Occurrence) -> tuple[tuple[Step, ...], AlignmentState]:
        """Return the steps and next state of the row that applies. Raises ProtocolViolation if it refuses the event."""
        deadline_ms = occurrence.barrier.deadline_ms
        holds = {
            Condition.ALWAYS: True,
            Condition.UNALIGNED: occurrence.barrier.is_unaligned,
            Condition.NOT_TIMEOUTABLE: deadline_ms is None,
            Condition.TIMED_OUT: deadline_ms is not None and occurrence.now_ms > deadline_ms,
            Condition.ALL_RECEIVED: len(self._received) == self._target,
        }
        return transition(self._state, occurrence.event, {condition for condition in holds if holds[condition]})

    def _apply(self, occurrence: _Occurrence, out: list[Command]) -> None:
        steps, after = self._row(occurrence)
        for step in steps:
            match step:
                case Step.NOTE_ANNOUNCEMENT:
                    self._channels.announce(Prioritise(occurrence.channel, self._current, occurrence.sequence))
                case Step.PRIORITISE_CHANNEL:
                    out.append(Prioritise(occurrence.channel, self._current, occurrence.sequence))
                case Step.BLOCK:
                    if not occurrence.barrier.is_unaligned:
                        out += self._channels.block(occurrence.channel)
                case Step.FINISH_CHANNEL:
                    self._channels.drop(occurrence.channel)
                case Step.STOP_RECORDING_CHANNEL:
                    out += self._channels.stop_recording(occurrence.channel)
                case Step.AS_UNALIGNED:
                    occurrence = replace(occurrence, barrier=occurrence.barrier.unaligned())
                case Step.INIT_INPUTS:
                    out.append(InitInputs(occurrence.barrier))
                case Step.TRIGGER:
                    out.append(TriggerCheckpoint(occurrence.barrier))
                case Step.DELEGATE:
                    self._state = after
                    return self._apply(occurrence, out)
                case _:
                    self._perform_for_all(step, out)
        self._state = after

    def _perform_for_all(self, step: Step, out: list[Command]) -> None:
        """Execute a step that concerns all channels, independent of the event."""
        channels = self._channels
        if step is Step.RESET:
            channels.reset()
        else:
            perform = {
                Step.PRIORITISE_ANNOUNCED: channels.prioritise_announced,
                Step.START_RECORDING: channels.start_recording,
                Step.STOP_RECORDING: channels.stop_recording_all,
                Step.UNBLOCK_ALL: channels.unblock_all,
            }[step]
            out += perform()
