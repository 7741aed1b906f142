"""The coordinator of one subtask's checkpoints: when it snapshots, in which order, and what ends a snapshot.

A subtask is one parallel instance of a stateful operator; several live in one Spark task, each with a coordinator of
its own. Events come from the barrier handler (`init_input_checkpoint`, `checkpoint_state`, `abort_on_barrier`), from
the driver of the subtask (`in_flight_collected`, `frozen`, `freeze_failed`, `upload_ended`) and from the job
(`notify_*`); what comes back are commands, executed in their order. The object lives in one process for one epoch.

Order of a checkpoint: channel state opened, operators prepared, **barrier broadcast, and only then** the state frozen,
then uploaded while the subtask goes on, then acknowledged.

Source: Flink SubtaskCheckpointCoordinatorImpl.
"""

from __future__ import annotations

from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier
from milepost.protocol.subtask.snapshot import AsyncSnapshot, SnapshotCommand, SubmitUpload
from milepost.protocol.subtask.subtask_commands import (
    AbortChannelState,
    AwaitUpload,
    BroadcastBarrier,
    BroadcastCancelMarker,
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
    StartChannelState,
)

SubtaskCommand = (
    StartChannelState
    | CollectInFlight
    | FinishInput
    | FinishOutput
    | AbortChannelState
    | PrepareOperators
    | BroadcastBarrier
    | BroadcastCancelMarker
    | FreezeState
    | SubmitUpload
    | AwaitUpload
    | SnapshotCommand
    | NotifyOperators
    | NotifyState
)
Commands = tuple[SubtaskCommand, ...]

MAX_ABORT_MARKS = 2
"""One more than the checkpoints that a timeline has pending at once (I2)."""

_WITH_CHANNEL_STATE = (Alignment.UNALIGNED, Alignment.TIMEOUTABLE)


