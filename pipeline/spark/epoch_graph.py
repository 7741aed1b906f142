"""One epoch as one Spark job: source stage, then an exchange and a stage per level (DESIGN 4.2).

The functions that run in Python workers are small classes, so what a task closes over is explicit and picklable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.code import code_hash_of
from pipeline.config.load import LoadedJob
from pipeline.operators.user_code import UserFunction
from pipeline.planning import EpochPlan
from pipeline.protocol.barrier import SubtaskIdentity
from pipeline.protocol.errors import CheckpointError, EnvironmentUnusable
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.object_store import ObjectStore, StoreConfig
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.sinks.build import build_sink
from pipeline.sinks.contract import Sink
from pipeline.spark.exchange import EXCHANGE_SCHEMA
from pipeline.spark.items import Declined, HostEnd, Item, SnapshotStarted
from pipeline.spark.levels import EpochLevels, Level, SqlStep
from pipeline.spark.source_task import SourceSplit, run_source
from pipeline.spark.sql_projection import decode_items, encode_items, project, wide_type
from pipeline.spark.subtask_task import LevelPlan, run_subtask
from pipeline.spark.tail import TailPlan, run_tail
from pipeline.spark.task_memory import Memory, task_memory, told
from pipeline.spark.task_metrics import TaskMetrics
from pipeline.spark.worker_memory import MemoryBudget, worker_budget
from pipeline.storage.layout import metrics_prefix
from pipeline.storage.open import open_store

_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """How a task opens one sink."""

    job: LoadedJob
    name: str
    key: tuple[str, ...]
    store: StoreConfig

    def open(self) -> Sink:
        spec = self.job.spec.sink(self.name)
        return build_sink(spec, job=self.job.spec.name, key=self.key, store=open_store(self.store))


@dataclass(frozen=True, slots=True)
class HostTask:
    """Runs the host of one level in a task: a source split, or the level's stateful operators.

    Attributes:
        metrics_prefix: where each attempt leaves its measurements, relative to the job's root.
        functions: code of every process operator of the job. code_hash: of the package and them, as recorded.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    splits: tuple[SourceSplit, ...]
    stateful: LevelPlan | None
    job_store: StoreConfig
    metrics_prefix: str
    functions: Mapping[str, UserFunction]
    code_hash: str

    def items(self, batches: _Batches, memory: Memory) -> Iterator[Item]:
        context = TaskContext.get()
        assert context is not None
        subtask, attempt = context.partitionId(), context.attemptNumber()
        level = self.stateful.level if self.stateful is not None else 0
        identity = SubtaskIdentity(self.checkpoint_id, self.token, level, subtask)
        running = code_hash_of({uid: function.running_digest() for uid, function in self.functions.items()})
        if self.code_hash != running:
            _drain(batches)
            detail = f"worker runs code {running[:12]}, the epoch was planned by code {self.code_hash[:12]}"
            yield Declined(identity.decline(CheckpointFailureReason.CODE_MISMATCH, detail))
            return
        metrics = TaskMetrics(level, subtask, attempt)
        store = open_store(self.job_store)
        for item in self._bounded(identity, self._host(subtask, batches, store, metrics, memory), memory.budget):
            if isinstance(item, HostEnd):
                try:
                    store.put(self.metrics_prefix + metrics.file_name, metrics.encode())
                except CheckpointError as error:
                    yield Declined(identity.decline_for(error, "metrics", CheckpointFailureReason.IO_EXCEPTION))
                    return
            handed = time.monotonic()
            yield item
            # The tail, and Spark behind it, do their part before this goes on.
            part = "stage_ms" if isinstance(item, SnapshotStarted) else "emit_ms"
            metrics.apart(part, time.monotonic() - handed)

    @staticmethod
    def _bounded(identity: SubtaskIdentity, items: Iterator[Item], budget: MemoryBudget) -> Iterator[Item]:
        """The items; a task that needs more memory than its worker has declines, and says what to set."""
        who = f"level {identity.level}, subtask {identity.subtask}"
        try:
            with told(who, budget):
                yield from items
        except EnvironmentUnusable as error:
            yield Declined(identity.decline_for(error, who, CheckpointFailureReason.ENVIRONMENT_UNUSABLE))

    def _host(
        self, subtask: int, batches: _Batches, store: ObjectStore, metrics: TaskMetrics, memory: Memory
    ) -> Iterator[Item]:
        if self.stateful is not None:
            return run_subtask(self.stateful, subtask, batches, store, metrics, memory)
        _drain(batches)
        split = self.splits[subtask]
        return run_source(split, open_store(split.store), metrics)


