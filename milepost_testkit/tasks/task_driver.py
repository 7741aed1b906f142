"""A subtask from its restore to its end: a real lifecycle over a real coordinator, without I/O."""

from __future__ import annotations

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.subtask.barrier_events import AbortCheckpoint, InitInputs, TriggerCheckpoint
from milepost.protocol.subtask.subtask_commands import AcknowledgeCheckpoint, Notification, NotifyOperators
from milepost.protocol.subtask.task_lifecycle import TaskLifecycle
from milepost_testkit.tasks.input_gate import InputGate
from milepost_testkit.tasks.subtask_driver import SubtaskDriver, data


class TaskDriver(SubtaskDriver):
    """Executes what a lifecycle and its coordinator ask for.

    Attributes:
        life: the lifecycle; restored.
    """

    def __init__(self, restored: int = 0) -> None:
        super().__init__("join/0")
        self.life = TaskLifecycle("join/0")
        self.life.restore(CheckpointId(restored))
        self.coordinator = self.life.coordinator

    def complete(self, checkpoint_id: int) -> None:
        self.execute(self.life.notify_complete(CheckpointId(checkpoint_id)))

    def abort(self, checkpoint_id: int, latest_completed: int) -> None:
        self.execute(self.life.notify_aborted(CheckpointId(checkpoint_id), CheckpointId(latest_completed)))

    def told(self, what: Notification) -> list[int]:
        """Checkpoints that the operators were notified of, in order."""
        said = [command for command in self.said if isinstance(command, NotifyOperators)]
        return [int(command.checkpoint_id) for command in said if command.what is what]

    def acknowledged(self) -> list[AcknowledgeCheckpoint]:
        return [command for command in self.order if isinstance(command, AcknowledgeCheckpoint)]

    def follow(self, gate: InputGate, *, finished: bool = False) -> None:
        """Carry out the requests of this subtask's barrier handler since the last call."""
        self.in_flight = [data(item.size_bytes, item.name) for item in gate.recorded]
        for command in gate.commands:
            if isinstance(command, InitInputs):
                self.init(command.barrier)
            elif isinstance(command, TriggerCheckpoint):
                self.checkpoint(command.barrier, finished=finished)
            elif isinstance(command, AbortCheckpoint):
                self.execute(self.coordinator.abort_on_barrier(command.checkpoint_id, command.reason, command.detail))
        gate.commands.clear()
        gate.recorded.clear()
