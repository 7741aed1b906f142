"""The end of every Spark task of an epoch: routes rows to later levels and sinks, then states the barrier.

Order inside one task: buffers while rows arrive; the barrier, once they are complete and before the host snapshots;
sinks are staged while the host's state is uploaded; the acknowledgement is last on every channel. A declined epoch ends
in cancel markers instead, with the input drained: Spark takes an early return for success.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.protocol.acknowledgements import Decline, encode_answer
from pipeline.protocol.barrier import AckEvent, Barrier, EventKind, SubtaskAck, SubtaskIdentity
from pipeline.protocol.errors import CheckpointError
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.sinks.contract import Sink, StagedFile, staged_file_to_json
from pipeline.spark.exchange import BufferLimits, Edge, ExchangeWriter, exchange_row
from pipeline.spark.items import Forward, HostEnd, Item, Rows, RowsDone, SnapshotStarted


@dataclass(frozen=True, slots=True)
class TailPlan:
    """What one level's tail must do; the same for all its subtasks.

    Attributes:
        level: of the sender. receivers: subtasks of the next level; 0 at the last one.
        edges: rows that later levels consume. sinks: node -> names of the sinks it feeds at this level.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    receivers: int
    max_parallelism: int
    limits: BufferLimits
    edges: tuple[Edge, ...]
    sinks: Mapping[str, tuple[str, ...]]

    def identity(self, subtask: int) -> SubtaskIdentity:
        return SubtaskIdentity(self.checkpoint_id, self.token, self.level, subtask)


def run_tail(
    plan: TailPlan, subtask: int, items: Iterable[Item], sinks: Mapping[str, Sink]
) -> Iterator[pa.RecordBatch]:
    """Turn one task's items into exchange rows; at the last level into the one row that the driver collects.

    Args:
        plan: of the level. subtask: index of this sender in its level.
        items: what the host yields, complete: the host drains its input whatever happens.
        sinks: opened sinks by name.
    """
    writer = ExchangeWriter(
        channel=subtask,
        receivers=plan.receivers,
        max_parallelism=plan.max_parallelism,
        edges=plan.edges,
        limits=plan.limits,
    )
    staged = _Staging(plan, subtask, sinks)
    barrier: Barrier | None = None
    end: HostEnd | None = None
    decline: Decline | None = None
    for item in items:
        if decline is not None:
            continue
        if isinstance(item, Rows):
            yield from writer.rows(item.node, item.rows, item.lateness_us)
            staged.take(item)
        elif isinstance(item, Forward):
            yield writer.forward(item.subtask, item.buffer)
        elif isinstance(item, RowsDone):
            yield from writer.flush()
            barrier = Barrier(plan.checkpoint_id, plan.token, plan.level, subtask, writer.sums())
            yield from writer.barrier(barrier)
        elif isinstance(item, SnapshotStarted):
            decline = staged.write()
        elif isinstance(item, HostEnd):
            end = item
        else:
            decline = item.decline
    if decline is None and (barrier is None or end is None):
        decline = plan.identity(subtask).decline(
            CheckpointFailureReason.CHANNEL_INCOMPLETE, "the subtask's host ended without acknowledgement"
        )
    if decline is not None or barrier is None or end is None:
        assert decline is not None
        yield from _refuse(plan, subtask, writer, decline)
        return
    own = SubtaskAck(
        checkpoint_id=plan.checkpoint_id,
        token=plan.token,
        level=plan.level,
        subtask=subtask,
        barrier=barrier.digest,
        ack={**end.ack, "sinks": staged.ack()},
        consumed=end.consumed,
    )
    event = AckEvent(own, end.carried)
    if plan.receivers:
        yield from writer.ack(event)
    else:
        yield exchange_row(0, subtask, 0, EventKind.ACK, event.encode())


def _refuse(plan: TailPlan, subtask: int, writer: ExchangeWriter, decline: Decline) -> Iterator[pa.RecordBatch]:
    if plan.receivers:
        yield from writer.cancel(decline)
    else:
        yield exchange_row(0, subtask, 0, EventKind.CANCEL, encode_answer(decline).encode())


class _Staging:
    """Collects the rows of this task's sinks and stages one file for each."""

    def __init__(self, plan: TailPlan, subtask: int, sinks: Mapping[str, Sink]) -> None:
        self._plan, self._subtask, self._sinks = plan, subtask, sinks
        self._rows: dict[str, list[Rows]] = {}
        self._files: dict[str, StagedFile] = {}

    def take(self, item: Rows) -> None:
        if item.rows.num_rows:
            for name in self._plan.sinks.get(item.node, ()):
                self._rows.setdefault(name, []).append(item)

    def write(self) -> Decline | None:
        """Stage every file durably; a store's refusal is this subtask's decline, not a crash."""
        for name, items in sorted(self._rows.items()):
            try:
                file = self._sinks[name].stage(
                    pa.concat_tables([item.rows for item in items]),
                    checkpoint_id=self._plan.checkpoint_id,
                    token=self._plan.token,
                    subtask=self._subtask,
                    distinct=len(items) == 1 and items[0].distinct,
                )
            except CheckpointError as error:
                return self._plan.identity(self._subtask).decline_for(
                    error, f"sink {name}", CheckpointFailureReason.IO_EXCEPTION
                )
            if file is not None:
                self._files[name] = file
        return None

    def ack(self) -> dict[str, Any]:
        return {name: staged_file_to_json(file) for name, file in sorted(self._files.items())}
