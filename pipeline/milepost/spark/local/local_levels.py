"""The levels of an epoch in this process: their tasks one after another, with the shuffle as a list of rows.

What a task does is what it does in Spark's workers, but that its uploads happen where they are asked for. What Spark
adds is left out: processes, retries, and the JVM, which is asked for SQL alone.
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
"""What the tasks of one level run, as `epoch_tasks` has it."""

Projection = Callable[[SqlStep | None, Iterable[TaskOutput]], Iterable[TaskOutput]]
"""Stands between a task's stages: evaluates the SQL operators of one projection; None: the level has none."""


@dataclass(frozen=True, slots=True)
class LocalEnvironment:
    """What tasks run with.

    Attributes:
        opener: opens their stores. budget: their memory. clock: milliseconds, for deadlines.
    """

    opener: Callable[[StoreConfig], ObjectStore] = open_store
    budget: MemoryBudget = UNLIMITED
    clock: Clock = wall_clock_ms


def run_levels(
    plan: EpochPlan, tasks: Iterable[Tasks], project: Projection, environment: LocalEnvironment | None = None
) -> tuple[SubtaskAnswer, ...]:
    """Run every task of every level; return what the subtasks of the last one answered.

    Args:
        plan: its `cache_directory` also takes what tasks spill.
    """
    environment = environment or LocalEnvironment()
    rows: list[pa.RecordBatch] = []
    for level, operators, output in tasks:
        sent: list[pa.RecordBatch] = []
        for subtask in range(operators.subtasks):
            with task_memory(plan.cache_directory, environment.budget) as memory:
                attempt = Attempt(subtask, 0, memory, environment.opener, _InlineExecutor, environment.clock)
                items = level.row_wise.lookups.run(attempt, operators.run(attempt, iter(rows_for(subtask, rows))))
                for step in level.row_wise.steps:
                    items = step.lookups.run(attempt, project(step, items))
                if level.row_wise.sql is None:
                    items = project(None, items)
                sent += output.run(attempt, items)
        rows = sent
    return subtask_answers((row["kind"], row["payload"]) for batch in rows for row in batch.to_pylist())


def rows_for(subtask: int, rows: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return what the shuffle brings to one subtask."""
    return [batch for batch in rows if batch.column("subtask")[0].as_py() == subtask]


class _InlineExecutor(Executor):
    """Does what is submitted before it returns: the steps of an epoch have one order."""

    def __init__(self, uploads: int) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done
