"""Rows of Spark's shuffle: Arrow buffers, barriers, acknowledgements and cancel markers.

A row is `(subtask, channel, sequence, operator, producer, kind, lateness_us, oldest_us, payload)`. `subtask` is the
receiving subtask, `channel` the sender's index in its level. Rows are a pure function of the plan and, if a checkpoint
was cut, of the cut. They contain no attempt number, time or metric (I12).

Sender 2 of the source `clicks`, which `hourly` aggregates, sends these rows to two receivers. A barrier's sequence is
the number of buffers before it::

    subtask  channel  sequence  operator  producer  kind     payload
    0        2        0         hourly    clicks    buffer   8,000 rows
    1        2        0         hourly    clicks    buffer   7,900 rows
    0        2        1         hourly    clicks    buffer   120 rows
    0        2        2                             barrier  count and digest of each channel
    1        2        1                             barrier  the same
    0        2        2                             ack      what the sender acknowledges
    1        2        1                             ack      the same
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from milepost.operators import Combiner
from milepost.protocol.exchange import (
    AckEvent,
    Barrier,
    BufferHeader,
    ChannelDigest,
    ChannelSum,
    Decline,
    EventKind,
    encode_answer,
    latest,
    operator_watermark,
    output_watermark,
)
from milepost.spark.wire.combine_buffer import PART_BYTES, CombineBuffer
from milepost.state.buffers import Buffer, as_partials, encode_rows, oldest
from milepost.state.layers import KeyHash, subtask_of_key_group

EXCHANGE_SCHEMA: Final = pa.schema(
    [
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("channel", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("operator", pa.string(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("lateness_us", pa.int64()),
        pa.field("oldest_us", pa.int64()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """One lateness watermark for all rows of an edge; None is minus infinity."""

    lateness_us: int | None

    def of(self, own_us: int | None) -> int | None:
        """Return the stamp of the edge, whatever the rows' own stamp is."""
        return self.lateness_us


