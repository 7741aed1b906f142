"""The subtask context is what the subtasks of one Spark task share and work on in one epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from milepost.protocol.exchange import ChannelStateResult
from milepost.protocol.subtask import AsyncSnapshot
from milepost.spark.task.input_gate import InputGate
from milepost.spark.task.processing import FrozenTables, Processing
from milepost.spark.wire.channel_files import ChannelFiles
from milepost.spark.wire.epoch_clock import Pacer
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.state.buffers import Buffer
from milepost.state.cache import StateCache
from milepost.state.runs import StateHandle


@dataclass(frozen=True, slots=True)
class SubtaskResources:
    """What the subtasks of one Spark task share.

    Attributes:
        upload: stores an operator's frozen tables, encoded now below a directory or before; returns their handles.
        pool: for uploads. files: of channel state. cache: of the node, for the key groups that they own.
    """

    upload: Callable[[str, FrozenTables, str], Mapping[str, StateHandle]]
    pool: Executor
    files: ChannelFiles
    cache: StateCache
    key_groups: range
    metrics: TaskMetrics


@dataclass(slots=True)
class SubtaskWork:
    """What one epoch of a restored subtask works on.

    Attributes:
        unread: per channel, what was in flight when the checkpoint began.
    """

    gate: InputGate
    pacer: Pacer
    rows: Processing
    unread: dict[int, list[Buffer]] = field(default_factory=dict)


@dataclass(slots=True)
class Snapshot:
    """The snapshot that is being taken."""

    frozen: FrozenTables
    channel: ChannelStateResult | None
    asynchronous: AsyncSnapshot | None = None
    upload: Future[Mapping[str, StateHandle]] | None = None
