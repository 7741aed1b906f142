"""Replay an epoch in this process with some of its rows, and capture the rows of every node.

The tasks are those of a Spark job, except that they stage nothing for sinks. State goes to the store that the plan
names, which the caller deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from milepost.epoch import (
    OBJECT,
    RECORD,
    EpochAnswers,
    EpochPlan,
    RecordPlace,
    RowFilter,
    TracedEpoch,
    TracedSplit,
    stamp_column,
)
from milepost.operators.base import BAD
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, verify
from milepost.protocol.records import ObjectStore, StoreConfig, cached_property
from milepost.sources import ObjectPart
from milepost.spark.local.local_levels import LocalEnvironment, Tasks, run_levels
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.dead_letter_reader import BadRows, Piece
from milepost.spark.task.epoch_tasks import OperatorStage, OutputStage, epoch_tasks
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.planning.levels import EpochLevels, plan_levels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.task.source_task import SourceSplit
from milepost.spark.wire.exchange import Edge
from milepost.spark.wire.task_output import Declined, OperatorStageEnd, Rows, RowsDone, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_memory import Memory, task_memory
from milepost.storage import open_store, with_fallback

Capture = Callable[[Rows], None]
"""Called with the rows of a node, in the order in which they are emitted."""


class Sql(Protocol):
    """Evaluates SQL operators; `LocalSql` does it with Spark."""

    def schema(self, plan: EpochPlan, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema: ...

    def project(self, plan: EpochPlan, step: SqlStep, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]: ...

    def refusals(self, plan: EpochPlan, epoch: EpochLevels) -> AbstractContextManager[None]: ...


class LocalTracer:
    """Replays epochs of one job in this process. The first epoch with SQL starts Spark, and later epochs reuse it.

    Args:
        sql: None evaluates SQL with Spark.
    """

    def __init__(self, sql: Sql | None = None) -> None:
        self._given_sql = sql

    @cached_property
    def _sql(self) -> Sql:
        if self._given_sql is not None:
            return self._given_sql
        from milepost.spark.local.local_sql import LocalSql  # only jobs with SQL load Spark

        return LocalSql()

    def _levels(self, plan: EpochPlan) -> EpochLevels:
        return plan_levels(plan, 1, lambda output, inputs: self._sql.schema(plan, output, inputs), emits_sql=True)

    def read(self, plan: EpochPlan, retain: RowFilter) -> tuple[TracedSplit, ...]:
        """Read the sources of an epoch, one after another. Raises as `EpochTracer.read`."""
        epoch = self._levels(plan)
        _, stage, _ = next(epoch_tasks(plan, epoch))
        return tuple(_read(plan, stage, subtask, retain) for subtask in range(stage.subtasks))

    def run(self, plan: EpochPlan, splits: Sequence[TracedSplit], restored: StoreConfig | None) -> TracedEpoch:
        """Run the operators of an epoch. Raises as `EpochTracer.run`."""
        epoch = self._levels(plan)
        edges = [edge for level in epoch.levels for edge in level.output.edges]
        captured: dict[str, list[pa.Table]] = {}
        for split in splits:  # a projection would drop the columns that number them
            rows = [] if split.rows is None else [_stamped(Rows(split.source, split.rows), edges)]
            captured.setdefault(split.source, []).extend(rows)
        sources = {split.source for split in splits}

        def capture(item: Rows) -> None:
            if item.node not in sources:
                captured.setdefault(item.node, []).append(_stamped(item, edges))

        def project(step: SqlStep | None, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
            if step is None:
                return items
            ended = _captured(items, capture, lambda node: node not in step.nodes_after)
            return self._sql.project(plan, step, ended)

        with self._sql.refusals(plan, epoch) if epoch.sql else nullcontext():
            environment = LocalEnvironment(partial(_open, plan.job_store, restored))
            answers = run_levels(plan, _replayed(plan, epoch, splits, capture), project, environment)
        return TracedEpoch(EpochAnswers(answers, epoch.operators, epoch.schemas, session_ms=0, job_ms=0), captured)


def _stamped(item: Rows, edges: Iterable[Edge]) -> pa.Table:
    """Return rows with the lateness watermark at which each operator reads them."""
    rows = item.rows
    for edge in edges:
        if edge.producer == item.node and stamp_column(edge.operator) not in rows.column_names:
            stamp_us = edge.stamp.of(item.lateness_us)
            stamp = pa.scalar(BEGINNING_OF_TIME_US if stamp_us is None else stamp_us, pa.int64())
            rows = rows.append_column(stamp_column(edge.operator), pa.repeat(stamp, rows.num_rows))
    return rows


def _open(job_store: StoreConfig, restored: StoreConfig | None, config: StoreConfig) -> ObjectStore:
    """Open a store of a replay's tasks."""
    store = open_store(config)
    return with_fallback(store, open_store(restored)) if restored is not None and config == job_store else store


