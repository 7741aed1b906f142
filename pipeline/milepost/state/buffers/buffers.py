"""Rows of one edge as an Arrow IPC stream, with their lateness watermark and oldest event time.

A buffer is the unit that crosses the exchange. When an unaligned checkpoint overtakes it, it becomes the unit of
channel state, and is stored without being decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.state.buffers.spill import Spilled, SpillFile
from milepost.state.layers.integer_packing import narrowed, widened
from milepost.state.layers.key_hash import KeyHash

_PARTIALS = {b"milepost.partials": b"1"}
"""Schema metadata of a payload that holds partial results; part of what its digest covers."""

_EXTENT = b"milepost.extent"
"""Schema metadata of a payload: number and bytes of its rows."""

_MUCH_TEXT_BYTES = 256 << 10
_SAMPLED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of a payload, and their bytes in memory once they are decoded."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows of one producer for one subtask of one operator.

    Attributes:
        lateness_us: lateness watermark when its rows were read. It decides permanently which are late. None: none is.
        oldest_us: least event time of its rows. None: they have none.
        payload: Arrow IPC stream, in memory or on the node's disk.
    """

    operator: str
    producer: str
    lateness_us: int | None
    oldest_us: int | None
    payload: bytes | pa.Buffer | Spilled

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.payload) if isinstance(self.payload, bytes) else int(self.payload.size)

    def rows(self) -> pa.Table:
        return decode_rows(self._encoded())

    def extent(self) -> Extent:
        """Return the number of rows and their size in memory without decoding them."""
        return extent_of(self._encoded())

    def _encoded(self) -> bytes | pa.Buffer:
        return self.payload.read() if isinstance(self.payload, Spilled) else self.payload

    def body(self) -> bytes:
        """Return the payload as bytes."""
        if isinstance(self.payload, Spilled):
            return self.payload.read()
        return self.payload.to_pybytes() if isinstance(self.payload, pa.Buffer) else self.payload

    def spilled(self, spill: SpillFile) -> Buffer:
        """Return the same buffer with its payload on the disk. Raises EnvironmentUnusable."""
        if isinstance(self.payload, Spilled):
            return self
        return replace(self, payload=spill.append(self.payload))


def as_partials(rows: pa.Table) -> pa.Table:
    """Mark a table as partial results of the operator that it goes to."""
    return rows.replace_schema_metadata(_PARTIALS)


def are_partials(rows: pa.Table) -> bool:
    """Return whether the rows of a buffer are partial results, not rows of its producer."""
    return rows.schema.metadata == _PARTIALS


def encode_rows(rows: pa.Table) -> bytes:
    """Return rows as an Arrow IPC stream of one batch. Equal rows give equal bytes.

    Integers are narrowed. The stream is compressed when a sample of a large text column shrinks to less than half.
    """
    extent = f"{rows.num_rows} {rows.nbytes}".encode()
    rows = narrowed(rows.combine_chunks())
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), _EXTENT: extent})
    sink = pa.BufferOutputStream()
    compression = "lz4" if any(_repeats_itself(column) for column in rows.columns) else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_rows(payload: bytes | pa.Buffer) -> pa.Table:
    """Return the inverse of `encode_rows`."""
    rows = widened(pa.ipc.open_stream(payload, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all())
    metadata = {key: value for key, value in (rows.schema.metadata or {}).items() if key != _EXTENT}
    return rows.replace_schema_metadata(metadata or None)


def extent_of(payload: bytes | pa.Buffer) -> Extent:
    """Return the extent of encoded rows from their schema metadata."""
    count, size = pa.ipc.open_stream(payload).schema.metadata[_EXTENT].split()
    return Extent(int(count), int(size))


def _repeats_itself(column: pa.ChunkedArray) -> bool:
    """Return whether LZ4 shrinks a sample from the middle of a large text column to less than half."""
    if column.num_chunks != 1 or column.nbytes < _MUCH_TEXT_BYTES:
        return False
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return False
    sample = b"".join(value.as_buffer() for value in column.slice(len(column) // 2, _SAMPLED_ROWS) if value.is_valid)
    return 2 * len(pa.compress(sample, "lz4_raw", asbytes=True)) < len(sample)


def oldest(times: pa.ChunkedArray) -> int | None:
    """Return the least of some event times, microseconds since the epoch, UTC; None when there is none."""
    import pyarrow.compute as pc  # imported late: readers of metadata, which names channel state, do not need it

    least: int | None = pc.min(times.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())).as_py()
    return least


def owned_part(
    buffer: Buffer, routing_key: Sequence[str], hasher: KeyHash, key_groups: range, max_parallelism: int
) -> Buffer | None:
    """Return the rows of a buffer that belong to `key_groups`, or None when there are none.

    The oldest event time stays that of the whole buffer. It can only hold a watermark back.
    """
    rows = buffer.rows()
    groups = hasher.key_groups(rows, routing_key, max_parallelism)
    owned = (groups >= key_groups.start) & (groups < key_groups.stop)
    if not owned.any():
        return None
    if owned.all():
        return buffer
    payload = encode_rows(rows.filter(pa.array(owned)))
    return Buffer(buffer.operator, buffer.producer, buffer.lateness_us, buffer.oldest_us, payload)
