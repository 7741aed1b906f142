"""One epoch as one Spark job: source stage, then an exchange and a stage per level (DESIGN 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from milepost.epoch.plan import EpochPlan
from milepost.spark.driver.sql_projection import decode_items, encode_items, project, wide_type
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import Batches, OperatorStage, OutputStage, epoch_tasks
from milepost.spark.task.levels import EpochLevels, Level, SqlStep
from milepost.spark.wire.exchange import EXCHANGE_SCHEMA
from milepost.spark.worker.task_memory import task_memory
from milepost.spark.worker.worker_memory import worker_budget


@contextmanager
def _attempt(spill_directory: str) -> Iterator[Attempt]:
    """The attempt that this worker runs."""
    context = TaskContext.get()
    assert context is not None
    with task_memory(spill_directory, worker_budget()) as memory:
        yield Attempt(context.partitionId(), context.attemptNumber(), memory)


@dataclass(frozen=True, slots=True)
class FusedTask:
    """Host and tail in one Python function: a level without SQL."""

    host: OperatorStage
    tail: OutputStage
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from self.tail.run(attempt, self.host.items(attempt, batches))


@dataclass(frozen=True, slots=True)
class WideOperatorStage:
    """The host alone, before Spark's projection."""

    host: OperatorStage
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from encode_items(self.host.items(attempt, batches), self.sql.hosted)


@dataclass(frozen=True, slots=True)
class WideOutputStage:
    """The tail alone, after Spark's projection."""

    tail: OutputStage
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from self.tail.run(attempt, decode_items(batches, self.sql.kept))


def epoch_frame(session: SparkSession, plan: EpochPlan, epoch: EpochLevels) -> DataFrame:
    """Return the lazy Spark job of one epoch: its rows are the last level's acknowledgements or declines."""
    subtasks = len(epoch.splits)
    frame = session.range(0, subtasks, 1, subtasks)
    for level, host, tail in epoch_tasks(plan, epoch):
        if host.stateful is not None:
            frame = frame.repartitionById(host.subtasks, "subtask")
        frame = _stage(frame, host, tail, level, plan.cache_directory)
    return frame


def _stage(frame: DataFrame, host: OperatorStage, tail: OutputStage, level: Level, spill: str) -> DataFrame:
    rows = _exchange_type()
    if level.sql is None:
        return frame.mapInArrow(FusedTask(host, tail, spill), rows)
    wide = frame.mapInArrow(WideOperatorStage(host, level.sql, spill), wide_type(level.sql.hosted))
    projected = project(wide, level.sql.expressions.values(), level.sql.kept)
    return projected.mapInArrow(WideOutputStage(tail, level.sql, spill), rows)


def _exchange_type() -> StructType:
    return from_arrow_schema(EXCHANGE_SCHEMA)
