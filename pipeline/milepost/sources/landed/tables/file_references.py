"""Refer to the data files of open tables, after a check that epochs can read them.

Reads the footer of each file, and the columns whose footer does not prove that an epoch accepts them: no epoch can skip
a record of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, arrow_schema, to_arrow
from milepost.sources.kernel.casts import may_cast
from milepost.sources.kernel.file_columns import FileColumns, value_text
from milepost.sources.kernel.time_column import TimeColumn
from milepost.sources.landed.contract import FileReference
from milepost.sources.landed.tables.column_types import plain_type
from milepost.sources.landed.tables.data_files import DataFile, opened_file, read_data_files, stored_names
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.storage.concurrency import parallel_map


def file_references(
    failures: TableFailures,
    files: Sequence[DataFile],
    types: Mapping[str, ColumnType],
    event_time: EventTimeSpec | None,
) -> Iterator[FileReference]:
    """Yield a reference to each file that has rows, in order.

    Raises:
        DataFileMissing. InvalidRequest: a file is not readable, or a value does not fit its type.
    """
    if files:
        refer = partial(_reference, failures, types, event_time)
        yield from (each for each in parallel_map(files[0].store, refer, files) if each is not None)


def _reference(
    failures: TableFailures, types: Mapping[str, ColumnType], event_time: EventTimeSpec | None, file: DataFile
) -> FileReference | None:
    with opened_file(failures, file, footer_only=True) as (stat, parquet):
        metadata, schema = parquet.metadata, parquet.schema_arrow
        names = stored_names(failures, file, schema, types)
        values = {name: value for name, value in file.constants.items() if name not in names}
        columns = FileColumns(names, {name: value_text(value, to_arrow(types[name])) for name, value in values.items()})
        if not metadata.num_rows:
            return None
        unproven = _converted_columns(failures, file, columns, schema, types)
        if event_time is not None and not _has_times(event_time, types, names, metadata):
            unproven.add(event_time.column)
    if unproven:
        time = event_time if event_time is not None and event_time.column in unproven else None
        subset = {name: type_ for name, type_ in types.items() if name in unproven}
        for _ in read_data_files(failures, [file], subset, time):
            pass
    return FileReference(file.uri, stat.size, stat.etag, metadata.num_rows, columns.names, columns.values)


def _converted_columns(
    failures: TableFailures, file: DataFile, columns: FileColumns, schema: pa.Schema, types: Mapping[str, ColumnType]
) -> set[str]:
    """Return the declared columns that have another type in a file. Raises InvalidRequest: an epoch cannot read one."""
    declared = arrow_schema(types)
    stored = columns.schema(schema, declared)
    converted = {field.name for field in stored if plain_type(field.type) != declared.field(field.name).type}
    for name in sorted(converted):
        if not may_cast(stored.field(name).type, declared.field(name).type):
            raise failures.invalid(
                f"has a data file {file.key} whose column {columns.names[name]} is {stored.field(name).type}, and "
                f"`schema` declares {name} as {types[name]}",
                "write `land: {by: copy}`, which converts it, or rewrite the file",
            )
    return converted


def _has_times(
    event_time: EventTimeSpec, types: Mapping[str, ColumnType], names: Mapping[str, str], metadata: pq.FileMetaData
) -> bool:
    """Return whether a footer shows that each row has an event time: a timestamp in microseconds, never null."""
    type_ = to_arrow(types[event_time.column])
    is_plain = pa.types.is_timestamp(type_) and type_.unit == "us" and TimeColumn(event_time, types[event_time.column])
    if not is_plain or is_plain.field.type != type_ or event_time.column not in names:
        return False
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    if names[event_time.column] not in paths:
        return False
    at = paths.index(names[event_time.column])
    statistics = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    return all(each is not None and each.has_null_count and each.null_count == 0 for each in statistics)
