"""The life of one subtask in one epoch: restored once, told what became of earlier checkpoints, ended or cancelled.

It composes the subtask's coordinator: what a notification means is decided there; whether it counts, here. Commands
come back in the order in which the driver executes them.

    CREATED --restore--> RUNNING --end_of_data--> DRAINED --finish--> FINISHED
       any state --cancel--> CANCELED

Source: Flink StreamTask.
"""

from __future__ import annotations

from enum import Enum

from pipeline.protocol.errors import ProtocolViolation
from pipeline.protocol.ids import CheckpointId
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.protocol.subtask import Commands, SubtaskCoordinator


class TaskState(Enum):
    """Where a subtask is in its life."""

    CREATED = "created"
    RUNNING = "running"
    DRAINED = "drained"
    FINISHED = "finished"
    CANCELED = "canceled"


class TaskLifecycle:
    """Decides which notifications and triggers of a subtask count.

    Args:
        subtask: for people: operator and index.
    """

    def __init__(self, subtask: str) -> None:
        self._subtask = subtask
        self._state = TaskState.CREATED
        self._coordinator: SubtaskCoordinator | None = None
        self._last_reported = CheckpointId(0)
        self._final: CheckpointId | None = None

    @property
    def state(self) -> TaskState:
        return self._state

    @property
    def running(self) -> bool:
        """Whether operators may be told anything: restored, and neither finished nor cancelled."""
        return self._state in (TaskState.RUNNING, TaskState.DRAINED)

    @property
    def last_reported(self) -> CheckpointId:
        """The newest checkpoint that this subtask knows to be complete: at first the restored one."""
        return self._last_reported

    @property
    def coordinator(self) -> SubtaskCoordinator:
        """The coordinator of its checkpoints. Raises ProtocolViolation before `restore`."""
        if self._coordinator is None:
            raise ProtocolViolation(f"subtask {self._subtask} was not restored yet. Nothing was changed.")
        return self._coordinator

    def restore(self, checkpoint_id: CheckpointId) -> None:
        """Begin from a checkpoint; 0 is the empty state.

        Raises:
            ProtocolViolation: restored before, or cancelled.
        """
        if self._state is not TaskState.CREATED:
            raise ProtocolViolation(
                f"subtask {self._subtask}: restore of checkpoint {checkpoint_id} refused: it is {self._state.value}."
                " A subtask is restored once. Nothing was changed."
            )
        self._coordinator = SubtaskCoordinator(self._subtask, checkpoint_id)
        self._last_reported = checkpoint_id
        self._state = TaskState.RUNNING

    def refusal(self) -> CheckpointFailureReason | None:
        """Why this subtask cannot take part in a checkpoint now; None when it can.

        Not restored yet: CHECKPOINT_DECLINED_TASK_NOT_READY. Finished or cancelled: CHECKPOINT_DECLINED_TASK_CLOSING.
        """
        if self._state is TaskState.CREATED:
            return CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
        return None if self.running else CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING

    def notify_complete(self, checkpoint_id: CheckpointId) -> Commands:
        """A checkpoint completed. Told again, or told of one before the restored one, it does nothing (I11)."""
        if checkpoint_id <= self._last_reported:
            return ()
        self._last_reported = checkpoint_id
        return self.coordinator.notify_complete(checkpoint_id, running=self.running)

    def notify_aborted(self, checkpoint_id: CheckpointId, latest_completed: CheckpointId) -> Commands:
        """A checkpoint was aborted. First replays the completion that comes with it: it may have been lost (I11)."""
        replayed = self.notify_complete(latest_completed)
        return (*replayed, *self.coordinator.notify_aborted(checkpoint_id, running=self.running))

    def confirm(self, completed: CheckpointId, subsumed: CheckpointId | None) -> Commands:
        """A checkpoint is complete, and with it the newest subsumed one is known: complete first, then subsumed."""
        told = self.notify_complete(completed)
        if subsumed is None:
            return told
        return (*told, *self.coordinator.notify_subsumed(subsumed, running=self.running))

    def end_of_data(self, final: CheckpointId) -> None:
        """The last input is processed; `final` is the first checkpoint taken after it.

        Raises:
            ProtocolViolation: the subtask does not run.
        """
        if self._state is not TaskState.RUNNING:
            raise ProtocolViolation(
                f"subtask {self._subtask}: end of data refused: it is {self._state.value}. Nothing was changed."
            )
        self._state, self._final = TaskState.DRAINED, final

    @property
    def may_finish(self) -> bool:
        """Whether a checkpoint taken after the end of its data is complete: the final one, or any later one."""
        return self._final is not None and self._last_reported >= self._final

    def finish(self) -> Commands:
        """End after the final checkpoint: wait for what is still being uploaded, then close.

        Raises:
            ProtocolViolation: the data has not ended, or no checkpoint after its end is complete.
        """
        if self._state is not TaskState.DRAINED or not self.may_finish:
            raise ProtocolViolation(
                f"subtask {self._subtask}: finish refused: it is {self._state.value}, and the newest complete"
                f" checkpoint is {self._last_reported}, expected one from {self._final} on. Nothing was changed."
            )
        commands = (*self.coordinator.wait_for_pending(), *self.coordinator.close())
        self._state = TaskState.FINISHED
        return commands

    def cancel(self) -> Commands:
        """Give up in any state, also before `restore`; again: nothing. What is acknowledged stays."""
        if self._state in (TaskState.FINISHED, TaskState.CANCELED):
            return ()
        self._state = TaskState.CANCELED
        return () if self._coordinator is None else self._coordinator.close()
