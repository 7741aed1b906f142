"""Read the rows of one record of a source's log."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound
from milepost.protocol.landed import LogRecord, StoredRecord
from milepost.protocol.records import ObjectHandle, ObjectStore, landed_objects_prefix
from milepost.spill import SpilledRows
from milepost.storage import read_handle
from milepost.storage.log import SourceLog


@dataclass(frozen=True, slots=True)
class LandedRows:
    """The rows of one record of a log, in the order in which they were landed.

    Attributes:
        void_since: sequence of the record that made it void; None: it is not void.
    """

    record: LogRecord
    rows: SpilledRows
    void_since: int | None = None


def read_landed_rows(
    log: SourceLog,
    schema: pa.Schema,
    at: int | None,
    limit: int | None,
    read_files: Callable[[StoredRecord], Iterator[pa.RecordBatch]],
) -> LandedRows:
    """Return the rows of a record.

    Args:
        schema: of a record without rows. at: its sequence; None: the newest record that has rows.
        limit: maximum number of rows, the first ones; None: all.
        read_files: reads the data files of a record that has no objects.
    Raises:
        NotFound: there is no such record, or nothing was landed. StateCorrupt: an object is missing or changed.
        SourceChanged: a data file is missing or changed.
    """
    stored, newest = _find(log, at)
    record = stored.record
    void_since = next((span.end for span in newest.voids if span.first <= record.sequence < span.end), None)
    if record.references:
        return LandedRows(record, SpilledRows(schema, map(_table, read_files(stored)), limit), void_since)
    if record.objects:
        schema = pq.read_schema(io.BytesIO(_body(log, record, 0)))
    tables = (table for number in range(len(record.objects)) for table in _tables(_body(log, record, number)))
    return LandedRows(record, SpilledRows(schema, tables, limit), void_since)


def _find(log: SourceLog, at: int | None) -> tuple[StoredRecord, LogRecord]:
    """Return a record, and the newest one."""
    newest = log.newest()
    if newest is None or (at is None and not newest.record.total_rows):
        raise NotFound(f"source {log.source}: nothing was landed yet.", hint="milepost land JOB lands what there is")
    last = newest.record
    if at is None:
        stored = log.first_reaching(last.total_rows, None, newest)
        assert stored is not None, newest
        return stored, last
    first = log.first(newest)
    if not first <= at <= last.sequence:
        deleted = f"; records before {first} were deleted, see `land.retain`" if first > last.first else ""
        raise NotFound(f"source {log.source}: its log has no record {at}: it has {first} to {last.sequence}{deleted}.")
    return (newest if at == last.sequence else log.record(at)), last


def _body(log: SourceLog, record: LogRecord, number: int) -> bytes:
    item = record.objects[number]
    store: ObjectStore = log.store
    return read_handle(store, ObjectHandle(landed_objects_prefix(log.stored_as) + item.key, item.size, item.sha256))


def _tables(body: bytes) -> Iterator[pa.Table]:
    for batch in pq.ParquetFile(io.BytesIO(body)).iter_batches():
        yield _table(batch)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
