"""A data plane in this process: the tasks of an epoch one after another, with the shuffle as a list of rows.

For what the master does around an epoch. What Spark adds is left out: processes, retries, the JVM, and so SQL. What a
task does is the product's, but that its uploads happen where they are asked for.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.protocol.exchange.acknowledgements import SubtaskAnswer
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.task.attempt import Attempt, wall_clock_ms
from milepost.spark.task.epoch_tasks import epoch_tasks, subtask_answers
from milepost.spark.task.levels import EpochLevels, plan_levels
from milepost.spark.wire.epoch_clock import Clock
from milepost.spark.wire.task_output import TaskOutput
from milepost.spark.worker.task_memory import task_memory
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.spec.graph.graph import Node
from milepost.storage.open import open_store


def _keep(answers: tuple[SubtaskAnswer, ...]) -> Iterable[SubtaskAnswer]:
    return answers


def _nothing(plan: EpochPlan) -> None:
    return None


@dataclass
class SparklessRunner:
    """Runs epochs here and now.

    Attributes:
        before: called with each plan first; what it raises is what the data plane raises. after: called last, when all
            is staged and uploaded.
        answers: what reaches the driver of what the subtasks answered.
        opener: opens the stores of the tasks. budget, clock: of each task.
        seen: called with each item that an operator stage puts out, on its way to the output stage.
        stages: whether sinks are staged. node: folder of the node that every epoch runs on; None: a new one for each,
            which has nothing of the job in its cache.
        plans: of the epochs that were run, in order. told_to_stop: set when the session was fenced meanwhile.
    """

    before: Callable[[EpochPlan], None] = _nothing
    after: Callable[[EpochPlan], None] = _nothing
    answers: Callable[[tuple[SubtaskAnswer, ...]], Iterable[SubtaskAnswer]] = _keep
    opener: Callable[[StoreConfig], ObjectStore] = open_store
    budget: MemoryBudget = UNLIMITED
    clock: Clock = wall_clock_ms
    seen: Callable[[EpochPlan, TaskOutput], None] | None = None
    stages: bool = True
    node: str | None = None
    plans: list[EpochPlan] = field(default_factory=list)
    told_to_stop: threading.Event = field(default_factory=threading.Event)

    def prepare(self, plan: EpochPlan) -> None:
        """Nothing: all that it needs is imported."""

    def stop(self) -> None:
        """Remember it; what `before` or `after` waits for may look at it."""
        self.told_to_stop.set()

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run every task of every level."""
        self.plans.append(plan)
        self.before(plan)
        with tempfile.TemporaryDirectory() if self.node is None else nullcontext(self.node) as node:
            here = replace(plan, cache_directory=node)
            epoch = plan_levels(here, plan.spec.spark.parallelism, no_sql)
            rows = self._levels(here, epoch)
        self.after(plan)
        answers = subtask_answers((row["kind"], row["payload"]) for batch in rows for row in batch.to_pylist())
        return EpochAnswers(tuple(self.answers(answers)), epoch.operators, epoch.schemas, session_ms=0, job_ms=0)

    def _levels(self, plan: EpochPlan, epoch: EpochLevels) -> list[pa.RecordBatch]:
        """Return what the last level sends to the driver."""
        rows: list[pa.RecordBatch] = []
        for _, operators, staging in epoch_tasks(plan, epoch):
            output = staging if self.stages else replace(staging, plan=replace(staging.plan, sinks={}), sinks=())
            sent: list[pa.RecordBatch] = []
            for subtask in range(operators.subtasks):
                with task_memory(plan.cache_directory, self.budget) as memory:
                    attempt = Attempt(subtask, 0, memory, self.opener, _AtOnce, self.clock)
                    items = operators.run(attempt, iter(rows_for(subtask, rows)))
                    sent += output.run(attempt, items if self.seen is None else self._shown(plan, items))
            rows = sent
        return rows

    def _shown(self, plan: EpochPlan, items: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
        assert self.seen is not None
        for item in items:
            self.seen(plan, item)
            yield item


def rows_for(subtask: int, rows: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return what the shuffle brings to one subtask."""
    return [batch for batch in rows if batch.column("subtask")[0].as_py() == subtask]


class _AtOnce(Executor):
    """Does what is submitted before it returns: an interleaving of steps has one order."""

    def __init__(self, uploads: int) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done


def no_sql(node: Node, schema: pa.Schema) -> pa.Schema:
    raise AssertionError(f"operator {node.uid}: SQL needs Spark")
