"""Run the quality gate as a Spark job with tasks that read the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from milepost.epoch import (
    EpochPlan,
    GateRow,
    GateRowKind,
    GateShare,
    joined,
    judge_partition,
    judge_share,
    partition_count,
    refusal_row,
)
from milepost.errors import CheckpointError
from milepost.protocol.exchange import SubtaskIdentity, decode_answer, verify
from milepost.quality import PartialResult
from milepost.spark.driver.compat import exchange, from_arrow_schema
from milepost.spark.task.epoch_tasks import Batches
from milepost.spark.worker.task_context import current_task_context
from milepost.spark.worker.task_memory import explain_out_of_memory
from milepost.spark.worker.worker_memory import MemoryBudget, apply_worker_limit, budget_bytes, is_out_of_memory
from milepost.storage import open_store

_ROWS = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("share", pa.int32(), nullable=False),
        pa.field("sink", pa.string(), nullable=False),
        pa.field("expectation", pa.int32(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class GateTask:
    """Evaluate the share of one task. The input rows are ignored.

    Attributes:
        identity: identity of the first subtask. The subtasks of a stage differ only in their index.
        shares: the share of each task.
        partitions: number of tasks of the second stage.
    """

    identity: SubtaskIdentity
    shares: tuple[GateShare, ...]
    partitions: int

    def __call__(self, batches: Batches) -> Batches:
        for _ in batches:
            pass
        index = current_task_context().partitionId()
        share = self.shares[index]
        rows = judge_share(share, index, self.partitions, open_store)
        yield from _sent(rows, lambda error: refusal_row(replace(self.identity, subtask=index), share, error))


@dataclass(frozen=True, slots=True)
class GatePartitionTask:
    """Evaluate the rows that one task of the second stage receives. Attributes as in `GateTask`."""

    identity: SubtaskIdentity
    shares: tuple[GateShare, ...]

    def __call__(self, batches: Batches) -> Batches:
        index = current_task_context().partitionId()
        rows = judge_partition(self.shares, _received(batches))
        yield from _sent(rows, lambda error: refusal_row(replace(self.identity, subtask=index), self.shares[0], error))


def judge(session: SparkSession, plan: EpochPlan, shares: tuple[GateShare, ...]) -> dict[str, PartialResult]:
    """Return the joined result of all shares, by sink.

    Raises:
        EnvironmentUnusable: the executors cannot load the library, or it needs more memory.
        StateCorrupt: a file differs from what was staged.
        SubtaskDeclined: a store did not answer.
    """
    level = plan.graph.levels + 1
    partitions = partition_count(shares)
    frame = _stage(session.range(0, len(shares), 1, len(shares)), GateTask(_identity(plan, level), shares, partitions))
    if partitions:
        task = GatePartitionTask(_identity(plan, level + 1), shares)
        frame = _stage(exchange(frame, partitions), task)
    rows = [_row(row.asDict()) for row in frame.collect()]
    declines = [decode_answer(row.payload.decode()) for row in rows if row.kind == GateRowKind.DECLINE]
    verify(plan.checkpoint_id, plan.token, (), declines)
    return joined(shares, rows)


def _identity(plan: EpochPlan, level: int) -> SubtaskIdentity:
    return SubtaskIdentity(plan.checkpoint_id, plan.token, level, 0)


def _stage(frame: DataFrame, task: Callable[[Batches], Batches]) -> DataFrame:
    return frame.mapInArrow(task, from_arrow_schema(_ROWS))


def _sent(rows: Iterator[GateRow], refused: Callable[[CheckpointError], GateRow]) -> Batches:
    """Yield one batch per row. A task that fails yields its decline as the last batch."""
    limit_bytes = apply_worker_limit()
    budget = MemoryBudget(budget_bytes(limit_bytes), limit_bytes)
    try:
        with explain_out_of_memory("it", budget):
            for row in rows:
                yield _batch(row)
    except CheckpointError as error:
        cause = error.__cause__  # a library may fail to load for lack of memory, not for its installation
        if cause is not None and is_out_of_memory(cause):
            error = budget.exceeded("it", cause)
        yield _batch(refused(error))


def _batch(row: GateRow) -> pa.RecordBatch:
    values = (row.kind, row.subtask, row.share, row.sink, row.expectation, row.payload)
    return pa.record_batch([pa.array([value], field.type) for value, field in zip(values, _ROWS, strict=True)], _ROWS)


def _received(batches: Iterable[pa.RecordBatch]) -> Iterator[GateRow]:
    for batch in batches:
        for row in batch.to_pylist():
            yield _row(row)


def _row(values: dict[str, Any]) -> GateRow:
    return GateRow(**{**values, "kind": GateRowKind(values["kind"]), "payload": bytes(values["payload"])})
