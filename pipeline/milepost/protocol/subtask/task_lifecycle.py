"""The life of one subtask in one epoch: restored once, told of earlier checkpoints, ended, failed or given up.

It composes the subtask's coordinator: what a notification means is decided there; whether it counts, here. Commands
come back in the order in which the driver executes them.

    CREATED --restore--> RUNNING --end_of_data--> DRAINED
    RUNNING, DRAINED --finish--> CLOSING --close--> FINISHED
    any but an end --fail--> FAILED, --close--> CANCELED

A Spark task lives for one epoch, so a subtask finishes in every epoch, once its snapshot is stored. `end_of_data` is of
the last epoch alone: then it finishes only after it has taken part in a checkpoint that was begun after its data ended.
Whether that checkpoint completed is not known until the Spark job is over: the job waits for it (`incarnation.finish`).

Source: Flink StreamTask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.subtask import Commands, SubtaskCoordinator
from milepost.protocol.subtask.subtask_commands import BroadcastCancelMarker, DeclineCheckpoint


class TaskState(Enum):
    """Where a subtask is in its life. FINISHED, FAILED and CANCELED are final."""

    CREATED = "created"
    RUNNING = "running"
    DRAINED = "drained"
    CLOSING = "closing"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"


_RUNNING = (TaskState.RUNNING, TaskState.DRAINED)
_REFUSALS = {
    TaskState.CREATED: CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY,
    TaskState.CLOSING: CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
    TaskState.FINISHED: CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
    TaskState.CANCELED: CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
    TaskState.FAILED: CheckpointFailureReason.TASK_FAILURE,
}


@dataclass(frozen=True, slots=True)
class Notifications:
    """Notifications tell a subtask what became of other checkpoints: its predecessor may not have heard (I11).

    Attributes:
        reported: the newest completed checkpoint that its predecessor was told of; 0 for none.
        completed: the newest one that there is; 0 for none. aborted: ids given up since, ascending.
        subsumed: nothing can return to this checkpoint or an older one any more; 0 while all are retained.
    """

    reported: CheckpointId = NO_CHECKPOINT
    completed: CheckpointId = NO_CHECKPOINT
    aborted: tuple[CheckpointId, ...] = ()
    subsumed: CheckpointId = NO_CHECKPOINT


class TaskLifecycle:
    """Decides which notifications and triggers of a subtask count.

    Args:
        subtask: for people: operator and index.
    """

    def __init__(self, subtask: str) -> None:
        self._subtask = subtask
        self._state = TaskState.CREATED
        self._coordinator: SubtaskCoordinator | None = None
        self._last_reported = NO_CHECKPOINT
        self._final: CheckpointId | None = None

    @property
    def state(self) -> TaskState:
        return self._state

    @property
    def running(self) -> bool:
        """Whether operators may be told anything: restored, and not closing or at an end."""
        return self._state in _RUNNING

    @property
    def answers(self) -> bool:
        """Whether a snapshot of it that fails is declined: a subtask that closes still waits for its uploads."""
        return self.running or self._state is TaskState.CLOSING

    @property
    def last_reported(self) -> CheckpointId:
        """The newest checkpoint that this subtask, or its predecessor, was told to be complete."""
        return self._last_reported

    @property
    def coordinator(self) -> SubtaskCoordinator:
        """The coordinator of its checkpoints. Raises ProtocolViolation before `restore`."""
        if self._coordinator is None:
            raise ProtocolViolation(f"subtask {self._subtask} was not restored yet. Nothing was changed.")
        return self._coordinator

    def restore(self, checkpoint_id: CheckpointId, reported: CheckpointId | None = None) -> None:
        """Begin from a checkpoint; 0 is the empty state.

        Args:
            reported: the newest completed checkpoint that its predecessor was told of; None: the restored one.
        Raises:
            ProtocolViolation: restored before, or at an end.
        """
        if self._state is not TaskState.CREATED:
            raise self._illegal(f"restore of checkpoint {checkpoint_id}", "a subtask that was never restored")
        self._coordinator = SubtaskCoordinator(self._subtask, checkpoint_id)
        self._last_reported = checkpoint_id if reported is None else reported
        self._state = TaskState.RUNNING

    def refusal(self) -> CheckpointFailureReason | None:
        """Return why this subtask cannot take part in a checkpoint now; None when it can.

        Not restored yet: CHECKPOINT_DECLINED_TASK_NOT_READY. Closing, finished or canceled:
        CHECKPOINT_DECLINED_TASK_CLOSING. Failed: TASK_FAILURE.
        """
        return _REFUSALS.get(self._state)

    def refuse(self, checkpoint_id: CheckpointId) -> Commands:
        """Answer a checkpoint that this subtask cannot take part in: receivers must not wait for its barrier.

        Returns: the cancel marker, then the decline; nothing when it can take part.
        """
        reason = self.refusal()
        if reason is None:
            return ()
        detail = f"subtask {self._subtask} is {self._state.value}"
        return BroadcastCancelMarker(checkpoint_id), DeclineCheckpoint(checkpoint_id, reason, detail)

    def notify_complete(self, checkpoint_id: CheckpointId) -> Commands:
        """A checkpoint completed. Told again, or told of one before the restored one, it does nothing (I11)."""
        if checkpoint_id <= self._last_reported:
            return ()
        commands = self.coordinator.notify_complete(checkpoint_id, running=self.running)
        self._last_reported = checkpoint_id
        return commands

    def notify_aborted(self, checkpoint_id: CheckpointId, latest_completed: CheckpointId) -> Commands:
        """A checkpoint was aborted.

        First replays the completion that comes with it: it may have been lost (I11).
        """
        replayed = self.notify_complete(latest_completed)
        return (*replayed, *self.coordinator.notify_aborted(checkpoint_id, running=self.running))

    def confirm(self, completed: CheckpointId, subsumed: CheckpointId) -> Commands:
        """A checkpoint is complete, and with it the newest subsumed one is known.

        Complete first, then subsumed.
        """
        completion = self.notify_complete(completed)
        if subsumed == NO_CHECKPOINT:
            return completion
        return (*completion, *self.coordinator.notify_subsumed(subsumed, running=self.running))

    def notify(self, what: Notifications) -> Commands:
        """Everything that became of other checkpoints.

        The latest completed first, then the aborted, then subsumed.
        """
        aborted = [command for one in what.aborted for command in self.notify_aborted(one, what.completed)]
        return (*aborted, *self.confirm(what.completed, what.subsumed))

    def end_of_data(self, final: CheckpointId) -> None:
        """The last input of the job is processed; `final` is the first checkpoint taken after it.

        Raises:
            ProtocolViolation: the subtask does not run, its data has ended before, or `final` is not a newer
                checkpoint than any it took part in.
        """
        if self._state is not TaskState.RUNNING or final <= self.coordinator.last_id:
            raise self._illegal(f"end of data before checkpoint {final}", "a running subtask and a newer checkpoint")
        self._state, self._final = TaskState.DRAINED, final

    def finish(self) -> Commands:
        """End: take no more checkpoints, and wait for what is still being uploaded, however that ends; then `close`.

        Raises:
            ProtocolViolation: the subtask does not run; or its data has ended and it took part in no checkpoint since.
        """
        if not self.running:
            raise self._illegal("finish", "a running subtask")
        coordinator = self.coordinator
        if self._final is not None and coordinator.last_id < self._final:
            raise self._illegal("finish", f"a part in checkpoint {self._final} or a later one")
        self._state = TaskState.CLOSING
        return coordinator.wait_for_pending()

    def close(self) -> Commands:
        """Release what is left, after `finish` and what it waits for; who did not finish is given up, in any state."""
        return self._end(TaskState.FINISHED if self._state is TaskState.CLOSING else TaskState.CANCELED)

    def fail(self) -> Commands:
        """An error that is no answer to a checkpoint ends the subtask: what is not acknowledged is discarded."""
        return self._end(TaskState.FAILED)

    def _end(self, state: TaskState) -> Commands:
        if self._state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELED):
            return ()
        self._state = state
        return () if self._coordinator is None else self._coordinator.close()

    def _illegal(self, what: str, expected: str) -> ProtocolViolation:
        newest = self._coordinator.last_id if self._coordinator is not None else NO_CHECKPOINT
        return ProtocolViolation(
            f"subtask {self._subtask}: {what} refused: expected {expected}; it is {self._state.value}, its newest"
            f" checkpoint is {newest}. Nothing was changed."
        )
