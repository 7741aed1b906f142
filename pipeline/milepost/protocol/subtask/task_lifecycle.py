"""Lifecycle of one subtask in one epoch: restore, notifications of earlier checkpoints, end or failure.

It wraps the subtask's coordinator: the lifecycle decides whether a notification counts, the coordinator what follows
from it. Commands are executed by the driver in the order in which they are returned.

    CREATED --restore--> RUNNING --end_of_data--> DRAINED
    RUNNING, DRAINED --finish--> CLOSING --close--> FINISHED
    any but a final state --fail--> FAILED, --close--> CANCELED

A Spark task lives for one epoch, so a subtask finishes in every epoch, once its snapshot is stored. `end_of_data` only
happens in the last epoch. Then the subtask finishes only after it has taken part in a checkpoint that started after
the end of its data. Whether that checkpoint completed is known only after the Spark job: the job checks that
(`incarnation.finish`).

Source: Flink StreamTask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.errors import ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.subtask import Commands, SubtaskCoordinator
from milepost.protocol.subtask.subtask_commands import BroadcastCancelMarker, DeclineCheckpoint


class TaskState(Enum):
    """State in a subtask's lifecycle. FINISHED, FAILED and CANCELED are final."""

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
    """Outcomes of other checkpoints, reported to a subtask because its predecessor may not have got them (I11).

    Attributes:
        reported: newest completed checkpoint reported to its predecessor; 0 for none.
        completed: newest completed checkpoint; 0 for none. aborted: ids aborted since, ascending.
        subsumed: nothing can return to this checkpoint or an older one; 0 while all are retained.
    """

    reported: CheckpointId = NO_CHECKPOINT
    completed: CheckpointId = NO_CHECKPOINT
    aborted: tuple[CheckpointId, ...] = ()
    subsumed: CheckpointId = NO_CHECKPOINT


class TaskLifecycle:
    """Decide which notifications and triggers of a subtask count.

    Args:
        subtask: operator and index, for people.
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
        """Whether operators may be notified: restored, and neither closing nor in a final state."""
        return self._state in _RUNNING

    @property
    def answers(self) -> bool:
        """Whether a failed snapshot is declined: a closing subtask still waits for its uploads."""
        return self.running or self._state is TaskState.CLOSING

    @property
    def last_reported(self) -> CheckpointId:
        """Newest checkpoint reported as complete to this subtask or to its predecessor."""
        return self._last_reported

    @property
    def coordinator(self) -> SubtaskCoordinator:
        """The coordinator of its checkpoints. Raises ProtocolViolation before `restore`."""
        if self._coordinator is None:
            raise ProtocolViolation(f"subtask {self._subtask} was not restored yet. Nothing was changed.")
        return self._coordinator

    def restore(self, checkpoint_id: CheckpointId, reported: CheckpointId | None = None) -> None:
        """Start from a checkpoint; 0 is the empty state.

        Args:
            reported: newest completed checkpoint reported to its predecessor; None: the restored one.
        Raises:
            ProtocolViolation: restored before, or in a final state.
        """
        if self._state is not TaskState.CREATED:
            raise self._illegal(f"restore of checkpoint {checkpoint_id}", "a subtask that was never restored")
        self._coordinator = SubtaskCoordinator(self._subtask, checkpoint_id)
        self._last_reported = checkpoint_id if reported is None else reported
        self._state = TaskState.RUNNING

    def refusal(self) -> CheckpointFailureReason | None:
        """Return why this subtask cannot take part in a checkpoint now; None if it can.

        Not restored yet: CHECKPOINT_DECLINED_TASK_NOT_READY. Closing, finished or canceled:
        CHECKPOINT_DECLINED_TASK_CLOSING. Failed: TASK_FAILURE.
        """
        return _REFUSALS.get(self._state)

    def refuse(self, checkpoint_id: CheckpointId) -> Commands:
        """Refuse a checkpoint that this subtask cannot take part in, so that receivers do not wait for its barrier.

        Returns:
            The cancel marker, then the decline; nothing if it can take part.
        """
        reason = self.refusal()
        if reason is None:
            return ()
        detail = f"subtask {self._subtask} is {self._state.value}"
        return BroadcastCancelMarker(checkpoint_id), DeclineCheckpoint(checkpoint_id, reason, detail)

    def notify_complete(self, checkpoint_id: CheckpointId) -> Commands:
        """Report a completed checkpoint. Repeated reports, and those before the restored one, are ignored (I11)."""
        if checkpoint_id <= self._last_reported:
            return ()
        commands = self.coordinator.notify_complete(checkpoint_id, running=self.running)
        self._last_reported = checkpoint_id
        return commands

    def notify_aborted(self, checkpoint_id: CheckpointId, latest_completed: CheckpointId) -> Commands:
        """Report an aborted checkpoint.

        The latest completion comes with it and is replayed first, because it may have been lost (I11).
        """
        replayed = self.notify_complete(latest_completed)
        return (*replayed, *self.coordinator.notify_aborted(checkpoint_id, running=self.running))

    def confirm(self, completed: CheckpointId, subsumed: CheckpointId) -> Commands:
        """Report a completed checkpoint, then the newest subsumed one."""
        completion = self.notify_complete(completed)
        if subsumed == NO_CHECKPOINT:
            return completion
        return (*completion, *self.coordinator.notify_subsumed(subsumed, running=self.running))

    def notify(self, what: Notifications) -> Commands:
        """Report all outcomes of other checkpoints: the latest completion, then aborts, then subsumption."""
        aborted = [
            command for checkpoint_id in what.aborted for command in self.notify_aborted(checkpoint_id, what.completed)
        ]
        return (*aborted, *self.confirm(what.completed, what.subsumed))

    def end_of_data(self, final: CheckpointId) -> None:
        """Record that the job's last input is processed; `final` is the first checkpoint taken after it.

        Raises:
            ProtocolViolation: the subtask does not run, its data has ended before, or `final` is not newer than every
                checkpoint it took part in.
        """
        if self._state is not TaskState.RUNNING or final <= self.coordinator.last_id:
            raise self._illegal(f"end of data before checkpoint {final}", "a running subtask and a newer checkpoint")
        self._state, self._final = TaskState.DRAINED, final

    def finish(self) -> Commands:
        """Take no more checkpoints, and wait for running uploads; `close` comes next.

        Raises:
            ProtocolViolation: the subtask does not run, or it took part in no checkpoint since its data ended.
        """
        if not self.running:
            raise self._illegal("finish", "a running subtask")
        coordinator = self.coordinator
        if self._final is not None and coordinator.last_id < self._final:
            raise self._illegal("finish", f"a part in checkpoint {self._final} or a later one")
        self._state = TaskState.CLOSING
        return coordinator.wait_for_pending()

    def close(self) -> Commands:
        """Release what remains, after `finish` and its uploads. A subtask that did not finish is canceled."""
        return self._end(TaskState.FINISHED if self._state is TaskState.CLOSING else TaskState.CANCELED)

    def fail(self) -> Commands:
        """End the subtask after an error that is not a decline; discard what is not acknowledged."""
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
