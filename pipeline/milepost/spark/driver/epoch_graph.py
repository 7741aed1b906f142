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
from milepost.spark.driver.sql_projection import decode_output, encode_output, project, wide_type
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
    """Operator stage and output stage in one Python function: a level without SQL."""

    operators: OperatorStage
    output: OutputStage
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from self.output.run(attempt, self.operators.run(attempt, batches))


@dataclass(frozen=True, slots=True)
class WideOperatorStage:
    """The operator stage alone, before Spark's projection."""

    operators: OperatorStage
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from encode_output(self.operators.run(attempt, batches), self.sql.produced)


@dataclass(frozen=True, slots=True)
class WideOutputStage:
    """The output stage alone, after Spark's projection."""

    output: OutputStage
    sql: SqlStep
    spill_directory: str

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.spill_directory) as attempt:
            yield from self.output.run(attempt, decode_output(batches, self.sql.kept, self.sql.columns))


def epoch_frame(session: SparkSession, plan: EpochPlan, epoch: EpochLevels) -> DataFrame:
    """Return the lazy Spark job of one epoch: its rows are the last level's acknowledgements or declines."""
    subtasks = len(epoch.splits)
    frame = session.range(0, subtasks, 1, subtasks)
    for level, operators, output in epoch_tasks(plan, epoch):
        if operators.stateful is not None:
            frame = frame.repartitionById(operators.subtasks, "subtask")
        frame = _stage(frame, operators, output, level, plan.cache_directory)
    return frame


def _stage(frame: DataFrame, operators: OperatorStage, output: OutputStage, level: Level, spill: str) -> DataFrame:
    rows = _exchange_type()
    if level.sql is None:
        return frame.mapInArrow(FusedTask(operators, output, spill), rows)
    wide = frame.mapInArrow(WideOperatorStage(operators, level.sql, spill), wide_type(level.sql.produced))
    projected = project(wide, level.sql.expressions, level.sql.columns)
    return projected.mapInArrow(WideOutputStage(output, level.sql, spill), rows)


def _exchange_type() -> StructType:
    return from_arrow_schema(EXCHANGE_SCHEMA)
