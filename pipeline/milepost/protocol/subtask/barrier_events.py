"""Barriers, and the commands of a barrier handler.

A `CheckpointBarrier` is the barrier as received by one subtask: the checkpoint, its start time and its alignment. The
commands are values; the driver of the subtask executes them in the order in which they are returned.

Source: Flink CheckpointBarrier, CheckpointOptions and CheckpointableInput.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from milepost.errors import ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason


class Alignment(Enum):
    """How the channels of a subtask align at a barrier. Every kind is exactly-once.

    ALIGNED: each channel waits at its barrier until all barriers have arrived, without a limit.
    TIMEOUTABLE: aligned, but unaligned once `timeout_ms` have passed.
    UNALIGNED: the barrier overtakes data, which becomes channel state.
    """

    ALIGNED = "aligned"
    TIMEOUTABLE = "aligned with timeout"
    UNALIGNED = "unaligned"


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """The barrier of one checkpoint on one channel.

    Attributes:
        checkpoint_id: above 0.
        timestamp_ms: start of the alignment's timeout, by the clock of the `now_ms` arguments.
        timeout_ms: how long after `timestamp_ms` the alignment may take, above 0; None unless TIMEOUTABLE.

    Raises:
        ProtocolViolation: the fields contradict each other.
    """

    checkpoint_id: CheckpointId
    timestamp_ms: int
    alignment: Alignment
    timeout_ms: int | None = None

    def __post_init__(self) -> None:
        if self.checkpoint_id <= NO_CHECKPOINT:
            raise ProtocolViolation(f"barrier of checkpoint {self.checkpoint_id} refused, expected an id above 0")
        timeoutable = self.alignment is Alignment.TIMEOUTABLE
        if timeoutable != (self.timeout_ms is not None) or (self.timeout_ms is not None and self.timeout_ms <= 0):
            raise ProtocolViolation(
                f"barrier of checkpoint {self.checkpoint_id} refused, expected"
                f" {'a timeout above 0 ms' if timeoutable else 'no timeout'} when {self.alignment.value},"
                f" got {self.timeout_ms}"
            )

    @property
    def is_unaligned(self) -> bool:
        """Whether it overtakes data, which only UNALIGNED does."""
        return self.alignment is Alignment.UNALIGNED

    @property
    def deadline_ms(self) -> int | None:
        """Latest time at which the alignment may end, inclusive; None: no limit."""
        return None if self.timeout_ms is None else self.timestamp_ms + self.timeout_ms

    def unaligned(self) -> CheckpointBarrier:
        """Return the same barrier as an unaligned one."""
        if self.is_unaligned:
            return self
        return replace(self, alignment=Alignment.UNALIGNED, timeout_ms=None)


@dataclass(frozen=True, slots=True)
class AlignmentTimes:
    """When the newest alignment started and how long it took, by the clock of the `now_ms` arguments.

    Attributes:
        started_ms: arrival of the first barrier; None while no alignment is in progress.
        duration_ms: of the last alignment, from first to last barrier; 0 with one channel, and after an abort.
        start_delay_ms: from the checkpoint's timestamp to its first barrier, at least 0.
    """

    started_ms: int | None = None
    duration_ms: int = 0
    start_delay_ms: int = 0

    @staticmethod
    def begin(timestamp_ms: int, now_ms: int) -> AlignmentTimes:
        return AlignmentTimes(started_ms=now_ms, start_delay_ms=max(0, now_ms - timestamp_ms))

    def end(self, now_ms: int) -> AlignmentTimes:
        started_ms = now_ms if self.started_ms is None else self.started_ms
        return AlignmentTimes(duration_ms=now_ms - started_ms, start_delay_ms=self.start_delay_ms)

    def give_up(self) -> AlignmentTimes:
        return AlignmentTimes(start_delay_ms=self.start_delay_ms)


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Stop reading from the channel: what follows its barrier belongs to the next checkpoint."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannel:
    """Resume reading from the channel. Harmless if it is not blocked."""

    channel: int


@dataclass(frozen=True, slots=True)
class InitInputs:
    """Open the checkpoint's channel state before anything is recorded (`initInputsCheckpoint`)."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class StartRecording:
    """From now on, every buffer read from the channel is channel state."""

    channel: int


@dataclass(frozen=True, slots=True)
class StopRecording:
    """The channel's barrier has arrived or the checkpoint was aborted: later buffers are not channel state.

    Unread buffers that the barrier has overtaken still are.
    """

    channel: int


@dataclass(frozen=True, slots=True)
class Prioritise:
    """Move the announced barrier ahead of the channel's unread buffers, and deliver it as `barrier.unaligned()`.

    Attributes:
        sequence: of the barrier in its channel, as announced.
    """

    channel: int
    checkpoint_id: CheckpointId
    sequence: int


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Take the subtask's snapshot now, with channel state if the barrier is unaligned. At most once per id."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Abort the checkpoint: decline it and cancel it downstream, whether or not it was triggered."""

    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Call `timeout(checkpoint_id)` at `at_ms` or later. At most one timer exists at a time."""

    checkpoint_id: CheckpointId
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is no longer needed. It is harmless if it fires anyway."""

    checkpoint_id: CheckpointId


Command = (
    BlockChannel
    | UnblockChannel
    | InitInputs
    | StartRecording
    | StopRecording
    | Prioritise
    | TriggerCheckpoint
    | AbortCheckpoint
    | ArmTimer
    | CancelTimer
)
