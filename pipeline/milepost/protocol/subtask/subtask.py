"""Coordinator of one subtask's checkpoints: when it takes a snapshot, in which order, and how a snapshot ends.

A subtask is one parallel instance of a stateful operator. Several run in one Spark task, each with its own coordinator.
Events come from the barrier handler (`init_input_checkpoint`, `checkpoint_state`, `abort_on_barrier`), from the driver
of the subtask (`in_flight_collected`, `frozen`, `freeze_failed`, `upload_ended`) and from the job (`notify_*`). Each
returns commands, to be executed in order. The object lives in one process for one epoch.

Order within a checkpoint: open the channel state, prepare the operators, **broadcast the barrier, and only then**
freeze the state; upload it while the subtask continues; acknowledge. For an aligned checkpoint 5::

    checkpoint_state    PrepareOperators(5), BroadcastBarrier(5), FreezeState(5)
    frozen(5)           SubmitUpload(5)
    the upload ends     AcknowledgeCheckpoint(5), from the snapshot

Source: Flink SubtaskCheckpointCoordinatorImpl.
"""

from __future__ import annotations

from milepost.errors import ProtocolViolation
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
"""One more than the number of checkpoints that a timeline has pending at a time (I2)."""

_WITH_CHANNEL_STATE = (Alignment.UNALIGNED, Alignment.TIMEOUTABLE)