class SubtaskCoordinator:
    """Decides what one subtask does for each checkpoint; at most one snapshot per id.

    Args:
        subtask: for people: operator and index.
        last_id: the checkpoint that the subtask was restored from; barriers up to it are out of order.
    """

    def __init__(self, subtask: str, last_id: CheckpointId = NO_CHECKPOINT) -> None:
        self._subtask = subtask
        self._last_id = last_id
        self._aborted: dict[CheckpointId, None] = {}
        self._max_aborted = NO_CHECKPOINT
        self._collecting: CheckpointId | None = None
        self._freezing: CheckpointId | None = None
        self._snapshots: dict[CheckpointId, AsyncSnapshot] = {}
        self._closed = False

    @property
    def last_id(self) -> CheckpointId:
        """The newest checkpoint that this subtask has begun, refused or given up."""
        return self._last_id

    @property
    def aborted_ids(self) -> frozenset[CheckpointId]:
        """Ids whose abort arrived before their barrier; at most `MAX_ABORT_MARKS`, the oldest mark goes first."""
        return frozenset(self._aborted)

    @property
    def pending_ids(self) -> frozenset[CheckpointId]:
        """Ids with a snapshot that is neither acknowledged nor discarded."""
        return frozenset(self._snapshots)

    def init_input_checkpoint(self, barrier: CheckpointBarrier) -> Commands:
        """Open the channel state of a checkpoint, before `checkpoint_state` and before anything is recorded.

        Returns:
            UNALIGNED: start, and collect what is in flight. TIMEOUTABLE: start and finish at once, since nothing has
            been overtaken. ALIGNED: nothing.
        Raises:
            ProtocolViolation: the coordinator is closed.
        """
        self._check_open("init_input_checkpoint", barrier.checkpoint_id)
        checkpoint_id = barrier.checkpoint_id
        if barrier.alignment is Alignment.UNALIGNED:
            self._collecting = checkpoint_id
            return StartChannelState(checkpoint_id), CollectInFlight(checkpoint_id)
        if barrier.alignment is Alignment.TIMEOUTABLE:
            return StartChannelState(checkpoint_id), FinishInput(checkpoint_id)
        return ()

    def in_flight_collected(self, checkpoint_id: CheckpointId) -> Commands:
        """The barrier of every input channel has been reached: the input part of the channel state is whole.

        Returns:
            Nothing when the checkpoint was given up meanwhile: its channel state is aborted already.
        Raises:
            ProtocolViolation: a newer checkpoint than any that collects.
        """
        if self._collecting == checkpoint_id:
            self._collecting = None
            return (FinishInput(checkpoint_id),)
        if checkpoint_id > self._last_id and not self._closed:
            raise ProtocolViolation(
                f"subtask {self._subtask}: in-flight data of checkpoint {checkpoint_id} was collected, which was never"
                f" begun (newest: {self._last_id}). Nothing was changed."
            )
        return ()

    def checkpoint_state(self, barrier: CheckpointBarrier, *, finished: bool = False) -> Commands:
        """Take part in a checkpoint, once all (or, unaligned, the first) of its barriers are there.

        Args:
            finished: whether the subtask has processed its last input.
        Returns:
            Out of order: the channel state's abort alone, silently. Aborted before (or so long ago that its mark may
            have been evicted): one cancel marker, no snapshot. Else everything up to the freezing of the state.
        Raises:
            ProtocolViolation: the state of an earlier checkpoint is being frozen.
        """
        checkpoint_id, alignment = barrier.checkpoint_id, barrier.alignment
        if self._freezing is not None:
            raise ProtocolViolation(
                f"subtask {self._subtask}: checkpoint {checkpoint_id} was triggered while the state of"
                f" {self._freezing} is being frozen. Nothing was changed."
            )
        if checkpoint_id <= self._last_id:
            self._forget_abort(checkpoint_id)
            return (_cancelled(checkpoint_id, f"out of order: {self._last_id} came before"),)
        self._last_id = checkpoint_id
        if self._closed:
            return (_cancelled(checkpoint_id, "the subtask is closed"),)
        if self._forget_abort(checkpoint_id):
            marker = BroadcastCancelMarker(checkpoint_id)
            return marker, _cancelled(checkpoint_id, "aborted before its barrier arrived")
        channel_state = alignment in _WITH_CHANNEL_STATE
        self._snapshots[checkpoint_id] = AsyncSnapshot(checkpoint_id, finished=finished)
        self._freezing = checkpoint_id
        return (
            PrepareOperators(checkpoint_id),
            BroadcastBarrier(barrier, priority=alignment is Alignment.UNALIGNED),
            *((FinishOutput(checkpoint_id),) if channel_state else ()),
            FreezeState(checkpoint_id, channel_state),
        )

    def frozen(self, checkpoint_id: CheckpointId) -> Commands:
        """The synchronous part is done: hand the rest to the upload.

        Returns:
            The upload; or, when the checkpoint was aborted or the coordinator closed meanwhile, the discard of what
            was frozen since.
        Raises:
            ProtocolViolation: the checkpoint is not the one whose state is being frozen.
        """
        self._check_freezing("frozen", checkpoint_id)
        self._freezing = None
        snapshot = self._snapshots.get(checkpoint_id)
        if snapshot is None:
            return (DiscardSnapshot(checkpoint_id),)
        return (SubmitUpload(checkpoint_id, snapshot),)

    def freeze_failed(self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str) -> Commands:
        """The synchronous part failed: drop its parts, decline, and cancel the barrier that is already on its way.

        Raises:
            ProtocolViolation: the checkpoint is not the one whose state is being frozen.
        """
        self._check_freezing("freeze_failed", checkpoint_id)
        self._freezing = None
        return (
            AbortChannelState(checkpoint_id, reason, detail, cleanup=True),
            *self._close_snapshot(checkpoint_id),
            DeclineCheckpoint(checkpoint_id, reason, detail),
            BroadcastCancelMarker(checkpoint_id),
        )

    def upload_ended(self, checkpoint_id: CheckpointId) -> None:
        """The upload has reported its end to its `AsyncSnapshot`; it is no longer pending. Unknown ids are legal."""
        self._snapshots.pop(checkpoint_id, None)

    def abort_on_barrier(self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str) -> Commands:
        """Give up a checkpoint because of what its channels said: decline it, and pass the cancellation on."""
        self._last_id = max(self._last_id, checkpoint_id)
        self._aborted = {marked: None for marked in self._aborted if marked >= self._last_id}
        if self._collecting == checkpoint_id:
            self._collecting = None
        return (
            AbortChannelState(checkpoint_id, reason, detail, cleanup=True),
            *self._close_snapshot(checkpoint_id),
            DeclineCheckpoint(checkpoint_id, reason, detail),
            NotifyOperators(checkpoint_id, Notification.ABORTED),
            BroadcastCancelMarker(checkpoint_id),
        )

    def notify_complete(self, checkpoint_id: CheckpointId, *, running: bool) -> Commands:
        """A checkpoint is complete; its id may be unknown here."""
        return _notify(checkpoint_id, Notification.COMPLETE, running)

    def notify_subsumed(self, checkpoint_id: CheckpointId, *, running: bool) -> Commands:
        """A checkpoint is subsumed; its id may be unknown here."""
        return _notify(checkpoint_id, Notification.SUBSUMED, running)

    def notify_aborted(self, checkpoint_id: CheckpointId, *, running: bool) -> Commands:
        """A checkpoint is aborted: discard its snapshot, or remember that it must not be taken when its barrier comes.

        Returns:
            The channel state is aborted without its result, which an upload may still fetch. The local state is told
            also when the subtask does not run any more.
        """
        stopped: Commands = ()
        if running:
            if checkpoint_id in self._snapshots:
                stopped = self._close_snapshot(checkpoint_id)
            elif checkpoint_id > self._last_id:
                self._mark_aborted(checkpoint_id)
            stopped = (*stopped, _cancelled(checkpoint_id, "aborted via notification", cleanup=False))
        return (*stopped, *_notify(checkpoint_id, Notification.ABORTED, running))

    def wait_for_pending(self) -> Commands:
        """Wait for every snapshot still being uploaded, however it ends: the last step of a subtask but `close`."""
        return tuple(AwaitUpload(checkpoint_id) for checkpoint_id in sorted(self._snapshots))

    def close(self) -> Commands:
        """Give up every snapshot that is not acknowledged, and take none any more. Idempotent, in any state."""
        self._closed = True
        self._collecting = None
        return tuple(command for pending in sorted(self._snapshots) for command in self._close_snapshot(pending))

    def _mark_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._max_aborted = max(self._max_aborted, checkpoint_id)
        self._aborted[checkpoint_id] = None
        while len(self._aborted) > MAX_ABORT_MARKS:
            del self._aborted[next(iter(self._aborted))]

    def _forget_abort(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether the checkpoint was aborted before its barrier came, or is so old that its mark may be evicted.

        Flink compares with `<`, and so takes a snapshot in vain when exactly the mark of this id was the last to go.
        """
        marked = checkpoint_id in self._aborted
        self._aborted.pop(checkpoint_id, None)
        return marked or checkpoint_id + MAX_ABORT_MARKS <= self._max_aborted

    def _close_snapshot(self, checkpoint_id: CheckpointId) -> Commands:
        snapshot = self._snapshots.pop(checkpoint_id, None)
        return () if snapshot is None else snapshot.close()

    def _check_open(self, event: str, checkpoint_id: CheckpointId) -> None:
        if self._closed:
            raise ProtocolViolation(
                f"subtask {self._subtask}: {event} of checkpoint {checkpoint_id} after the coordinator was closed."
                " Nothing was changed."
            )

    def _check_freezing(self, event: str, checkpoint_id: CheckpointId) -> None:
        if checkpoint_id != self._freezing:
            raise ProtocolViolation(
                f"subtask {self._subtask}: {event} of checkpoint {checkpoint_id}, expected {self._freezing}."
                " Nothing was changed."
            )


def _cancelled(checkpoint_id: CheckpointId, why: str, *, cleanup: bool = True) -> AbortChannelState:
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    return AbortChannelState(checkpoint_id, reason, why, cleanup)


def _notify(checkpoint_id: CheckpointId, what: Notification, running: bool) -> Commands:
    """The operators only while they run, the local state always."""
    notify_state = NotifyState(checkpoint_id, what)
    return (NotifyOperators(checkpoint_id, what), notify_state) if running else (notify_state,)
