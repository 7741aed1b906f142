"""One epoch as one Spark job: source stage, then an exchange and a stage per level (DESIGN 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from milepost.epoch import EpochPlan
from milepost.spark.driver.sql_projection import decode_output, encode_output, project, wide_type
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import Batches, OperatorStage, OutputStage, epoch_tasks
from milepost.spark.task.planning.levels import EpochLevels, Level
from milepost.spark.task.row_steps.lookup_stage import LookupStage
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.task.row_steps.sql_expression import SqlExpression
from milepost.spark.wire.exchange import EXCHANGE_SCHEMA
from milepost.spark.worker.task_context import current_task_context
from milepost.spark.worker.task_memory import PlannedMemory, task_memory
from milepost.spark.worker.worker_memory import MemoryBudget, apply_worker_limit


@contextmanager
def _attempt(planned: PlannedMemory) -> Iterator[Attempt]:
    """The attempt that this worker runs."""
    task = current_task_context()
    with task_memory(planned.directory, MemoryBudget(planned.bytes, apply_worker_limit())) as memory:
        yield Attempt(task.partitionId(), task.attemptNumber(), memory)


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
            yield from encode_output(items, self.sql.input_schemas)


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
            items = self.sql.lookups.run(attempt, decode_output(batches, self.sql.output_schemas, self.sql.columns))
            yield from encode_output(items, self.then.input_schemas)


@dataclass(frozen=True, slots=True)
class WideOutputStage:
    """The output stage alone, after Spark's projection."""

    output: OutputStage
    sql: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.sql.lookups.run(attempt, decode_output(batches, self.sql.output_schemas, self.sql.columns))
            yield from self.output.run(attempt, items)


Task = Callable[[Batches], Batches]
"""What Spark's workers run; it is pickled for them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark runs in one Python function, and what it does with the rows before.

    Attributes:
        task: what each task does with its rows. rows: what it yields.
        receivers: subtasks that the rows before are handed to, by their column `subtask`; None: each task goes on
            with its own. expressions, columns: the projection of those rows, as of `project`; None: there is none.
    """

    task: Task
    rows: StructType
    receivers: int | None = None
    expressions: tuple[SqlExpression, ...] = ()
    columns: Mapping[str, tuple[str, ...]] | None = None


def epoch_stages(plan: EpochPlan, epoch: EpochLevels, task_bytes: int) -> tuple[Stage, ...]:
    """Return the stages of an epoch's job, in order.

    Args:
        task_bytes: what each of its tasks may hold.
    """
    memory = PlannedMemory(task_bytes, plan.cache_directory)
    return tuple(
        stage
        for level, operators, output in epoch_tasks(plan, epoch)
        for stage in _level_stages(operators, output, level, memory)
    )


def epoch_frame(session: SparkSession, subtasks: int, stages: Iterable[Stage]) -> DataFrame:
    """Return the lazy Spark job of these stages: its rows are the last level's acknowledgements or declines.

    Args:
        subtasks: of the sources.
    """
    frame = session.range(0, subtasks, 1, subtasks)
    for stage in stages:
        if stage.receivers is not None:
            frame = frame.repartitionById(stage.receivers, "subtask")
        if stage.columns is not None:
            frame = project(frame, stage.expressions, stage.columns)
        frame = frame.mapInArrow(stage.task, stage.rows)
    return frame


def _level_stages(
    operators: OperatorStage, output: OutputStage, level: Level, memory: PlannedMemory
) -> Iterator[Stage]:
    receivers = None if operators.stateful is None else operators.subtasks
    rows, lookups, sql = from_arrow_schema(EXCHANGE_SCHEMA), level.row_wise.lookups, level.row_wise.sql
    if sql is None:
        yield Stage(FusedTask(operators, lookups, output, memory), rows, receivers)
        return
    yield Stage(WideOperatorStage(operators, lookups, sql, memory), wide_type(sql.input_schemas), receivers)
    for step in level.row_wise.steps:
        if step.next_step is not None:
            behind = Stage(WideLookupStage(step, step.next_step, memory), wide_type(step.next_step.input_schemas))
        else:
            behind = Stage(WideOutputStage(output, step, memory), rows)
        yield replace(behind, expressions=step.expressions, columns=step.columns)