@dataclass(frozen=True, slots=True)
class OwnStamp:
    """Derive the edge's stamp from the stamp that rows of a stateful operator carry.

    With `holdback_us=10`, an upper bound of 95 and `fired_us=80`: 100 becomes 90, 120 becomes 95, 85 becomes 80.

    Attributes:
        holdback_us: how much older than their stamp the rows may be.
        upper_bound: lowest watermark of the receiver's inputs when the epoch starts, if it has other inputs.
        fired_us: firing watermark of the receiver. The stamp is never lower.
    """

    holdback_us: int = 0
    upper_bound: Stamp | None = None
    fired_us: int | None = None

    def of(self, own_us: int | None) -> int | None:
        """Return the edge's stamp of rows with the given stamp."""
        stamp_us = output_watermark(own_us, self.holdback_us)
        if self.upper_bound is not None:
            stamp_us = operator_watermark((stamp_us, self.upper_bound.lateness_us))
        return latest(stamp_us, self.fired_us)


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of `producer` that `operator` consumes in a later level.

    Attributes:
        key: key columns that decide the receiving subtask.
        columns: columns to send, in schema order. The others are not needed downstream.
        event_time: event-time column of the producer's rows, whether it is sent or not; None: no event time.
        stamp: stamp of the rows. Rows of a source have none of their own.
        combiner: combines the rows before they are sent, if that pays.
        name: the operator's name of the edge (`jobspec/graph/edges.py`); "": the producer's name.
    """

    producer: str
    operator: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    event_time: str | None
    stamp: Stamp | OwnStamp
    combiner: Combiner | None = None
    name: str = ""

    def slot(self, receiver: int) -> tuple[str, str, int]:
        """Return the key of its open buffer to one subtask."""
        return self.operator, self.name or self.producer, receiver


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Size limits of one buffer, which is sent when it reaches one of them.

    Attributes:
        bytes: maximum size.
        rows: maximum number of rows; None: any number.
    """

    bytes: int
    rows: int | None = None

    def length(self, rows: pa.Table) -> int:
        """Return how many of these rows fit one buffer: 10 rows of 100 bytes at a limit of 250 bytes give 3."""
        length = max(1, -(-rows.num_rows * self.bytes // max(1, rows.nbytes)))
        return length if self.rows is None else min(length, self.rows)


@dataclass(slots=True)
class _OpenBuffer:
    """A buffer that is being filled."""

    lateness_us: int | None
    partial: bool
    parts: list[pa.Table]
    bytes: int = 0
    rows: int = 0
    oldest_us: int | None = None

    def accepts(self, lateness_us: int | None, partial: bool) -> bool:
        return self.lateness_us == lateness_us and self.partial == partial

    def add(self, part: pa.Table, oldest_us: int | None) -> None:
        self.parts.append(part)
        self.bytes += part.nbytes
        self.rows += part.num_rows
        if oldest_us is not None:
            self.oldest_us = oldest_us if self.oldest_us is None else min(self.oldest_us, oldest_us)


class ExchangeWriter:
    """Write one sender's channels: buffers up to the limits, then one barrier and one acknowledgement on each.

    Buffer boundaries depend only on the rows, their order and their stamps, so a second attempt writes the same bytes.
    A buffer never mixes stamps, or rows with partial results.

    Args:
        held_bytes: maximum size of an edge's rows before they are combined.
    """

    def __init__(
        self,
        *,
        channel: int,
        receivers: int,
        max_parallelism: int,
        hasher: KeyHash,
        edges: tuple[Edge, ...],
        limits: BufferLimits,
        held_bytes: int = PART_BYTES,
    ) -> None:
        self._channel, self._held_bytes = channel, held_bytes
        self._receivers = receivers
        self._max_parallelism, self._hasher = max_parallelism, hasher
        self._limits = limits
        self._edges: dict[str, list[Edge]] = {}
        for edge in edges:
            self._edges.setdefault(edge.producer, []).append(edge)
        self._digests = [ChannelDigest() for _ in range(receivers)]
        self._open: dict[tuple[str, str, int], _OpenBuffer] = {}
        self._combine_buffers: dict[tuple[Edge, int | None], CombineBuffer] = {}

    def rows(self, producer: str, rows: pa.Table, lateness_us: int | None) -> Iterator[pa.RecordBatch]:
        """Route rows of one producer to every operator that consumes them. Yield the buffers that became full.

        Args:
            lateness_us: stamp that the rows carry; None for rows of a source.
        """
        for edge in self._edges.get(producer, ()):
            if rows.num_rows:
                yield from self._route(edge, rows, edge.stamp.of(lateness_us))

    def forward(self, subtask: int, buffer: Buffer) -> pa.RecordBatch:
        """Pass on a buffer that a later level needs, to the subtask of the same index."""
        return self._row(subtask, buffer)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the combine buffers and the open buffers, in a fixed order."""
        for (edge, lateness_us), combine_buffer in self._combine_buffers.items():
            for rows, partial in combine_buffer.flush():
                yield from self._split(edge, rows, lateness_us, partial=partial)
        for slot in sorted(self._open):
            yield self._emit(slot)

    def channel_sums(self) -> dict[int, ChannelSum]:
        """Return the count and digest of every channel. Call it after `flush`."""
        return {receiver: digest.sum() for receiver, digest in enumerate(self._digests)}

    def barrier(self, barrier: Barrier) -> Iterator[pa.RecordBatch]:
        """Yield the barrier for every channel, after its buffers."""
        yield from self._broadcast(EventKind.BARRIER, barrier.encode())

    def ack(self, event: AckEvent) -> Iterator[pa.RecordBatch]:
        """Yield the acknowledgement, the last row of every channel."""
        yield from self._broadcast(EventKind.ACK, event.encode())

    def cancel(self, decline: Decline) -> Iterator[pa.RecordBatch]:
        """Yield the cancel marker, the last row of every channel."""
        yield from self._broadcast(EventKind.CANCEL, encode_answer(decline).encode())

    def _route(self, edge: Edge, rows: pa.Table, lateness_us: int | None) -> Iterator[pa.RecordBatch]:
        if edge.combiner is None:
            yield from self._split(edge, rows, lateness_us)
            return
        slot = (edge, lateness_us)
        combine_buffer = self._combine_buffers.setdefault(slot, CombineBuffer(edge.combiner, self._held_bytes))
        for part, partial in combine_buffer.add(rows):
            yield from self._split(edge, part, lateness_us, partial=partial)

    def _split(
        self, edge: Edge, rows: pa.Table, lateness_us: int | None, *, partial: bool = False
    ) -> Iterator[pa.RecordBatch]:
        times = rows.column(edge.event_time) if edge.event_time is not None and not partial else None
        rows = rows if partial else rows.select(list(edge.columns))
        groups = self._hasher.key_groups(rows, edge.key, self._max_parallelism)  # as the receiver does
        targets = subtask_of_key_group(groups, self._max_parallelism, self._receivers).astype(np.uint16)
        rows = as_partials(rows) if partial else rows
        order = np.argsort(targets, kind="stable")  # linear time for 16-bit numbers
        bounds = np.searchsorted(targets[order], np.arange(self._receivers + 1))
        for receiver in range(self._receivers):
            start, end = bounds[receiver], bounds[receiver + 1]
            if start == end:
                continue
            slot = edge.slot(receiver)
            if slot in self._open and not self._open[slot].accepts(lateness_us, partial):
                yield self._emit(slot)
            chosen = pa.array(order[start:end])
            receiver_rows, receiver_times = rows.take(chosen), times.take(chosen) if times is not None else None
            # An operator may emit a whole epoch's rows as one table, which takes several buffers.
            length = self._limits.length(receiver_rows)
            for offset in range(0, receiver_rows.num_rows, length):
                oldest_us = oldest(receiver_times.slice(offset, length)) if receiver_times is not None else None
                open_ = self._open.setdefault(slot, _OpenBuffer(lateness_us, partial, []))
                open_.add(receiver_rows.slice(offset, length), oldest_us)
                if open_.bytes >= self._limits.bytes or (
                    self._limits.rows is not None and open_.rows >= self._limits.rows
                ):
                    yield self._emit(slot)

    def _emit(self, slot: tuple[str, str, int]) -> pa.RecordBatch:
        operator, name, receiver = slot
        open_ = self._open.pop(slot)
        payload = encode_rows(pa.concat_tables(open_.parts))
        return self._row(receiver, Buffer(operator, name, open_.lateness_us, open_.oldest_us, payload))

    def _row(self, receiver: int, buffer: Buffer) -> pa.RecordBatch:
        digest = self._digests[receiver]
        header = BufferHeader(buffer.operator, buffer.producer, buffer.lateness_us, buffer.oldest_us)
        payload = buffer.body()
        row = exchange_row(receiver, self._channel, digest.count, EventKind.BUFFER, payload, header)
        digest.add(header, payload)
        return row

    def _broadcast(self, kind: EventKind, payload: bytes) -> Iterator[pa.RecordBatch]:
        for receiver, digest in enumerate(self._digests):
            yield exchange_row(receiver, self._channel, digest.count, kind, payload)


_NO_HEADER: Final = BufferHeader("", "", None, None)


def exchange_row(
    subtask: int, channel: int, sequence: int, kind: EventKind, payload: bytes, header: BufferHeader = _NO_HEADER
) -> pa.RecordBatch:
    """Return one row of the exchange."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([subtask], pa.int32()),
            pa.array([channel], pa.int32()),
            pa.array([sequence], pa.int64()),
            pa.array([header.operator], pa.string()),
            pa.array([header.producer], pa.string()),
            pa.array([kind.value], pa.string()),
            pa.array([header.lateness_us], pa.int64()),
            pa.array([header.oldest_us], pa.int64()),
            pa.array([payload], pa.binary()),
        ],
        schema=EXCHANGE_SCHEMA,
    )
