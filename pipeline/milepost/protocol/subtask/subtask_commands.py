"""Commands of a subtask's coordinator to the driver of the subtask.

The commands are values, executed in the order in which they are returned.

Source: what Flink's SubtaskCheckpointCoordinatorImpl and AsyncCheckpointRunnable call on their environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import CheckpointBarrier


class Notification(Enum):
    """Outcome of a checkpoint, as reported to operators and local state."""

    COMPLETE = "complete"
    ABORTED = "aborted"
    SUBSUMED = "subsumed"


@dataclass(frozen=True, slots=True)
class StartChannelState:
    """Open the checkpoint's channel state for this subtask: `ChannelStateWriter.start`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CollectInFlight:
    """Pass every unprocessed buffer before the barrier to `ChannelStateWriter.add_input`.

    Once all input channels are recorded up to their barriers, call `SubtaskCoordinator.in_flight_collected`.
    """

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FinishInput:
    """No further input buffer follows: `ChannelStateWriter.finish_input`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FinishOutput:
    """Everything emitted before the barrier has been forwarded: `ChannelStateWriter.finish_output`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class AbortChannelState:
    """Abort the subtask's channel state: `ChannelStateWriter.abort`.

    Attributes:
        cleanup: whether to drop the result as well; False while an upload may still fetch it.
    """

    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str
    cleanup: bool


@dataclass(frozen=True, slots=True)
class PrepareOperators:
    """Make the operators emit what belongs before the barrier: fired windows, changed keys (`OperatorRun.finish`)."""

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
    """Notify every receiver that this subtask no longer takes part in the checkpoint."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class FreezeState:
    """Take the synchronous part of the snapshot, operators from tail to head, then call `frozen` or `freeze_failed`.

    Attributes:
        channel_state: whether it includes `ChannelStateWriter.take_result`, which is then called exactly once.
    """

    checkpoint_id: CheckpointId
    channel_state: bool


@dataclass(frozen=True, slots=True)
class AwaitUpload:
    """Wait until the upload has ended, in whatever way."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CancelUpload:
    """Start no further part of the upload. Running parts may finish, and report their end as usual."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    """Drop what was frozen and staged. Stored objects are below the token's prefix: garbage of the abort (I8)."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class RecordIncomplete:
    """Report the measurements of a snapshot that ends without an acknowledgement, marked as incomplete."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """Acknowledge the checkpoint. From now on the checkpoint owns the state, not the subtask.

    Attributes:
        finished: whether the subtask has processed its last input and holds its last state.
    """

    checkpoint_id: CheckpointId
    finished: bool


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """Decline the checkpoint. The decline is a value that is sent to the driver of the epoch, not an exception."""

    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str


@dataclass(frozen=True, slots=True)
class NotifyOperators:
    """Notify every operator of the subtask, head to tail."""

    checkpoint_id: CheckpointId
    what: Notification


@dataclass(frozen=True, slots=True)
class NotifyState:
    """Notify the node-local state (the cache and its staged entries), even if the subtask no longer runs."""

    checkpoint_id: CheckpointId
    what: Notification
