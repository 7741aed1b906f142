"""The asynchronous part of one subtask's snapshot: it is acknowledged or discarded, and only one of the two.

One compare-and-set decides: RUNNING -> COMPLETED or RUNNING -> DISCARDED. Both sides of the race, the upload that ends
and whoever closes the snapshot, ask the same object; it holds no lock, so its driver calls it under one.

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
    """Where the asynchronous part is. COMPLETED and DISCARDED are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    DISCARDED = "discarded"


class AsyncSnapshot:
    """One snapshot between the freezing of its state and its acknowledgement.

    Args:
        checkpoint_id: what it is a part of.
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
        """Everything is stored: acknowledge, unless somebody discarded the snapshot meanwhile.

        Returns:
            The acknowledgement; or the discard of what arrived too late; nothing when it was acknowledged before.
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
        """A part of the upload failed: discard, and decline if the subtask still runs.

        Args:
            detail: for people.
            running: whether the subtask still runs; one that stopped declines nothing, its end says enough.
            reason: the cause's own reason where it has one.
        Returns:
            Nothing unless this is what ends the snapshot: what follows a first failure or a close says nothing new,
            and acknowledged state is never deleted by the worker.
        """
        if self._state is not SnapshotState.RUNNING:
            return ()
        self._state = SnapshotState.DISCARDED
        ended = (CancelUpload(self._checkpoint_id), *self._dropped())
        return (*ended, DeclineCheckpoint(self._checkpoint_id, reason, detail)) if running else ended

    def close(self) -> tuple[SnapshotCommand, ...]:
        """Give the snapshot up if it is not acknowledged. Idempotent.

        Returns:
            Nothing after COMPLETED: acknowledged state is never deleted by the worker.
        """
        if self._state is not SnapshotState.RUNNING:
            return ()
        self._state = SnapshotState.DISCARDED
        return (CancelUpload(self._checkpoint_id), *self._dropped())

    def _dropped(self) -> tuple[SnapshotCommand, ...]:
        return (DiscardSnapshot(self._checkpoint_id), RecordIncomplete(self._checkpoint_id))


@dataclass(frozen=True, slots=True)
class SubmitUpload:
    """Start the asynchronous part; its end is reported to `snapshot`, then to `SubtaskCoordinator.upload_ended`."""

    checkpoint_id: CheckpointId
    snapshot: AsyncSnapshot
