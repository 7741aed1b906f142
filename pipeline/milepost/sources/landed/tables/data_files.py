"""Read the data files of open tables as the declared columns.

A row has, per column, the value from the file, the constant of the file's partition, or null if the file is older than
the column. Values are cast only where nothing is lost (`row_batches.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound
from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, to_arrow
from milepost.protocol.records import ObjectStat, ObjectStore, child_url
from milepost.sources.contract import SourceObject
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.file_columns import INT96_UNIT
from milepost.sources.kernel.streams import ObjectBody, RangeReader, open_object
from milepost.sources.landed.row_batches import record_batches
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.storage.concurrency import parallel_map

_BATCH_ROWS, _BATCH_BYTES = 16_384, 8 << 20
_COLUMN_BYTES = 4 << 20
"""Bytes per read of one column of a large file."""


class DataFileMissing(Exception):
    """A data file was deleted. The argument is its key."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Names of a column in data files, for a table with column mapping.

    Attributes:
        field_id: in files with field ids; None: field ids are ignored.
        names: in files without field ids; (): the table has no mapping of names.
    """

    field_id: int | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table.

    Attributes:
        store: that has it. key: below the store's root. size: in bytes, as the table states it.
        constants: declared column -> its value in all rows of the file.
        columns: declared column -> how the file names it. None: as it is declared.
        skipped_rows: number of rows at the beginning of the file that are skipped.
    """

    store: ObjectStore = field(repr=False)
    key: str
    size: int
    constants: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, FieldNames] | None = None
    skipped_rows: int = 0

    @property
    def uri(self) -> str:
        """Its location."""
        return child_url(self.store.config.url, self.key)


def read_data_files(
    failures: TableFailures,
    files: Sequence[DataFile],
    types: Mapping[str, ColumnType],
    event_time: EventTimeSpec | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, in order, as batches of the declared columns.

    Raises:
        DataFileMissing. InvalidRequest: a file is not readable, or a value does not fit its type.
    """
    batches = (batch for file in files for batch in _batches(failures, file, types))
    return record_batches(failures.source, batches, types, event_time)


def missing_files(files: Sequence[DataFile]) -> list[bool]:
    """Return whether each file was deleted."""

    def is_missing(file: DataFile) -> bool:
        try:
            file.store.stat(file.key)
        except NotFound:
            return True
        return False

    return parallel_map(files[0].store, is_missing, files) if files else []


@contextmanager
def opened_file(
    failures: TableFailures, file: DataFile, *, footer_only: bool = False
) -> Iterator[tuple[ObjectStat, pq.ParquetFile]]:
    """Open a file for the block, which reads it. Raises: as `read_data_files`.

    Args:
        footer_only: the block reads no rows.
    """
    try:
        stat = file.store.stat(file.key)
        obj = SourceObject(stat.key, stat.etag, stat.size, stat.last_modified_ms)
        body = ObjectBody(stat.size, partial(RangeReader, file.store, obj)) if footer_only else None
        body = body or open_object(file.store, obj)
        buffer = 0 if body.in_memory or footer_only else _COLUMN_BYTES
        with pq.ParquetFile(
            body.file(), buffer_size=buffer, pre_buffer=body.in_memory, coerce_int96_timestamp_unit=INT96_UNIT
        ) as parquet:
            yield stat, parquet
    except NotFound as error:
        raise DataFileMissing(file.key) from error
    except (*DATA_ERRORS, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise failures.invalid(
            f"has a data file {file.key} that is not readable as Parquet: {reason}", "restore the file from a copy"
        ) from error


def _batches(failures: TableFailures, file: DataFile, types: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    with opened_file(failures, file) as (_, parquet):
        columns = stored_names(failures, file, parquet.schema_arrow, types)
        groups, skipped = _unread_groups(parquet.metadata, file.skipped_rows)
        for batch in parquet.iter_batches(_batch_rows(parquet.metadata), groups, [*columns.values()]):
            unread = batch.slice(skipped)
            skipped = max(0, skipped - batch.num_rows)
            if unread.num_rows:
                yield _declared(file, unread, columns, types)


def stored_names(
    failures: TableFailures, file: DataFile, schema: pa.Schema, types: Mapping[str, ColumnType]
) -> dict[str, str]:
    """Return the name that each declared column has in a file. Those that the file lacks are left out."""
    names = schema.names
    if len({*names}) < len(names):
        raise failures.invalid(f"has a data file {file.key} with two columns of one name", "rewrite the file")
    if file.columns is not None:
        columns = {name: column for name, column in file.columns.items() if name in types}
        return _by_field_id(failures, file, schema, columns)
    folded = {name.lower(): name for name in names}
    for name in types:
        if name not in names and name not in file.constants and (other := folded.get(name.lower())) is not None:
            raise failures.invalid(
                f"has a data file {file.key} with the column {other}, which differs from {name} only in case",
                "rewrite the file with the engine that wrote it",
            )
    return {name: name for name in types if name in names and name not in file.constants}


def _by_field_id(
    failures: TableFailures, file: DataFile, schema: pa.Schema, columns: Mapping[str, FieldNames]
) -> dict[str, str]:
    ids = {(each.metadata or {}).get(b"PARQUET:field_id"): each.name for each in schema}
    if ids.keys() - {None} and all(column.field_id is not None for column in columns.values()):
        found = {name: ids.get(str(column.field_id).encode()) for name, column in columns.items()}
    elif any(column.names for column in columns.values()):
        found = {
            name: next((each for each in column.names if each in schema.names), None)
            for name, column in columns.items()
        }
    else:
        raise failures.invalid(
            f"has a data file {file.key} without field ids, and no mapping of names (schema.name-mapping.default)",
            "set the mapping, or rewrite the file",
        )
    return {name: stored for name, stored in found.items() if stored is not None}


def _declared(
    file: DataFile, batch: pa.RecordBatch, columns: Mapping[str, str], types: Mapping[str, ColumnType]
) -> pa.RecordBatch:
    arrays = []
    for name, type_ in types.items():
        if name in columns:
            arrays.append(batch.column(columns[name]))
        elif name in file.constants:
            arrays.append(pa.repeat(pa.scalar(file.constants[name], to_arrow(type_)), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, to_arrow(type_)))
    return pa.RecordBatch.from_arrays(arrays, names=[*types])


def _unread_groups(metadata: pq.FileMetaData, skipped: int) -> tuple[list[int], int]:
    """Return the row groups to read of a file, and how many rows at the beginning of the first one are not read.

    With row groups of 3, 3 and 2 rows, of which 4 are skipped: groups 1 and 2, without the first row of group 1.
    """
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if skipped < rows:
            return [*range(number, metadata.num_row_groups)], skipped
        skipped -= rows
    return [], 0


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Return the rows of a batch. With rows of 1 MB, as the footer states, these are 8."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(widest, 1)))
