"""The barrier handler decides when a subtask takes its snapshot: barriers in, commands out.

One handler serves one subtask, and works on one checkpoint at a time: a barrier of a newer one gives the older one up.
It is told what its driver meets on the channels, and answers with commands (`barrier_events.py`); the driver executes
them in order before it reports anything else. What happens in which state is the table of `barrier_states.py`.

It holds no data and no clock: `now_ms` comes with the events and must not go back. An illegal event raises
`ProtocolViolation` and leaves the handler as it was.

Source: Flink SingleCheckpointBarrierHandler (aligned and alternating).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.protocol.records.errors import ProtocolViolation
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
    """One event with all that a row may need; `channel` is -1 when the event belongs to none."""

    event: AlignmentEvent
    barrier: CheckpointBarrier
    now_ms: int
    channel: int = -1
    sequence: int = -1


class BarrierHandler:
    """Aligns the barriers of one subtask's channels, and may change to unaligned when that takes too long.

    Every checkpoint is triggered at most once, ids rise, and no channel stays blocked once a checkpoint is over.

    Args:
        channels: number of input channels, at least 1; they are numbered from 0.
        alternating: whether checkpoints may become unaligned. If not, timeouts of barriers are not used.

    Raises:
        ProtocolViolation: there is no channel.
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
        """Where the handler stands in the table of PROTOCOL.md."""
        return self._state

    @property
    def current_checkpoint_id(self) -> CheckpointId:
        """The newest checkpoint heard of, pending or over; `NO_CHECKPOINT` before the first."""
        return self._current

    @property
    def pending(self) -> bool:
        """Whether barriers of the current checkpoint are still awaited."""
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
        """The channels whose buffers before the barrier are channel state."""
        return self._channels.recording

    @property
    def alignment_times(self) -> AlignmentTimes:
        """When the newest alignment began and how long it took."""
        return self._times

    def all_received(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether no barrier of the checkpoint is awaited: all are there, it was given up, or it is past.

        Raises:
            ProtocolViolation: nothing was heard of that checkpoint yet.
        """
        if checkpoint_id < self._current or not self._channels.open:
            return True
        if checkpoint_id > self._current:
            raise ProtocolViolation(
                f"checkpoint {checkpoint_id} has not begun: the newest one heard of is {self._current}"
            )
        return self._pending is None

    def announcement(self, channel: int, sequence: int, barrier: CheckpointBarrier, now_ms: int) -> tuple[Command, ...]:
        """Take notice that a barrier is queued in a channel, behind data that is not read yet.

        The first announcement of a checkpoint begins it, and arms the timer.

        Args:
            sequence: position of the barrier in its channel, given back by `Prioritise`.
            barrier: one that waits in the queue, so never an unaligned one.
            now_ms: on the clock of `barrier.timestamp_ms`.
        Raises:
            ProtocolViolation: the channel is unknown, has ended, or this barrier of it is already known.
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
        """Take the barrier that the driver has reached on a channel, or has moved before its unread buffers.

        A barrier of a checkpoint that is over is dropped, and its channel is free.

        Args:
            barrier: unaligned if it has overtaken data of its channel.
        Raises:
            ProtocolViolation: the channel is unknown or has ended, this barrier of it was taken already, or it
                is unaligned and the handler only aligns.
        """
        self._check_open(channel, "a barrier")
        if self._is_over(barrier.checkpoint_id):
            held = barrier.is_unaligned or channel in self._channels.blocked
            return () if held else (UnblockChannel(channel),)
        self._check_new("barrier", channel, barrier, self._received)
        occurrence = _Occurrence(AlignmentEvent.BARRIER, barrier, now_ms, channel)
        self._row(occurrence)
        out: list[Command] = []
        self._begin(barrier, now_ms, out)
        self._receive(occurrence, out)
        return tuple(out)

    def cancel(self, channel: int, checkpoint_id: CheckpointId) -> tuple[Command, ...]:
        """Take a cancel marker: the sender gave the checkpoint up, so this subtask does.

        A marker of a checkpoint that is over is ignored, later barriers of a cancelled one are dropped. A marker may
        overtake data, also on a blocked channel.

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
        """Take the end of a channel: its sender has finished for ever.

        While a checkpoint is pending the channel counts as one whose barrier is there, once. A later one does not wait
        for it.

        Raises:
            ProtocolViolation: the channel is unknown or has ended, or a barrier announced on it never came.
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
        """The timer of `ArmTimer` has fired: go on unaligned, unless the checkpoint is over or already is.

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
        """End the handler's work: no barrier is awaited any more, the timer is cancelled. May be called again."""
        self._closed = True
        self._pending = None
        out: list[Command] = []
        self._cancel_timer(out)
        return tuple(out)

    def _check_open(self, channel: int, what: str) -> None:
        if self._closed:
            raise ProtocolViolation(f"channel {channel}: {what} refused, the barrier handler is closed")
        self._channels.check_open(channel, what)

    def _check_new(self, what: str, channel: int, barrier: CheckpointBarrier, known: set[int]) -> None:
        """Raise ProtocolViolation if a barrier of a checkpoint that is not over cannot be the first of its channel."""
        if self._pending is None or barrier.checkpoint_id != self._current:
            return
        if channel in known:
            raise ProtocolViolation(
                f"{what} of checkpoint {self._current} on channel {channel} refused: it was taken already. Nothing was"
                " changed."
            )

    def _is_over(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id < self._current or (checkpoint_id == self._current and self._pending is None)

    def _begin(self, barrier: CheckpointBarrier, now_ms: int, out: list[Command]) -> None:
        """Make the barrier's checkpoint the current one if it is new; a pending older one is given up."""
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
        """Give up what is pending for a newer checkpoint, so that none that began ends unnoticed."""
        if self._pending is not None:
            self._abort(
                self._current,
                CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED,
                f"checkpoint {newer} was heard of before every barrier of checkpoint {self._current} was there",
                out,
            )

    def _receive(self, occurrence: _Occurrence, out: list[Command]) -> None:
        """Count the channel, apply the table, and end the checkpoint when it was the last channel."""
        self._promised.discard(occurrence.channel)
        self._channels.arrive(occurrence.channel)
        self._received.add(occurrence.channel)
        if self._times.started_ms is None:
            self._times = AlignmentTimes.begin(occurrence.barrier.timestamp_ms, occurrence.now_ms)
        complete = len(self._received) == self._target
        self._apply(occurrence, out)
        if complete:
            self._end(self._times.end(occurrence.now_ms))
            self._cancel_timer(out)

    def _abort(
        self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str, out: list[Command]
    ) -> None:
        """Give up what is pending; nothing up to `checkpoint_id` can begin any more."""
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
        """Return the steps and the next state of the row that applies. Raises ProtocolViolation if that refuses."""
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
        """Do a step that concerns all channels, whatever the event was."""
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
