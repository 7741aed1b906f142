"""Parquet objects as record batches. A file's types may differ from the declared ones where no value changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectPart
from milepost.sources.readers.arrow_errors import DATA_ERRORS
from milepost.sources.readers.declared_columns import DeclaredColumns
from milepost.sources.readers.memory_limit import MemoryLimitExceeded, limit_memory
from milepost.sources.readers.streams import (
    EXPANSION_FREE_BYTES,
    MAX_EXPANSION,
    ObjectBody,
    decompressed,
    open_object,
)

_FIRST_ROWS = 64
"""Rows of the first batch, of which no more is known than the file says."""

_BATCH_ROWS = 16_384
_BATCH_BYTES = 4 << 20
"""A batch has at most so many rows, and about so many bytes, by the widest rows seen so far."""

_GROWTH = 4
"""A batch has at most so many times the rows of the one before."""

_DECODING_BYTES = 256 << 20
"""What decoding one batch may take, beside the pages that it is decoded from."""

_PAGES_BYTES = 1 << 30
"""What the pages of one row group may take."""

_CONTENT_BYTES = 2 << 30
"""What holding an object that is compressed as a whole may take."""

_COLUMN_BYTES = 4 << 20
"""Of each column of a large object so much is read at a time."""

_Check = Callable[[pa.Array], object]


class ParquetReader:
    """Reads Parquet objects; picklable, holds no open file.

    A part of an object has the rows of whole row groups. They are laid over the object's bytes by their sizes, in the
    order of the file, and each belongs to the part in which its middle lies: where the file says that they are is
    nothing that an order could rest upon.
    """

    def __init__(self, declared: DeclaredColumns) -> None:
        self._declared, self.schema = declared, declared.schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part's row groups, in order, in batches of up to 16,384 rows.

        Raises:
            BadRecord: not a Parquet file, a column that is missing or of another type, or a value that does not fit or
                is no text (`line` is None, the reason names the row), or rows beyond the bounds of memory.
            CommitConflict: the object's version differs. NotFound: the object is gone.
        """
        for item in self._read(store, part, apart=False):
            assert not isinstance(item, BadRecord)
            yield item

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the part's rows whose values all fit, in order, and each row with one that does not.

        Raises: BadObject: it cannot be read, or holds too much. CommitConflict, NotFound: as `read_part`.
        """
        return self._read(store, part, apart=True)

    def _read(self, store: ObjectStore, part: ObjectPart, *, apart: bool) -> Iterator[pa.RecordBatch | BadRecord]:
        obj = part.object
        values = self._declared.path_columns.values(obj)
        stored = open_object(store, obj)
        try:
            with limit_memory(_CONTENT_BYTES):
                body = decompressed(obj.key, stored)
            for item in self._batches(part, body, apart=apart):
                if isinstance(item, BadRecord):
                    yield item
                    continue
                if item.num_rows:
                    yield self._declared.path_columns.append(item, values)
        except MemoryLimitExceeded as error:
            raise _too_large_error(obj.key, 0, error) from error
        except UnicodeDecodeError as error:
            raise BadObject(obj.key, None, None, None, "the name of a column is not valid UTF-8") from error
        except (*DATA_ERRORS, OSError) as error:
            reason = "it is not a readable Parquet file"
            raise BadObject(obj.key, None, None, None, reason, engine_message=str(error)) from error

    def _batches(self, part: ObjectPart, body: ObjectBody, *, apart: bool) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the declared columns; of rows that turn out wide, fewer at a time. Raises as `read_part`, and TooLarge.

        Args:
            apart: a row that does not fit is yielded, and not raised.
        """
        key, bound = part.object.key, max(EXPANSION_FREE_BYTES, body.size * MAX_EXPANSION)
        with limit_memory(_DECODING_BYTES):
            at_once = 0 if body.held else _COLUMN_BYTES
            file = pq.ParquetFile(body.file(), buffer_size=at_once, pre_buffer=body.held)
            self._check(key, file)
            pages_bytes, widest = self._sizes(file.metadata, at_once)
            groups = _row_groups_of(part, file.metadata)
            row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
            present = [name for name in self._declared.file_schema.names if name in file.schema_arrow.names]
            rows, seen_bytes = min(_FIRST_ROWS if present else _BATCH_ROWS, _rows_of(widest)), 0
            raw_batches = file.iter_batches(rows, groups, columns=present)
        while True:
            try:
                with limit_memory(_DECODING_BYTES + min(pages_bytes, _PAGES_BYTES)):
                    raw = next(raw_batches, None)
                    if raw is None:
                        return
                    raw = self._with_nulls(raw)
                    batch, bad = self._split_bad_rows(key, raw, row) if apart else (self._converted(key, raw, row), [])
            except MemoryLimitExceeded as error:
                raise _too_large_error(key, row, error) from error
            yield batch
            yield from bad
            row += raw.num_rows
            seen_bytes += batch.nbytes
            if seen_bytes > bound:
                reason = f"it expands to more than {MAX_EXPANSION} times its {body.size} bytes"
                raise BadObject(key, None, None, None, reason)
            widest = max(widest, batch.nbytes // max(batch.num_rows, 1))
            rows = min(rows * _GROWTH, _rows_of(widest))
            file.reader.set_batch_size(rows)

    def _sizes(self, metadata: pq.FileMetaData, at_once: int) -> tuple[int, int]:
        """Return what the file says of itself at most: bytes of the pages of a row group, and of its widest rows.

        Columns that nobody reads count, too: pyarrow ends the process that asks for the size of a single one whose
        description is broken.
        """
        paths = (metadata.schema.column(leaf).path for leaf in range(metadata.num_columns))
        leaves = sum(path.split(".")[0] in self._declared.types for path in paths)
        groups = [*map(metadata.row_group, range(metadata.num_row_groups))]
        largest = max([0, *(group.total_byte_size for group in groups)])
        widest = max([0, *(group.total_byte_size // max(group.num_rows, 1) for group in groups)])
        return largest + at_once * leaves, widest

    def _check(self, key: str, file: pq.ParquetFile) -> None:
        found = file.schema_arrow
        for column in self._declared.file_schema:
            at = found.get_all_field_indices(column.name)
            if len(at) > 1:
                raise BadObject(key, None, column.name, None, "the file has it twice")
            if not at:
                if column.name not in self._declared.required:
                    continue
                there = f"it has {', '.join(found.names)}"
                problem = "the file has no such column"
                raise self._declared.lacking(key, column.name, problem, found.names, there=there)
            type_ = found.field(at[0]).type
            if not _may_cast(type_, column.type):
                reason = f"is {type_} in the file, declared {self._declared.types[column.name]}"
                raise BadObject(key, None, column.name, None, reason)

    def _with_nulls(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with each declared column: null where the file lacks it."""
        for column in self._declared.file_schema:
            if column.name not in raw.schema.names:
                raw = raw.append_column(column, pa.nulls(raw.num_rows, column.type))
        return raw

    def _converted(self, key: str, raw: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the declared columns. Raises BadRecord: the first value of the first column that does not fit."""
        arrays = []
        for column in self._declared.file_schema:
            array, bad = self._column(key, raw[column.name], column, first_row)
            if bad is not None:
                raise bad
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._declared.timed_schema(self._declared.file_schema))

    def _column(self, key: str, found: pa.Array, column: pa.Field, first_row: int) -> tuple[pa.Array, BadRecord | None]:
        """Return a column as rows have it, and its first value that does not fit; None when all do."""

        def bad(at: int, value: pa.Scalar | None, reason: str) -> BadRecord:
            shown = None if value is None else _shown(value)
            return BadRecord(key, None, column.name, shown, reason, row=first_row + at + 1)

        type_ = self._declared.types[column.name]
        at, complaint = _first_refused(found, partial(pa.Array.cast, target_type=column.type))
        if complaint is not None:
            return found, bad(at, found[at], f"does not fit {type_}")
        array = found.cast(column.type)
        at, complaint = _first_refused(array, partial(pa.Array.validate, full=True))
        if complaint is not None:
            return found, bad(at, array[at], f"is not valid {'UTF-8' if 'UTF8' in complaint else type_}")
        times = self._times(column, array)
        if times is not None and times.null_count:
            at = times.is_null().index(True).as_py()
            value = array[at] if array[at].is_valid else None
            return found, bad(at, value, self._declared.fault(array[at]))
        return (array if times is None else times), None

    def _times(self, column: pa.Field, array: pa.Array) -> pa.Array | None:
        """Return the timestamps of the event-time column; None of another one."""
        time = self._declared.time
        return time.times(array) if time is not None and time.field.name == column.name else None

    def _split_bad_rows(self, key: str, raw: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the rows that fit, and the others with what is wrong in their first column that does not."""
        refused: dict[int, BadRecord] = {}
        for column in self._declared.file_schema:
            waiting = [range(raw.num_rows)]
            while waiting:
                rows = waiting.pop()
                part = raw[column.name].take(pa.array(rows, pa.int64()))
                if self._fits(part, column):
                    continue
                if len(rows) > 1:
                    half = len(rows) // 2
                    waiting += [rows[:half], rows[half:]]
                    continue
                _, bad = self._column(key, part, column, first_row + rows.start)
                assert bad is not None
                refused.setdefault(rows.start, bad)
        kept = [at for at in range(raw.num_rows) if at not in refused]
        batch = self._converted(key, raw.take(pa.array(kept, pa.int64())), first_row)
        return batch, [bad for _, bad in sorted(refused.items(), key=itemgetter(0))]

    def _fits(self, found: pa.Array, column: pa.Field) -> bool:
        try:
            array = found.cast(column.type)
            array.validate(full=True)
        except pa.ArrowInvalid:
            return False
        times = self._times(column, array)
        return times is None or not times.null_count


def _too_large_error(key: str, rows_read: int, error: MemoryLimitExceeded) -> BadObject:
    return BadObject(key, None, None, None, f"its rows from {rows_read + 1:,} on cannot be held: {error}")


def _row_groups_of(part: ObjectPart, metadata: pq.FileMetaData) -> range:
    """Return the row groups of a part, by index: those of all parts are those of the file, in its order.

    Of four of 10 bytes each, in an object of 48, the part [0, 24) has the first two: their middles are at 6 and 18.
    """
    sizes = [max(metadata.row_group(group).total_byte_size, 0) + 1 for group in range(metadata.num_row_groups)]
    ends = [*accumulate(sizes)]
    # In halves of a byte, by whole numbers: no part may round otherwise than another.
    middles = [(2 * end - size) * part.object.size for end, size in zip(ends, sizes, strict=True)]
    scale = 2 * ends[-1] if ends else 1
    return range(bisect_left(middles, part.start * scale), bisect_left(middles, part.stop * scale))


def _rows_of(bytes_per_row: int) -> int:
    """Return how many rows of a width a batch has."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(bytes_per_row, 1)))


def _may_cast(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of the file's type mean the same in the declared one, as far as they fit."""
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


def _first_refused(array: pa.Array, check: _Check) -> tuple[int, str | None]:
    """Return the index of the first value that a check refuses, and its complaint, or None when it takes all."""
    start, length, complaint = 0, len(array), _complaint(array, check)
    while complaint is not None and length > 1:
        # Taken, not sliced: a slice of lists or structs is judged by the values beside it, too.
        half = length // 2
        of_half = _complaint(array.take(pa.array(range(start, start + half))), check)
        if of_half is None:
            start, length = start + half, length - half
        else:
            complaint, length = of_half, half
    return start, complaint


def _complaint(array: pa.Array, check: _Check) -> str | None:
    try:
        check(array)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _shown(value: pa.Scalar) -> str | None:
    """Return a value as text; None for one that has none."""
    if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
        return value.as_buffer().to_pybytes().decode("utf-8", "replace")
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, LookupError):  # text inside that is none, a year or a zone that Python lacks
        return str(value.value) if isinstance(value, pa.TimestampScalar) else None
