"""Read the first rows of one file of a table, with bounds on requested bytes and on memory.

A small file is read whole. For a large one only ranges are requested: the footer, then, column by column, the pages
with the first rows. A column that would exceed a bound is omitted and named, so no file is too large to be sampled.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound, StateCorrupt
from milepost.operators.base import DELETED_COLUMN
from milepost.protocol.records import ObjectStat, ObjectStore
from milepost.sinks.parquet_files.deletes import schema_with_deletes, without_deletes
from milepost.sinks.parquet_files.partition_values import with_partition
from milepost.sinks.parquet_files.table_files import with_instants
from milepost.sinks.parquet_files.table_schema import conform
from milepost.tables.records import StagedFile

WHOLE_BYTES = 2 << 20
"""A file of up to this size is read with one request, and its checksum is verified."""

SAMPLE_BYTES = 8 << 20
"""Maximum bytes that a sample requests from a larger file."""

CHUNK_BYTES = 32 << 20
"""Maximum bytes of one column in one row group, uncompressed."""

VALUES_BYTES = 4 << 20
"""Maximum bytes of one column's sampled values in memory."""

SAMPLE_COLUMNS = 50
"""Maximum number of columns."""

_READ_BYTES = 64 << 10
"""Bytes of one request for a column's pages."""

_DELETES = 5
"""Rows to read per row of a sample, if some of them may be deletes."""


@dataclass(frozen=True, slots=True)
class FileSample:
    """The first rows of a file, without deletes.

    Attributes:
        rows: the columns that were read, in the table's order.
        left_out: columns omitted because of the bounds.
    """

    rows: pa.Table
    left_out: tuple[str, ...]


class _BoundReached(Exception):
    """A sample would request more bytes than its bound."""


class _BoundedRanges(io.RawIOBase):
    """One version of an object as a file. At most `SAMPLE_BYTES` of it can be read."""

    def __init__(self, store: ObjectStore, stat: ObjectStat) -> None:
        super().__init__()
        self._store, self._stat, self._position = store, stat, 0
        self.left = SAMPLE_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stat.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._stat.size if size is None or size < 0 else min(self._position + size, self._stat.size)
        if stop <= self._position:
            return b""
        if stop - self._position > self.left:
            raise _BoundReached
        self.left -= stop - self._position
        part = self._store.get_range(self._stat.key, self._stat.etag, self._position, stop)
        self._position = stop
        return part


def first_rows(sink: str, store: ObjectStore, file: StagedFile, schema: pa.Schema, limit: int) -> FileSample:
    """Return up to `limit` rows of a file.

    Args:
        sink: for messages. schema: of the table.
    Raises:
        StateCorrupt: the file is missing, differs from its record, or is unreadable. CommitConflict: it is being
            changed.
    """
    try:
        stat = store.stat(file.key)
        body = store.get_if_match(file.key, stat.etag) if stat.size <= WHOLE_BYTES else None
    except NotFound as error:
        raise _corrupt(sink, file, "is missing") from error
    changed = body is not None and file.sha256 and hashlib.sha256(body).hexdigest() != file.sha256
    if stat.size != file.size or changed:
        raise _corrupt(sink, file, "does not match its recorded size and checksum")
    source = _BoundedRanges(store, stat) if body is None else None
    try:
        with pq.ParquetFile(
            pa.BufferReader(body) if source is None else pa.PythonFile(source, mode="r"),
            buffer_size=0 if source is None else _READ_BYTES,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
        ) as parquet:
            return _sample(file, parquet, schema, limit)
    except _BoundReached:
        return FileSample(pa.table({}), tuple(schema.names))  # the footer alone exceeds the bound
    except pa.ArrowException as error:
        raise _corrupt(sink, file, "is not readable as Parquet") from error


def _sample(file: StagedFile, parquet: pq.ParquetFile, schema: pa.Schema, limit: int) -> FileSample:
    names = parquet.schema_arrow.names
    has_deletes = DELETED_COLUMN in names
    rows = limit * _DELETES if has_deletes else limit
    chosen = [name for name in schema.names if name in names][:SAMPLE_COLUMNS]
    columns: dict[str, pa.ChunkedArray] = {}
    for name in ([DELETED_COLUMN] if has_deletes else []) + chosen:
        values = _first_values(parquet, name, rows)
        if values is not None:
            columns[name] = values
    absent = [name for name in schema.names if name not in names]  # newer than the file: null
    shown = [name for name in schema.names if name in columns or name in absent]
    left_out = tuple(name for name in schema.names if name not in shown)
    if has_deletes and DELETED_COLUMN not in columns:
        return FileSample(pa.table({}), tuple(schema.names))
    target = pa.schema([schema.field(name) for name in shown])
    if has_deletes:
        target = schema_with_deletes(target)
    read = with_partition(with_instants(parquet, pa.table(columns)), file.partition, target)
    return FileSample(without_deletes(conform(file.key, read, target)).slice(0, limit), left_out)


def _first_values(parquet: pq.ParquetFile, name: str, limit: int) -> pa.ChunkedArray | None:
    """Return the first values of a column; None: they exceed a bound.

    Values are decoded one by one, because a dictionary repeats one long value for each row.
    """
    try:
        values, size = list[pa.Array](), 0
        for batch in _batches(parquet, name):
            if name not in batch.schema.names:  # its name has a dot, which Parquet reads as a nested column
                return None
            values.append(batch.column(batch.schema.get_field_index(name)))
            size += batch.nbytes
            if size > VALUES_BYTES:
                return None
            if len(values) == limit:
                break
    except _BoundReached:
        return None
    return pa.chunked_array(values, parquet.schema_arrow.field(name).type)


def _batches(parquet: pq.ParquetFile, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a column, one at a time. Raises _BoundReached: the column is too large in a row group."""
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        chunks = (group.column(at) for at in range(group.num_columns))
        own = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] == name.split(".")[0]]
        if sum(chunk.total_uncompressed_size for chunk in own) > CHUNK_BYTES:
            raise _BoundReached
        yield from parquet.iter_batches(1, [number], columns=[name])


def _corrupt(sink: str, file: StagedFile, what: str) -> StateCorrupt:
    return StateCorrupt(f"sink {sink}: {file.key} {what}", key=file.key)
