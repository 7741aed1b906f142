"""Subtask commands tell the driver of a subtask what to do.

The commands are values, executed in the order in which they are returned. A command that raises does not keep the
driver from those after it: it executes all of them and raises the first error at the end.

Source: what Flink's SubtaskCheckpointCoordinatorImpl and AsyncCheckpointRunnable call on their environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import CheckpointBarrier


class Notification(Enum):
    """What became of a checkpoint, as told to whoever holds something of it."""

    COMPLETE = "complete"
    ABORTED = "aborted"
    SUBSUMED = "subsumed"


@dataclass(frozen=True, slots=True)
class StartChannelState:
    """Open the checkpoint's channel state for this subtask: `ChannelStateWriter.start`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CollectInFlight:
    """Give every buffer that precedes the barrier, and is not processed, to `ChannelStateWriter.add_input`.

    When the last input channel has been recorded to its barrier, call `SubtaskCoordinator.in_flight_collected`.
    """

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FinishInput:
    """No buffer of an input follows: `ChannelStateWriter.finish_input`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FinishOutput:
    """Everything emitted before the barrier has been handed on: `ChannelStateWriter.finish_output`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class AbortChannelState:
    """Give up the subtask's channel state: `ChannelStateWriter.abort`.

    Attributes:
        cleanup: whether the result goes too; False while somebody may still fetch it.
    """

    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str
    cleanup: bool


@dataclass(frozen=True, slots=True)
class PrepareOperators:
    """Let the operators emit what belongs before the barrier: fired windows, changed keys (`OperatorRun.finish`)."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class BroadcastBarrier:
    """Send the barrier on every output channel, after all rows emitted so far and before the state is frozen.

    Attributes:
        priority: whether the checkpoint overtook data of this subtask.
    """

    barrier: CheckpointBarrier
    priority: bool


@dataclass(frozen=True, slots=True)
class BroadcastCancelMarker:
    """Tell every receiver that this subtask does not take part in the checkpoint any more."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FreezeState:
    """Take the synchronous part of the snapshot, operators from tail to head, then call `frozen` or `freeze_failed`.

    Attributes:
        channel_state: whether `ChannelStateWriter.take_result` belongs to it; it is called exactly once then.
    """

    checkpoint_id: CheckpointId
    channel_state: bool


@dataclass(frozen=True, slots=True)
class AwaitUpload:
    """Wait until the upload has ended, however it ends."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CancelUpload:
    """Start nothing more of the upload. What runs may run to its end, which is reported as always."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    """Drop what was frozen and staged. What is stored lies below the token's prefix: garbage of the abort (I8)."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class RecordIncomplete:
    """Keep what was measured of a snapshot that ends without an acknowledgement, marked as incomplete."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """Acknowledge the checkpoint. From here on its state belongs to the checkpoint, not to the subtask.

    Attributes:
        finished: whether the subtask has processed its last input and holds its last state.
    """

    checkpoint_id: CheckpointId
    finished: bool


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """Refuse the checkpoint: a value that travels to the driver of the epoch, never an exception."""

    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str


@dataclass(frozen=True, slots=True)
class NotifyOperators:
    """Tell every operator of the subtask, head to tail."""

    checkpoint_id: CheckpointId
    what: Notification


@dataclass(frozen=True, slots=True)
class NotifyState:
    """Tell the node-local state (the cache and its staged entries), also when the subtask does not run any more."""

    checkpoint_id: CheckpointId
    what: Notification