@dataclass(frozen=True, slots=True)
class _CountedSplit(SourceSplit):
    """A split that counts the rows of its objects while they are read.

    Attributes:
        counts: (key of the object, rows), in the order in which they were read.
        bad: (key of the object, place) of each record that cannot be read.
    """

    counts: list[tuple[str, int]] = field(default_factory=list)
    bad: list[tuple[str, RecordPlace]] = field(default_factory=list)

    def read(self, store: ObjectStore, part: ObjectPart, memory: Memory) -> Iterator[Piece]:
        for piece in SourceSplit.read(self, store, part, memory):
            if isinstance(piece, BadRows):
                self.bad.extend((part.object.key, place) for place in _bad_places(piece.rows))
            else:
                self.counts.append((part.object.key, piece.num_rows))
            yield piece


def _bad_places(rows: pa.RecordBatch) -> Iterator[RecordPlace]:
    """Yield the places of bad records, as `record_places` has them. One without a place is a whole object."""
    for row in rows.to_pylist():
        if "offset" in row:
            yield row["topic"], row["partition"], row["offset"]
        elif row["line"] is not None:
            yield row["line"]


def _read(plan: EpochPlan, stage: OperatorStage, subtask: int, retain: RowFilter) -> TracedSplit:
    """Run the source stage of one subtask, and number the rows that are retained."""
    split = stage.splits[subtask]
    counted = _CountedSplit(**{name: getattr(split, name) for name in split.__slots__})
    splits = tuple(counted if at == subtask else one for at, one in enumerate(stage.splits))
    numbers = _Numbers(counted.counts)
    retained: list[pa.Table] = []
    with task_memory(plan.cache_directory) as memory:
        for item in replace(stage, splits=splits).run(Attempt(subtask, 0, memory), iter(())):
            if isinstance(item, Declined):
                verify(plan.checkpoint_id, plan.token, (), [item.decline])
            elif isinstance(item, Rows) and item.node == split.source:
                retained.append(retain(split.source, numbers.added(item.rows)))
            elif isinstance(item, OperatorStageEnd):
                end = item
    bad = {key: frozenset(place for of, place in counted.bad if of == key) for key, _ in counted.bad}
    rows = pa.concat_tables(retained) if retained else None
    return TracedSplit(split.source, rows, bad, end.ack["sources"][split.source], end)


class _Numbers:
    """Numbers the rows of each object of a split, which come in the order in which they were counted.

    Args:
        counts: as in `_CountedSplit`; it grows while rows come.
    """

    def __init__(self, counts: list[tuple[str, int]]) -> None:
        self._counts, self._next = counts, 0
        self._key, self._record, self._left = "", 0, 0

    def added(self, rows: pa.Table) -> pa.Table:
        """Return the rows with `OBJECT` and `RECORD`."""
        keys: list[str] = []
        numbers: list[int] = []
        while len(keys) < rows.num_rows:
            if not self._left:
                key, self._left = self._counts[self._next]
                self._next += 1
                if key != self._key:
                    self._key, self._record = key, 0
                continue
            taken = min(self._left, rows.num_rows - len(keys))
            keys += [self._key] * taken
            numbers += range(self._record, self._record + taken)
            self._record, self._left = self._record + taken, self._left - taken
        numbered = rows.append_column(OBJECT, pa.array(keys, pa.string()))
        return numbered.append_column(RECORD, pa.array(numbers, pa.int64()))


@dataclass(frozen=True, slots=True)
class _GivenRows:
    """The source stage of a replay: rows that were read before, with the event times of all rows."""

    splits: Sequence[TracedSplit]

    @property
    def subtasks(self) -> int:
        return len(self.splits)

    def run(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[TaskOutput]:
        split = self.splits[attempt.subtask]
        if split.rows is not None and split.rows.num_rows:
            yield Rows(split.source, split.rows)
        yield RowsDone()
        yield SnapshotStarted()
        assert isinstance(split.end, OperatorStageEnd)
        yield split.end


@dataclass(frozen=True, slots=True)
class _CapturingStage:
    """An output stage without sinks that captures its rows."""

    stage: OutputStage
    capture: Capture

    def run(self, attempt: Attempt, items: Iterable[TaskOutput]) -> Iterator[pa.RecordBatch]:
        return self.stage.run(attempt, _captured(items, self.capture, lambda _: True))


def _replayed(plan: EpochPlan, epoch: EpochLevels, splits: Sequence[TracedSplit], capture: Capture) -> Iterator[Tasks]:
    for level, operators, output in epoch_tasks(plan, epoch):
        stage: Any = operators if level.stateful is not None else _GivenRows(splits)
        without_sinks = replace(output, plan=replace(output.plan, sinks={}), sinks=())
        traced: Any = _CapturingStage(without_sinks, capture)
        yield level, stage, traced


def _captured(items: Iterable[TaskOutput], capture: Capture, included: Callable[[str], bool]) -> Iterator[TaskOutput]:
    for item in items:
        if isinstance(item, Rows) and included(item.node) and not item.node.endswith(BAD):
            capture(item)
        yield item
