"""The rows that cross Spark's shuffle: Arrow buffers, barriers and cancel markers.

A row is `(subtask, channel, sequence, operator, producer, kind, payload)`. `subtask` is the receiving subtask,
`channel` the sender's index in its level. Rows are a pure function of the plan: no attempt, time or metric is in
them (I12).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.protocol.acknowledgements import Decline, encode_answer
from pipeline.protocol.barrier import BarrierEvent, ChannelDigest, ChannelSum, EventKind
from pipeline.state.key_groups import key_group, key_hash, subtask_of_key_group

EXCHANGE_SCHEMA: Final = pa.schema(
    [
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("channel", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("operator", pa.string(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of `producer` that `operator` consumes in a later level.

    Attributes:
        key: key columns that decide the receiving subtask.
        columns: columns to send, in schema order; the others are not needed downstream.
    """

    producer: str
    operator: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


def encode_buffer(rows: pa.Table) -> bytes:
    """One buffer: rows as an Arrow IPC stream in a single batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_buffer(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


class ExchangeWriter:
    """Writes one sender's channels: buffers of about `buffer_bytes`, then one barrier on each.

    The cut into buffers depends only on the rows and their order, so a second attempt writes the same bytes.
    """

    def __init__(
        self, *, channel: int, receivers: int, max_parallelism: int, edges: tuple[Edge, ...], buffer_bytes: int
    ) -> None:
        self._channel = channel
        self._receivers = receivers
        self._max_parallelism = max_parallelism
        self._buffer_bytes = buffer_bytes
        self._edges: dict[str, list[Edge]] = {}
        for edge in edges:
            self._edges.setdefault(edge.producer, []).append(edge)
        self._digests = [ChannelDigest() for _ in range(receivers)]
        self._open: dict[tuple[str, str, int], list[pa.Table]] = {}
        self._open_bytes: dict[tuple[str, str, int], int] = {}

    def rows(self, producer: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Route rows of one producer to every operator that consumes them; yields the buffers that became full."""
        for edge in self._edges.get(producer, ()):
            if rows.num_rows:
                groups = key_group(key_hash(rows, edge.key), self._max_parallelism)
                targets = subtask_of_key_group(groups, self._max_parallelism, self._receivers)
                yield from self._split(edge, rows.select(list(edge.columns)), np.asarray(targets))

    def forward(self, subtask: int, operator: str, producer: str, payload: bytes) -> pa.RecordBatch:
        """Pass on a buffer that a later level needs, to the subtask of the same index."""
        return self._row(subtask, operator, producer, payload)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what is still open, in a fixed order."""
        for slot in sorted(self._open):
            yield self._emit(slot)

    def sums(self) -> dict[int, ChannelSum]:
        """Count and digest of every channel; call it after `flush`."""
        return {receiver: digest.sum() for receiver, digest in enumerate(self._digests)}

    def barrier(self, event: BarrierEvent) -> Iterator[pa.RecordBatch]:
        """The barrier, last on every channel."""
        yield from self._broadcast(EventKind.BARRIER, event.encode())

    def cancel(self, decline: Decline) -> Iterator[pa.RecordBatch]:
        """The cancel marker, last on every channel."""
        yield from self._broadcast(EventKind.CANCEL, encode_answer(decline).encode())

    def _split(self, edge: Edge, rows: pa.Table, targets: np.ndarray) -> Iterator[pa.RecordBatch]:
        order = np.argsort(targets, kind="stable")
        bounds = np.searchsorted(targets[order], np.arange(self._receivers + 1))
        for receiver in range(self._receivers):
            start, end = bounds[receiver], bounds[receiver + 1]
            if start == end:
                continue
            slot = (edge.operator, edge.producer, receiver)
            for part in self._parts(rows.take(pa.array(order[start:end]))):
                self._open.setdefault(slot, []).append(part)
                self._open_bytes[slot] = self._open_bytes.get(slot, 0) + part.nbytes
                if self._open_bytes[slot] >= self._buffer_bytes:
                    yield self._emit(slot)

    def _parts(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Cut rows that are more than one buffer: an operator may put out a whole epoch at once."""
        length = max(1, -(-rows.num_rows * self._buffer_bytes // max(1, rows.nbytes)))
        for offset in range(0, rows.num_rows, length):
            yield rows.slice(offset, length)

    def _emit(self, slot: tuple[str, str, int]) -> pa.RecordBatch:
        operator, producer, receiver = slot
        rows = pa.concat_tables(self._open.pop(slot))
        del self._open_bytes[slot]
        return self._row(receiver, operator, producer, encode_buffer(rows))

    def _row(self, receiver: int, operator: str, producer: str, payload: bytes) -> pa.RecordBatch:
        digest = self._digests[receiver]
        row = exchange_row(receiver, self._channel, digest.count, operator, producer, EventKind.BUFFER, payload)
        digest.add(operator, producer, payload)
        return row

    def _broadcast(self, kind: EventKind, payload: bytes) -> Iterator[pa.RecordBatch]:
        for receiver, digest in enumerate(self._digests):
            yield exchange_row(receiver, self._channel, digest.count, "", "", kind, payload)


def exchange_row(
    subtask: int, channel: int, sequence: int, operator: str, producer: str, kind: EventKind, payload: bytes
) -> pa.RecordBatch:
    """One row of the exchange."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([subtask], pa.int32()),
            pa.array([channel], pa.int32()),
            pa.array([sequence], pa.int64()),
            pa.array([operator], pa.string()),
            pa.array([producer], pa.string()),
            pa.array([kind.value], pa.string()),
            pa.array([payload], pa.binary()),
        ],
        schema=EXCHANGE_SCHEMA,
    )
