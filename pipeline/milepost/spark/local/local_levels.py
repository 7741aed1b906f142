"""Run the levels of an epoch in this process, one task after another.

Tasks run the same code as in Spark's workers, except that uploads are synchronous. The shuffle is a list of rows. There
are no worker processes and no retries, and only SQL uses the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.epoch import EpochPlan
from milepost.protocol.exchange import SubtaskAnswer
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.spark.task.attempt import Attempt, wall_clock_ms
from milepost.spark.task.epoch_tasks import OperatorStage, OutputStage, subtask_answers
from milepost.spark.task.planning.levels import Level
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.epoch_clock import Clock
from milepost.spark.wire.task_output import TaskOutput
from milepost.spark.worker.task_memory import task_memory
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.storage import open_store

Tasks = tuple[Level, OperatorStage, OutputStage]
"""A level and the stages of its tasks, as `epoch_tasks` yields them."""

Projection = Callable[[SqlStep | None, Iterable[TaskOutput]], Iterable[TaskOutput]]
"""Evaluate one projection between a task's stages. The step is None for a level without a Spark projection."""


@dataclass(frozen=True, slots=True)
class LocalEnvironment:
    """The environment of the tasks.

    Attributes:
        opener: opens their stores.
        budget: memory budget of each task.
        clock: wall clock in milliseconds, for deadlines.
    """

    opener: Callable[[StoreConfig], ObjectStore] = open_store
    budget: MemoryBudget = UNLIMITED
    clock: Clock = wall_clock_ms


def run_levels(
    plan: EpochPlan, tasks: Iterable[Tasks], project: Projection, environment: LocalEnvironment | None = None
) -> tuple[SubtaskAnswer, ...]:
    """Run every task of every level. Return the answers of the last level's subtasks.

    Args:
        plan: plan of the epoch. Tasks also spill into its `cache_directory`.
    """
    environment = environment or LocalEnvironment()
    rows: list[pa.RecordBatch] = []
    for level, operators, output in tasks:
        sent: list[pa.RecordBatch] = []
        for subtask in range(operators.subtasks):
            with task_memory(plan.cache_directory, environment.budget) as memory:
                attempt = Attempt(subtask, 0, memory, environment.opener, _InlineExecutor, environment.clock)
                items = level.row_wise.python_stage.run(attempt, operators.run(attempt, iter(rows_for(subtask, rows))))
                for step in level.row_wise.steps:
                    items = step.python_stage.run(attempt, project(step, items))
                if level.row_wise.sql is None:
                    items = project(None, items)
                sent += output.run(attempt, items)
        rows = sent
    return subtask_answers((row["kind"], row["payload"]) for batch in rows for row in batch.to_pylist())


def rows_for(subtask: int, rows: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows that the shuffle sends to one subtask."""
    return [batch for batch in rows if batch.column("subtask")[0].as_py() == subtask]


class _InlineExecutor(Executor):
    """Run each call inside `submit`, so that an epoch has a fixed order of steps."""

    def __init__(self, uploads: int) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - `result` raises it
            done.set_exception(error)
        return done
