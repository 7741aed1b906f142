"""Parquet objects as record batches. A file's types may differ from the declared ones where no value changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.types import ColumnType, to_arrow
from pipeline.protocol.object_store import ObjectStore
from pipeline.sources.contract import BadRecord, SourceObject
from pipeline.sources.path_columns import PathColumns
from pipeline.sources.streams import EXPANSION_FREE_BYTES, MAX_EXPANSION, decompressed, open_object

_BATCH_ROWS = 65_536

_COLUMN_BYTES = 4 << 20
"""Of each column of a large object so much is read at a time."""


class ParquetReader:
    """Reads Parquet objects; picklable, holds no open file."""

    def __init__(
        self,
        source: str,
        columns: Mapping[str, ColumnType],
        *,
        event_time: str | None = None,
        partitions: Mapping[str, ColumnType] | None = None,
    ) -> None:
        """Take the declared columns, in order; others of a file are ignored.

        Args:
            source: name, for messages.
            event_time: column that may not be null.
            partitions: columns taken from the key.

        Raises:
            InvalidRequest: a partition type that a path cannot hold.
        """
        self._path_columns = PathColumns(source, partitions or {})
        self._types = dict(columns)
        self._columns = pa.schema([(name, to_arrow(type_)) for name, type_ in columns.items()])
        self.schema = pa.schema([*self._columns, *self._path_columns.fields])
        self._event_time = event_time if event_time in columns else None

    def read(self, store: ObjectStore, obj: SourceObject) -> Iterator[pa.RecordBatch]:
        """Yield the object's rows in order, in batches of up to 65,536 rows.

        Raises:
            BadRecord: not a Parquet file, a column that is missing or of another type, or a value that does not fit
                (`line` is None, the reason names the row). CommitConflict: the object's version differs.
            NotFound: the object is gone.
        """
        values = self._path_columns.values(obj)
        body = decompressed(obj.key, open_object(store, obj))
        row = 0
        try:
            at_once = 0 if body.held else _COLUMN_BYTES
            file = pq.ParquetFile(body.file(), buffer_size=at_once, pre_buffer=body.held)
            self._check(obj.key, file, body.size)
            for raw in file.iter_batches(batch_size=_BATCH_ROWS, columns=self._columns.names):
                batch = self._converted(obj.key, raw, row)
                row += batch.num_rows
                if batch.num_rows:
                    yield self._path_columns.append(batch, values)
        except (pa.ArrowException, OSError) as error:
            raise BadRecord(obj.key, None, None, None, f"it is not a readable Parquet file ({error})") from error

    def _check(self, key: str, file: pq.ParquetFile, size: int) -> None:
        groups = (file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if sum(groups) > max(EXPANSION_FREE_BYTES, size * MAX_EXPANSION):
            raise BadRecord(key, None, None, None, f"it expands to more than {MAX_EXPANSION} times its {size} bytes")
        found = file.schema_arrow
        for column in self._columns:
            at = found.get_all_field_indices(column.name)
            if len(at) != 1:
                problem = "the file has it twice" if at else "the file has no such column"
                raise BadRecord(key, None, column.name, None, problem)
            type_ = found.field(at[0]).type
            if not _may_cast(type_, column.type):
                raise BadRecord(
                    key, None, column.name, None, f"is {type_} in the file, declared {self._types[column.name]}"
                )

    def _converted(self, key: str, raw: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        arrays = []
        for column in self._columns:
            array = raw[column.name]
            bad = _first_unfit(array, column.type)
            if bad is not None:
                reason = f"does not fit {self._types[column.name]} (row {first_row + bad + 1:,})"
                raise BadRecord(key, None, column.name, str(array[bad].as_py()), reason)
            if column.name == self._event_time and array.null_count:
                at = array.is_null().index(True).as_py()
                raise BadRecord(
                    key, None, column.name, None, f"is null, but it is the event time (row {first_row + at + 1:,})"
                )
            arrays.append(array.cast(column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)


def _may_cast(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of the file's type mean the same in the declared one, as far as they fit."""
    t = pa.types
    if t.is_dictionary(found):
        found = found.value_type
    if found == declared:
        return True
    if t.is_timestamp(found) and t.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    kinds = (
        t.is_integer,
        t.is_decimal,
        t.is_floating,
        lambda type_: t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_),
        lambda type_: t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_),
        t.is_date,
    )
    if any(kind(found) and kind(declared) for kind in kinds):
        return not (t.is_floating(found) and found.bit_width > declared.bit_width)
    if (t.is_list(found) or t.is_large_list(found)) and t.is_list(declared):
        return _may_cast(found.value_type, declared.value_type)
    if t.is_struct(found) and t.is_struct(declared):
        names = [field.name for field in declared]
        return [field.name for field in found] == names and all(
            _may_cast(found.field(name).type, declared.field(name).type) for name in names
        )
    return False


def _first_unfit(array: pa.Array, type_: pa.DataType) -> int | None:
    """Return the index of the first value that the cast refuses, or None."""
    if _fits(array, type_):
        return None
    start, length = 0, len(array)
    while length > 1:
        half = length // 2
        if _fits(array.slice(start, half), type_):
            start, length = start + half, length - half
        else:
            length = half
    return start


def _fits(array: pa.Array, type_: pa.DataType) -> bool:
    try:
        array.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True
