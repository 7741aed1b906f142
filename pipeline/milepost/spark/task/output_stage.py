"""Route a task's rows to later levels and sinks, then send the barrier.

Order of writes in one task:

1. buffers, while rows arrive;
2. the barrier, when the rows are complete and before the operator stage takes its snapshot;
3. the sinks' files, while the operator stage uploads its state;
4. the acknowledgement, last on every channel.

A declined epoch drains its input and ends in cancel markers instead: Spark treats an early return as success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from milepost.protocol.exchange import AckEvent, Barrier, Decline, EventKind, SubtaskAck, SubtaskIdentity, encode_answer
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, FencingToken
from milepost.sinks import StagingSink
from milepost.spark.task.attempt import upload_threads
from milepost.spark.task.staging import Staging
from milepost.spark.wire.exchange import BufferLimits, Edge, ExchangeWriter, exchange_row
from milepost.spark.wire.task_output import Forward, OperatorStageEnd, Rows, RowsDone, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_memory import Memory
from milepost.state.layers import KeyHash

if TYPE_CHECKING:
    from milepost.quality import RowRules


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The plan of one level's output stage, the same for all its subtasks.

    Attributes:
        level: level of the sender.
        receivers: number of subtasks of the next level; 0 at the last level.
        edges: the edges over which later levels consume rows.
        sinks: node -> names of the sinks it feeds at this level.
        stagers_before: sink -> number of subtasks of lower levels that stage rows for it too.
        row_wise: output -> uid of the stateless operator that produced its rows.
        row_rules: sink -> its rules on single rows, for the sinks that have some.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    receivers: int
    max_parallelism: int
    hasher: KeyHash
    limits: BufferLimits
    edges: tuple[Edge, ...]
    sinks: Mapping[str, tuple[str, ...]]
    stagers_before: Mapping[str, int] = field(default_factory=dict)
    row_wise: Mapping[str, str] = field(default_factory=dict)
    row_rules: Mapping[str, RowRules] = field(default_factory=dict)

    def identity(self, subtask: int) -> SubtaskIdentity:
        return SubtaskIdentity(self.checkpoint_id, self.token, self.level, subtask)


def run_output_stage(
    plan: OutputPlan,
    subtask: int,
    items: Iterable[TaskOutput],
    sinks: Mapping[str, StagingSink],
    memory: Memory,
    executor: Callable[[int], Executor] = upload_threads,
) -> Iterator[pa.RecordBatch]:
    """Turn one task's items into exchange rows, or at the last level into the one row that the driver collects.

    Args:
        plan: plan of the level.
        subtask: index of this sender in its level.
        items: the complete output of the operator stage, which always drains its input.
        sinks: opened sinks by name.
        memory: memory of the task.
        executor: returns a pool that stages a given number of sinks in parallel.
    """
    writer = ExchangeWriter(
        channel=subtask,
        receivers=plan.receivers,
        max_parallelism=plan.max_parallelism,
        hasher=plan.hasher,
        edges=plan.edges,
        limits=plan.limits,
        held_bytes=memory.budget.held_bytes,
    )
    staging = Staging(plan.identity(subtask), plan.sinks, sinks, memory, executor, plan.stagers_before, plan.row_rules)
    row_wise = dict.fromkeys(plan.row_wise.values(), 0)
    barrier: Barrier | None = None
    end: OperatorStageEnd | None = None
    decline: Decline | None = None
    for item in items:
        if decline is not None:
            continue
        if isinstance(item, Rows):
            if item.node in plan.row_wise:
                row_wise[plan.row_wise[item.node]] += item.rows.num_rows
            yield from writer.rows(item.node, item.rows, item.lateness_us)
            decline = staging.take(item)
        elif isinstance(item, Forward):
            yield writer.forward(item.subtask, item.buffer)
        elif isinstance(item, RowsDone):
            yield from writer.flush()
            barrier = Barrier(plan.checkpoint_id, plan.token, plan.level, subtask, writer.channel_sums())
            yield from writer.barrier(barrier)
        elif isinstance(item, SnapshotStarted):
            decline = staging.write()
        elif isinstance(item, OperatorStageEnd):
            end = item
        else:
            decline = item.decline
    if decline is None and (barrier is None or end is None):
        decline = plan.identity(subtask).decline(
            CheckpointFailureReason.CHANNEL_INCOMPLETE, "the subtask's operator stage ended without acknowledgement"
        )
    if decline is not None or barrier is None or end is None:
        assert decline is not None
        yield from _emit_decline(plan, subtask, writer, decline)
        return
    own = SubtaskAck(
        checkpoint_id=plan.checkpoint_id,
        token=plan.token,
        level=plan.level,
        subtask=subtask,
        barrier=barrier.digest,
        ack={**end.ack, "row_wise": row_wise, "sinks": staging.ack(), **staging.rejected_ack()},
        consumed=end.consumed,
        measured=end.measured,
    )
    event = AckEvent(own, end.carried)
    if plan.receivers:
        yield from writer.ack(event)
    else:
        yield exchange_row(0, subtask, 0, EventKind.ACK, event.encode())


def _emit_decline(plan: OutputPlan, subtask: int, writer: ExchangeWriter, decline: Decline) -> Iterator[pa.RecordBatch]:
    if plan.receivers:
        yield from writer.cancel(decline)
    else:
        yield exchange_row(0, subtask, 0, EventKind.CANCEL, encode_answer(decline).encode())
