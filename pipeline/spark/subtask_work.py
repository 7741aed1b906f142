"""What the subtasks of one Spark task share, and what each of them works on in one epoch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from pipeline.operators.contract import OperatorRun
from pipeline.protocol.channel_file import ChannelStateResult
from pipeline.protocol.snapshot import AsyncSnapshot
from pipeline.spark.channel_files import ChannelFiles
from pipeline.spark.epoch_clock import Pacer
from pipeline.spark.input_gate import InputGate
from pipeline.spark.task_metrics import TaskMetrics
from pipeline.state.buffers import Buffer
from pipeline.state.handles import StateHandle
from pipeline.state.keyed_state import FrozenState, SubtaskState


@dataclass(frozen=True, slots=True)
class SubtaskResources:
    """What the subtasks of one Spark task share.

    Attributes:
        upload: stores a frozen state below a directory, and returns its handle.
        pool: for uploads. files: of channel state.
    """

    upload: Callable[[FrozenState, str], StateHandle]
    pool: Executor
    files: ChannelFiles
    metrics: TaskMetrics


@dataclass(slots=True)
class Work:
    """What one epoch of a restored subtask works on.

    Attributes:
        fired_us: the firing watermark reached so far. watermark_us: of the inputs, at the end of the epoch.
        unread: per channel, what was in flight when the checkpoint began.
    """

    gate: InputGate
    pacer: Pacer
    state: SubtaskState
    run: OperatorRun
    fired_us: int | None
    watermark_us: int | None
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    unread: dict[int, list[Buffer]] = field(default_factory=dict)


@dataclass(slots=True)
class Snapshot:
    """The snapshot that is being taken."""

    frozen: FrozenState
    channel: ChannelStateResult | None
    asynchronous: AsyncSnapshot | None = None
    upload: Future[StateHandle] | None = None
