"""Resources that a task's subtasks share, and their work in one epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from milepost.protocol.exchange import ChannelStateResult
from milepost.protocol.subtask import AsyncSnapshot
from milepost.spark.task.input_gate import InputGate
from milepost.spark.task.processing import FrozenTables, Processing
from milepost.spark.wire.channel_files import ChannelFiles
from milepost.spark.wire.epoch_clock import Pacer
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.state.cache import StateCache
from milepost.state.runs import StateHandle


@dataclass(frozen=True, slots=True)
class SubtaskResources:
    """Resources that the subtasks of one Spark task share.

    Attributes:
        upload: uploads an operator's frozen tables under a key prefix, and returns their handles.
        pool: executor of the uploads.
        files: channel state files of the task.
        cache: state cache of the node.
        key_groups: key groups that the subtasks own.
        metrics: metrics of the attempt.
    """

    upload: Callable[[str, FrozenTables, str], Mapping[str, StateHandle]]
    pool: Executor
    files: ChannelFiles
    cache: StateCache
    key_groups: range
    metrics: TaskMetrics


@dataclass(frozen=True, slots=True)
class SubtaskWork:
    """The work of a restored subtask in one epoch."""

    gate: InputGate
    pacer: Pacer
    rows: Processing


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is being uploaded.

    Attributes:
        asynchronous: decides whether it is acknowledged or discarded.
        channel: the subtask's part of the channel state; None if the checkpoint has none.
    """

    asynchronous: AsyncSnapshot
    upload: Future[Mapping[str, StateHandle]]
    channel: ChannelStateResult | None
