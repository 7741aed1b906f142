"""One subtask in one checkpoint: barrier alignment, snapshot and task lifecycle."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.subtask.barrier_events import Alignment as Alignment
    from milepost.protocol.subtask.barrier_events import CheckpointBarrier as CheckpointBarrier
    from milepost.protocol.subtask.barrier_handler import BarrierHandler as BarrierHandler
    from milepost.protocol.subtask.snapshot import AsyncSnapshot as AsyncSnapshot
    from milepost.protocol.subtask.snapshot import SubmitUpload as SubmitUpload
    from milepost.protocol.subtask.subtask import Commands as Commands
    from milepost.protocol.subtask.subtask import SubtaskCommand as SubtaskCommand
    from milepost.protocol.subtask.subtask import SubtaskCoordinator as SubtaskCoordinator
    from milepost.protocol.subtask.subtask_commands import Notification as Notification
    from milepost.protocol.subtask.task_lifecycle import Notifications as Notifications
    from milepost.protocol.subtask.task_lifecycle import TaskLifecycle as TaskLifecycle
else:
    __getattr__, __dir__ = lazy_exports(__name__)