@dataclass(frozen=True, slots=True)
class TailTask:
    """Runs the tail of one level in a task."""

    plan: TailPlan
    sinks: tuple[SinkPlan, ...]

    def run(self, items: Iterable[Item], memory: Memory) -> _Batches:
        context = TaskContext.get()
        assert context is not None
        sinks = {sink.name: sink.open() for sink in self.sinks}
        return run_tail(self.plan, context.partitionId(), items, sinks, memory)


@dataclass(frozen=True, slots=True)
class FusedTask:
    """Host and tail in one Python function: a level without SQL."""

    host: HostTask
    tail: TailTask
    spill_directory: str

    def __call__(self, batches: _Batches) -> _Batches:
        with task_memory(self.spill_directory, worker_budget()) as memory:
            yield from self.tail.run(self.host.items(batches, memory), memory)


@dataclass(frozen=True, slots=True)
class WideHost:
    """The host alone, before Spark's projection."""

    host: HostTask
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: _Batches) -> _Batches:
        with task_memory(self.spill_directory, worker_budget()) as memory:
            yield from encode_items(self.host.items(batches, memory), self.sql.hosted)


@dataclass(frozen=True, slots=True)
class WideTail:
    """The tail alone, after Spark's projection."""

    tail: TailTask
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: _Batches) -> _Batches:
        with task_memory(self.spill_directory, worker_budget()) as memory:
            yield from self.tail.run(decode_items(batches, self.sql.kept), memory)


def epoch_frame(session: SparkSession, plan: EpochPlan, epoch: EpochLevels) -> DataFrame:
    """The lazy Spark job of one epoch: its rows are the last level's acknowledgements or declines."""
    subtasks = len(epoch.splits)
    frame = session.range(0, subtasks, 1, subtasks)
    for level in epoch.levels:
        if level.stateful is not None:
            frame = frame.repartitionById(level.stateful.parallelism, "subtask")
        host = HostTask(
            checkpoint_id=plan.checkpoint_id,
            token=plan.token,
            splits=epoch.splits if level.stateful is None else (),
            stateful=level.stateful,
            job_store=plan.job_store,
            metrics_prefix=metrics_prefix(plan.checkpoint_id, plan.token),
            functions={uid: function.code for uid, function in plan.functions.items()},
            code_hash=plan.code_hash,
        )
        frame = _stage(frame, host, TailTask(level.tail, _sinks(plan, level)), level, plan.cache_directory)
    return frame


def _stage(frame: DataFrame, host: HostTask, tail: TailTask, level: Level, spill: str) -> DataFrame:
    rows = _exchange_type()
    if level.sql is None:
        return frame.mapInArrow(FusedTask(host, tail, spill), rows)
    wide = frame.mapInArrow(WideHost(host, level.sql, spill), wide_type(level.sql.hosted))
    projected = project(wide, level.sql.expressions.values(), level.sql.kept)
    return projected.mapInArrow(WideTail(tail, level.sql, spill), rows)


def _sinks(plan: EpochPlan, level: Level) -> tuple[SinkPlan, ...]:
    names = sorted({name for sinks in level.tail.sinks.values() for name in sinks})
    return tuple(SinkPlan(plan.job, name, plan.graph.sink_inputs[name].key, plan.sinks[name]) for name in names)


def _exchange_type() -> StructType:
    return from_arrow_schema(EXCHANGE_SCHEMA)


def _drain(batches: _Batches) -> None:
    for _ in batches:
        pass
