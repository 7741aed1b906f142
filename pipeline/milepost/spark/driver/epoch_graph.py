"""Build an epoch's Spark job: a source stage, then an exchange per level.

See DESIGN 4.2. A job with two stateful levels, the second of which has SQL::

    range(sources) -> FusedTask
                   -> exchange by subtask -> FusedTask
                   -> exchange by subtask -> WideOperatorStage -> projection -> WideOutputStage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from milepost.epoch import EpochPlan
from milepost.spark.driver.compat import exchange, from_arrow_schema
from milepost.spark.driver.sql_projection import decode_output, encode_output, project, wide_type
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import Batches, OperatorStage, OutputStage, epoch_tasks
from milepost.spark.task.planning.levels import EpochLevels, Level
from milepost.spark.task.row_steps.python_stage import PythonStage
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.task.row_steps.sql_expression import SqlExpression
from milepost.spark.wire.exchange import EXCHANGE_SCHEMA
from milepost.spark.worker.task_context import current_task_context
from milepost.spark.worker.task_memory import PlannedMemory, task_memory
from milepost.spark.worker.worker_memory import MemoryBudget, apply_worker_limit


@contextmanager
def _attempt(planned: PlannedMemory) -> Iterator[Attempt]:
    """Open the attempt that this worker runs."""
    task = current_task_context()
    with task_memory(planned.directory, MemoryBudget(planned.bytes, apply_worker_limit())) as memory:
        yield Attempt(task.partitionId(), task.attemptNumber(), memory)


@dataclass(frozen=True, slots=True)
class FusedTask:
    """The operator stage and the output stage in one Python function, for a level without a Spark projection."""

    operators: OperatorStage
    python_stage: PythonStage
    output: OutputStage
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            yield from self.output.run(attempt, self.python_stage.run(attempt, self.operators.run(attempt, batches)))


@dataclass(frozen=True, slots=True)
class WideOperatorStage:
    """The operator stage of a level with a Spark projection, which follows it."""

    operators: OperatorStage
    python_stage: PythonStage
    sql: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.python_stage.run(attempt, self.operators.run(attempt, batches))
            yield from encode_output(items, self.sql.input_schemas, self.sql.unread_schemas)


@dataclass(frozen=True, slots=True)
class WidePythonStage:
    """The Python stage between two Spark projections.

    Attributes:
        sql: the upstream projection.
        then: the downstream projection.
    """

    sql: SqlStep
    then: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.sql.python_stage.run(
                attempt, decode_output(batches, self.sql.output_schemas, self.sql.columns)
            )
            yield from encode_output(items, self.then.input_schemas, self.then.unread_schemas)


@dataclass(frozen=True, slots=True)
class WideOutputStage:
    """The output stage of a level with Spark projections. It follows the last one."""

    output: OutputStage
    sql: SqlStep
    memory: PlannedMemory

    def __call__(self, batches: Batches) -> Batches:
        with _attempt(self.memory) as attempt:
            items = self.sql.python_stage.run(
                attempt, decode_output(batches, self.sql.output_schemas, self.sql.columns)
            )
            yield from self.output.run(attempt, items)


Task = Callable[[Batches], Batches]
"""The function that Spark pickles and runs in its Python workers."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One Python function of the job, and how Spark exchanges and projects its input.

    Attributes:
        task: the function that each task applies to its rows.
        rows: type of the rows that it yields.
        receivers: number of subtasks that the input is exchanged to, by its column `subtask`. None: no exchange.
        expressions, columns: projection of the input, see `project`. `columns` is None without a projection.
    """

    task: Task
    rows: StructType
    receivers: int | None = None
    expressions: tuple[SqlExpression, ...] = ()
    columns: Mapping[str, tuple[str, ...]] | None = None


def epoch_stages(plan: EpochPlan, epoch: EpochLevels, task_bytes: int) -> tuple[Stage, ...]:
    """Return the stages of an epoch's job, in order.

    Args:
        task_bytes: memory budget of each task.
    """
    memory = PlannedMemory(task_bytes, plan.cache_directory)
    return tuple(
        stage
        for level, operators, output in epoch_tasks(plan, epoch)
        for stage in _level_stages(operators, output, level, memory)
    )


def epoch_frame(session: SparkSession, subtasks: int, stages: Iterable[Stage]) -> DataFrame:
    """Return the lazy Spark job of these stages. It returns the last level's acknowledgements or declines.

    Args:
        subtasks: number of source subtasks.
    """
    frame = session.range(0, subtasks, 1, subtasks)
    for stage in stages:
        if stage.receivers is not None:
            frame = exchange(frame, stage.receivers)
        if stage.columns is not None:
            frame = project(frame, stage.expressions, stage.columns)
        frame = frame.mapInArrow(stage.task, stage.rows)
    return frame


def _level_stages(
    operators: OperatorStage, output: OutputStage, level: Level, memory: PlannedMemory
) -> Iterator[Stage]:
    receivers = None if operators.stateful is None else operators.subtasks
    rows, python_stage, sql = from_arrow_schema(EXCHANGE_SCHEMA), level.row_wise.python_stage, level.row_wise.sql
    if sql is None:
        yield Stage(FusedTask(operators, python_stage, output, memory), rows, receivers)
        return
    yield Stage(WideOperatorStage(operators, python_stage, sql, memory), wide_type(sql.input_schemas), receivers)
    for step in level.row_wise.steps:
        if step.next_step is not None:
            next_stage = Stage(WidePythonStage(step, step.next_step, memory), wide_type(step.next_step.input_schemas))
        else:
            next_stage = Stage(WideOutputStage(output, step, memory), rows)
        yield replace(next_stage, expressions=step.expressions, columns=step.columns)
