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
from milepost.spark.task.levels import EpochLevels, Level
from milepost.spark.task.row_steps.lookup_stage import LookupStage
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.exchange import EXCHANGE_SCHEMA
from milepost.spark.worker.task_memory import PlannedMemory, task_memory
from milepost.spark.worker.worker_memory import MemoryBudget, worker_limit


@contextmanager
def _attempt(planned: PlannedMemory) -> Iterator[Attempt]:
    """The attempt that this worker runs."""
    context = TaskContext.get()
    assert context is not None
    with task_memory(planned.directory, MemoryBudget(planned.bytes, worker_limit())) as memory:
        yield Attempt(context.partitionId(), context.attemptNumber(), memory)


@dataclass(frozen=True, slots=True)
class FusedTask:
    """Operator stage and output stage in one Python function: a level without SQL."""

    operators: OperatorStage
    lookups: LookupStage
    output: OutputStage
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            yield from self.output.run(attempt, self.lookups.run(attempt, self.operators.run(attempt, batches)))


@dataclass(frozen=True, slots=True)
class WideOperatorStage:
    """The operator stage alone, before Spark's projection."""

    operators: OperatorStage
    lookups: LookupStage
    sql: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.lookups.run(attempt, self.operators.run(attempt, batches))
            yield from encode_output(items, self.sql.produced)


@dataclass(frozen=True, slots=True)
class WideLookupStage:
    """Lookups between two projections of Spark's.

    Attributes:
        sql: the projection before. then: the one behind.
    """

    sql: SqlStep
    then: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.sql.lookups.run(attempt, decode_output(batches, self.sql.kept, self.sql.columns))
            yield from encode_output(items, self.then.produced)


@dataclass(frozen=True, slots=True)
class WideOutputStage:
    """The output stage alone, after Spark's projection."""

    output: OutputStage
    sql: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.sql.lookups.run(attempt, decode_output(batches, self.sql.kept, self.sql.columns))
            yield from self.output.run(attempt, items)


def epoch_frame(session: SparkSession, plan: EpochPlan, epoch: EpochLevels, task_bytes: int) -> DataFrame:
    """Return the lazy Spark job of one epoch: its rows are the last level's acknowledgements or declines.

    Args:
        task_bytes: what each of its tasks may hold.
    """
    memory = PlannedMemory(task_bytes, plan.cache_directory)
    subtasks = len(epoch.splits)
    frame = session.range(0, subtasks, 1, subtasks)
    for level, operators, output in epoch_tasks(plan, epoch):
        if operators.stateful is not None:
            frame = frame.repartitionById(operators.subtasks, "subtask")
        frame = _stage(frame, operators, output, level, memory)
    return frame


def _stage(
    frame: DataFrame, operators: OperatorStage, output: OutputStage, level: Level, memory: PlannedMemory
) -> DataFrame:
    rows, lookups, sql = _exchange_type(), level.row_wise.lookups, level.row_wise.sql
    if sql is None:
        return frame.mapInArrow(FusedTask(operators, lookups, output, memory), rows)
    frame = frame.mapInArrow(WideOperatorStage(operators, lookups, sql, memory), wide_type(sql.produced))
    for step in level.row_wise.steps:
        frame = project(frame, step.expressions, step.columns)
        if step.then is not None:
            frame = frame.mapInArrow(WideLookupStage(step, step.then, memory), wide_type(step.then.produced))
        else:
            frame = frame.mapInArrow(WideOutputStage(output, step, memory), rows)
    return frame


def _exchange_type() -> StructType:
    return from_arrow_schema(EXCHANGE_SCHEMA)
