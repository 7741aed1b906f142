"""A data plane in this process: the tasks of an epoch one after another, with the shuffle as a list of rows.

For what the master does around an epoch. What Spark adds is left out: processes, retries, the JVM, and so SQL; of
`latest`, DuckDB says which rows are deletes. What a task does is the product's, but that its uploads happen where they
are asked for.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

import duckdb
import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.gate_shares import GateShare, judged_here
from milepost.epoch.plan import EpochPlan
from milepost.jobspec.job.spec import JobSpec
from milepost.operators.base.edges import conditions_output
from milepost.protocol.exchange.acknowledgements import SubtaskAnswer
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.quality.partial_results import PartialResult
from milepost.spark.local.local_levels import LocalEnvironment, Tasks, run_levels
from milepost.spark.task.attempt import wall_clock_ms
from milepost.spark.task.epoch_tasks import epoch_tasks
from milepost.spark.task.outputs import SqlOutput, output_read_by
from milepost.spark.task.planning.levels import EpochLevels, plan_levels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.epoch_clock import Clock
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.storage.open import open_store


def _duckdb() -> ModuleType:
    """Where there is no PySpark, a job has no SQL."""
    from milepost_testkit.runners import duckdb_sql

    return duckdb_sql


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
        seen: called with each item that an operator stage emits, on its way to the output stage.
        sql: whether DuckDB evaluates SQL, where it means the same there as in Spark; else a job has none.
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
    sql: bool = False
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
            schema = partial(_duckdb().duckdb_schema if self.sql else marked_schema, here.spec)
            epoch = plan_levels(here, plan.spec.spark.parallelism, schema)
            place = LocalEnvironment(self.opener, self.budget, self.clock)
            answers = run_levels(here, self._tasks(here, epoch), partial(self._between, plan), place)
        self.after(plan)
        return EpochAnswers(tuple(self.answers(answers)), epoch.operators, epoch.schemas, session_ms=0, job_ms=0)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> dict[str, PartialResult]:
        return judged_here(shares, self.opener)

    def _seen(self, plan: EpochPlan, items: Iterable[TaskOutput], later: Container[str] = ()) -> Iterator[TaskOutput]:
        """Yield items, looked at; rows that come again behind a projection are looked at there."""
        for item in items:
            if self.seen is not None and not (isinstance(item, Rows) and item.node in later):
                self.seen(plan, item)
            yield item

    def _tasks(self, plan: EpochPlan, epoch: EpochLevels) -> Iterator[Tasks]:
        for level, operators, staging in epoch_tasks(plan, epoch):
            output = staging if self.stages else replace(staging, plan=replace(staging.plan, sinks={}), sinks=())
            yield level, operators, output

    def _between(self, plan: EpochPlan, step: SqlStep | None, items: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
        if self.sql and step is not None:
            made = _duckdb().projected(step, self._seen(plan, items, step.nodes_after))
            yield from self._seen(plan, made) if step.next_step is None else made
            return
        for item in items:
            if self.seen is not None:
                self.seen(plan, item)
            yield item
            if step is not None and isinstance(item, Rows):
                yield from _marked(plan, step, item)


def marked_schema(spec: JobSpec, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of an operator's input with its marks, which DuckDB can make as well."""
    if not output.node.conditions:
        return no_sql(output, inputs)
    (schema,) = inputs.values()
    return pa.schema([*schema, *(pa.field(mark, pa.bool_()) for mark, _ in output.node.conditions)])


def _marked(plan: EpochPlan, step: SqlStep, item: Rows) -> Iterator[Rows]:
    """Yield a node's rows for each operator that asks for marks of them."""
    for one in step.expressions:
        reader = plan.graph.nodes[one.uid]
        assert reader.conditions, "SQL needs Spark"
        if output_read_by(reader, plan.graph.nodes[reader.inputs[0]], plan.begin) == item.node:
            rows, name = item.rows, conditions_output(one.uid)
            marks = ", ".join(f'coalesce({condition}, false) AS "{mark}"' for mark, condition in reader.conditions)
            made = pa.table(duckdb.sql(f"SELECT {marks} FROM rows").arrow())
            whole = pa.table([*rows.columns, *made.columns], names=[*rows.column_names, *made.column_names])
            yield replace(item, node=name, rows=whole.select(step.output_schemas[name].names))


def no_sql(output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    raise AssertionError(f"operator {output.node.uid}: SQL needs Spark")