class SubtaskCoordinator:
    """Decide what one subtask does for each checkpoint. At most one snapshot per id.

    Args:
        subtask: operator and index, for people.
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
        """The newest checkpoint that this subtask has started, refused or aborted."""
        return self._last_id

    @property
    def aborted_ids(self) -> frozenset[CheckpointId]:
        """Ids whose abort arrived before their barrier; at most `MAX_ABORT_MARKS`, the oldest is evicted first."""
        return frozenset(self._aborted)

    @property
    def pending_ids(self) -> frozenset[CheckpointId]:
        """Ids with a snapshot that is neither acknowledged nor discarded."""
        return frozenset(self._snapshots)

    def init_input_checkpoint(self, barrier: CheckpointBarrier) -> Commands:
        """Open the channel state of a checkpoint, before `checkpoint_state` and before anything is recorded.

        Returns:
            UNALIGNED: start, and collect in-flight data. TIMEOUTABLE: start and finish immediately, since nothing was
            overtaken. ALIGNED: nothing.
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
        """Finish the input part of the channel state, after the barrier of every input channel was reached.

        Returns:
            Nothing if the checkpoint was aborted in the meantime: its channel state is aborted already.
        Raises:
            ProtocolViolation: the checkpoint is newer than any that collects.
        """
        if self._collecting == checkpoint_id:
            self._collecting = None
            return (FinishInput(checkpoint_id),)
        if checkpoint_id > self._last_id and not self._closed:
            raise ProtocolViolation(
                f"subtask {self._subtask}: in-flight data of checkpoint {checkpoint_id} was collected, which never"
                f" started (newest: {self._last_id}). Nothing was changed."
            )
        return ()

    def checkpoint_state(self, barrier: CheckpointBarrier, *, finished: bool = False) -> Commands:
        """Take part in a checkpoint, once all of its barriers (if unaligned: the first) have arrived.

        Args:
            finished: whether the subtask has processed its last input.
        Returns:
            Out of order: only the abort of the channel state. Aborted before (or so long ago that the mark may have
            been evicted): one cancel marker, no snapshot. Otherwise everything up to the freezing of the state.
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
            return (_abort_channel_state(checkpoint_id, f"out of order: {self._last_id} came before"),)
        self._last_id = checkpoint_id
        if self._closed:
            return (_abort_channel_state(checkpoint_id, "the subtask is closed"),)
        if self._forget_abort(checkpoint_id):
            marker = BroadcastCancelMarker(checkpoint_id)
            return marker, _abort_channel_state(checkpoint_id, "aborted before its barrier arrived")
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
        """Start the upload after the synchronous part.

        Returns:
            The upload; or the discard of the frozen state, if the checkpoint was aborted or the coordinator closed in
            the meantime.
        Raises:
            ProtocolViolation: the state of another checkpoint, or of none, is being frozen.
        """
        self._check_freezing("frozen", checkpoint_id)
        self._freezing = None
        snapshot = self._snapshots.get(checkpoint_id)
        if snapshot is None:
            return (DiscardSnapshot(checkpoint_id),)
        return (SubmitUpload(checkpoint_id, snapshot),)

    def freeze_failed(self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str) -> Commands:
        """Discard the failed synchronous part, decline the checkpoint, and cancel the barrier that was already sent.

        Raises:
            ProtocolViolation: the state of another checkpoint, or of none, is being frozen.
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
        """Record that the upload has reported its end to its `AsyncSnapshot`. Unknown ids are legal."""
        self._snapshots.pop(checkpoint_id, None)

    def abort_on_barrier(self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str) -> Commands:
        """Abort a checkpoint because of its channels: decline it, and forward the cancellation."""
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
        """Report a completed checkpoint. Its id may be unknown here."""
        return _notify(checkpoint_id, Notification.COMPLETE, running)

    def notify_subsumed(self, checkpoint_id: CheckpointId, *, running: bool) -> Commands:
        """Report a subsumed checkpoint. Its id may be unknown here."""
        return _notify(checkpoint_id, Notification.SUBSUMED, running)

    def notify_aborted(self, checkpoint_id: CheckpointId, *, running: bool) -> Commands:
        """Discard the snapshot of an aborted checkpoint, or remember not to take it when its barrier arrives.

        Returns:
            The channel state is aborted without its result, which an upload may still fetch. Local state is notified
            even if the subtask no longer runs.
        """
        commands: Commands = ()
        if running:
            if checkpoint_id in self._snapshots:
                commands = self._close_snapshot(checkpoint_id)
            elif checkpoint_id > self._last_id:
                self._mark_aborted(checkpoint_id)
            commands = (*commands, _abort_channel_state(checkpoint_id, "aborted via notification", cleanup=False))
        return (*commands, *_notify(checkpoint_id, Notification.ABORTED, running))

    def wait_for_pending(self) -> Commands:
        """Wait for the end of every running upload. This is a subtask's last step before `close`."""
        return tuple(AwaitUpload(checkpoint_id) for checkpoint_id in sorted(self._snapshots))

    def close(self) -> Commands:
        """Discard every snapshot that is not acknowledged, and take no more. Idempotent, in any state."""
        self._closed = True
        self._collecting = None
        return tuple(command for pending in sorted(self._snapshots) for command in self._close_snapshot(pending))

    def _mark_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._max_aborted = max(self._max_aborted, checkpoint_id)
        self._aborted[checkpoint_id] = None
        while len(self._aborted) > MAX_ABORT_MARKS:
            del self._aborted[next(iter(self._aborted))]

    def _forget_abort(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether the checkpoint was aborted before its barrier, or so early that its mark may be evicted.

        Flink compares with `<`, so it takes a useless snapshot if exactly this id's mark was the last to be evicted.
        """
        is_marked = checkpoint_id in self._aborted
        self._aborted.pop(checkpoint_id, None)
        return is_marked or checkpoint_id + MAX_ABORT_MARKS <= self._max_aborted

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


def _abort_channel_state(checkpoint_id: CheckpointId, detail: str, *, cleanup: bool = True) -> AbortChannelState:
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    return AbortChannelState(checkpoint_id, reason, detail, cleanup)


def _notify(checkpoint_id: CheckpointId, what: Notification, running: bool) -> Commands:
    """Return the notification of local state, and of the operators while they run."""
    notify_state = NotifyState(checkpoint_id, what)
    return (NotifyOperators(checkpoint_id, what), notify_state) if running else (notify_state,)
