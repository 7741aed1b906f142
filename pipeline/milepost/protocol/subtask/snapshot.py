"""The asynchronous part of a subtask's snapshot, which is either acknowledged or discarded.

One compare-and-set decides: RUNNING -> COMPLETED or RUNNING -> DISCARDED. Both sides of the race (the end of the
upload, and a close of the snapshot) call the same object. It holds no lock, so its driver calls it under one.

Source: Flink AsyncCheckpointRunnable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.subtask_commands import (
    AcknowledgeCheckpoint,
    CancelUpload,
    DeclineCheckpoint,
    DiscardSnapshot,
    RecordIncomplete,
)

SnapshotCommand = CancelUpload | DiscardSnapshot | RecordIncomplete | AcknowledgeCheckpoint | DeclineCheckpoint


class SnapshotState(Enum):
    """State of the asynchronous part. COMPLETED and DISCARDED are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    DISCARDED = "discarded"


class AsyncSnapshot:
    """One snapshot, from the freezing of its state to its acknowledgement.

    Args:
        checkpoint_id: the checkpoint it belongs to.
        finished: whether the subtask has processed its last input.
    """

    def __init__(self, checkpoint_id: CheckpointId, *, finished: bool = False) -> None:
        self._checkpoint_id = checkpoint_id
        self._finished = finished
        self._state = SnapshotState.RUNNING

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self._checkpoint_id

    @property
    def state(self) -> SnapshotState:
        return self._state

    def completed(self) -> tuple[SnapshotCommand, ...]:
        """Acknowledge the stored snapshot, unless it was discarded in the meantime.

        Returns:
            The acknowledgement; the discard of a snapshot that came too late; nothing if it was acknowledged before.
        """
        if self._state is SnapshotState.DISCARDED:
            return (DiscardSnapshot(self._checkpoint_id),)
        if self._state is SnapshotState.COMPLETED:
            return ()
        self._state = SnapshotState.COMPLETED
        return (AcknowledgeCheckpoint(self._checkpoint_id, self._finished),)

    def failed(
        self,
        detail: str,
        *,
        running: bool,
        reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
    ) -> tuple[SnapshotCommand, ...]:
        """Discard the snapshot after a failed upload, and decline the checkpoint if the subtask still runs.

        Args:
            detail: for people.
            running: whether the subtask still runs. A stopped subtask declines nothing: its end says enough.
            reason: the reason of the cause, if it has one.
        Returns:
            Nothing unless this call ends the snapshot. Failures after the first failure or a close add nothing, and
            the worker never deletes acknowledged state.
        """
        if self._state is not SnapshotState.RUNNING:
            return ()
        self._state = SnapshotState.DISCARDED
        ended = (CancelUpload(self._checkpoint_id), *self._dropped())
        return (*ended, DeclineCheckpoint(self._checkpoint_id, reason, detail)) if running else ended

    def close(self) -> tuple[SnapshotCommand, ...]:
        """Discard the snapshot if it is not acknowledged. Idempotent.

        Returns:
            Nothing after COMPLETED: the worker never deletes acknowledged state.
        """
        if self._state is not SnapshotState.RUNNING:
            return ()
        self._state = SnapshotState.DISCARDED
        return (CancelUpload(self._checkpoint_id), *self._dropped())

    def _dropped(self) -> tuple[SnapshotCommand, ...]:
        return (DiscardSnapshot(self._checkpoint_id), RecordIncomplete(self._checkpoint_id))


@dataclass(frozen=True, slots=True)
class SubmitUpload:
    """Start the asynchronous part. Report its end to `snapshot`, then to `SubtaskCoordinator.upload_ended`."""

    checkpoint_id: CheckpointId
    snapshot: AsyncSnapshot
