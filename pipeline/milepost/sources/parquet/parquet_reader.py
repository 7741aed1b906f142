"""Read Parquet objects as record batches.

A file's type may differ from the declared one if no value changes its meaning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectPart
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.casts import may_cast
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.file_columns import INT96_UNIT, FileColumns
from milepost.sources.kernel.streams import (
    EXPANSION_FREE_BYTES,
    MAX_EXPANSION,
    ObjectBody,
    decompressed,
    open_object,
)
from milepost.sources.parquet.memory_limit import MemoryLimitExceeded, limit_memory

_FIRST_ROWS = 64
"""Rows of the first batch: their width is known only from the file, which may be wrong."""

_BATCH_ROWS = 16_384
_BATCH_BYTES = 4 << 20
"""Limits of a batch. The bytes are estimated from the widest batch so far."""

_GROWTH = 4
"""A batch has at most this many times the rows of the previous one."""

_DECODING_BYTES = 256 << 20
"""Memory limit for decoding one batch, in addition to its pages."""

_PAGES_BYTES = 1 << 30
"""Memory limit for the pages of one row group."""

_CONTENT_BYTES = 2 << 30
"""Memory limit for the content of an object that is compressed as a whole."""

_COLUMN_BYTES = 4 << 20
"""Bytes per read of one column of a large object."""

_Check = Callable[[pa.Array], object]


class ParquetReader:
    """Reads Parquet objects; picklable, holds no open file.

    A part has whole row groups. File offsets are untrusted, so they do not define which part has a row group. Instead
    the row groups are scaled onto the object's bytes by size, in file order, and each belongs to the part that contains
    its middle.

    Args:
        is_trusted: whether the objects may expand by any factor, as the job's own may; the memory limits remain.
        metadata_prefix: the file's metadata whose keys begin so becomes the schema metadata of each batch; empty: none.
        columns: how the objects name the declared columns, as data files of a table; None: as they are declared.
    """

    def __init__(
        self,
        declared: DeclaredColumns,
        *,
        is_trusted: bool = False,
        metadata_prefix: bytes = b"",
        columns: FileColumns | None = None,
    ) -> None:
        self._declared, self.schema, self._is_trusted = declared, declared.schema, is_trusted
        self._metadata_prefix, self._columns = metadata_prefix, columns

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part's row groups, in order, in batches of up to 16,384 rows.

        Raises:
            BadRecord: it is not a Parquet file; a column is missing or has another type; a value does not fit or is
                not valid text (`line` is None, the reason names the row); or its rows exceed the memory limits.
            CommitConflict: the object's version differs. NotFound: the object was deleted.
        """
        for item in self._read(store, part, salvage=False):
            assert not isinstance(item, BadRecord)
            yield item

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the part's rows with values that all fit, in order, and a BadRecord for each other row.

        Raises: BadObject: it cannot be read, or exceeds the limits. CommitConflict, NotFound: as `read_part`.
        """
        return self._read(store, part, salvage=True)

    def _read(self, store: ObjectStore, part: ObjectPart, *, salvage: bool) -> Iterator[pa.RecordBatch | BadRecord]:
        obj = part.object
        values = self._declared.path_columns.values(obj)
        stored = open_object(store, obj)
        try:
            with limit_memory(_CONTENT_BYTES):
                body = decompressed(obj.key, stored) if self._columns is None else stored
            for item in self._batches(part, body, salvage=salvage):
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

    def _batches(self, part: ObjectPart, body: ObjectBody, *, salvage: bool) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the declared columns, in batches with fewer rows if these are wide.

        Args:
            salvage: yield the error of a bad row instead of raising it.

        Raises: as `read_part`; MemoryLimitExceeded.
        """
        key, bound = part.object.key, max(EXPANSION_FREE_BYTES, body.size * MAX_EXPANSION)
        with limit_memory(_DECODING_BYTES):
            column_bytes = 0 if body.in_memory else _COLUMN_BYTES
            unit = None if self._columns is None else INT96_UNIT
            file = pq.ParquetFile(
                body.file(), buffer_size=column_bytes, pre_buffer=body.in_memory, coerce_int96_timestamp_unit=unit
            )
            schema = file.schema_arrow
            if self._columns is not None:
                schema = self._columns.schema(schema, self._declared.file_schema)
            self._check(key, schema)
            metadata = self._metadata(file.metadata)
            groups = _row_groups_of(part, file.metadata)
            row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
            present = [name for name in self._declared.file_schema.names if name in schema.names]
            if self._columns is not None:
                present = self._columns.stored(present)
            pages_bytes, widest = self._sizes(file.metadata, column_bytes, {*present})
            rows, seen_bytes = min(_FIRST_ROWS if present else _BATCH_ROWS, _rows_of(widest)), 0
            raw_batches = file.iter_batches(rows, groups, columns=present)
        while True:
            try:
                with limit_memory(_DECODING_BYTES + min(pages_bytes, _PAGES_BYTES)):
                    raw = next(raw_batches, None)
                    if raw is None:
                        return
                    if self._columns is not None:
                        raw = self._columns.declared(raw, self._declared.file_schema)
                    raw = self._with_nulls(raw)
                    if salvage:
                        batch, bad = self._split_bad_rows(key, raw, row)
                    else:
                        batch, bad = self._converted(key, raw, row), []
            except MemoryLimitExceeded as error:
                raise _too_large_error(key, row, error) from error
            yield batch.replace_schema_metadata(metadata) if metadata else batch
            yield from bad
            row += raw.num_rows
            seen_bytes += batch.nbytes
            if seen_bytes > bound and not self._is_trusted:
                reason = f"it expands to more than {MAX_EXPANSION} times its {body.size} bytes"
                raise BadObject(key, None, None, None, reason)
            widest = max(widest, batch.nbytes // max(batch.num_rows, 1))
            rows = min(rows * _GROWTH, _rows_of(widest))
            file.reader.set_batch_size(rows)

    def _metadata(self, file: pq.FileMetaData) -> dict[bytes, bytes]:
        prefix, items = self._metadata_prefix, (file.metadata or {}).items()
        return {key: value for key, value in items if key.startswith(prefix)} if prefix else {}

    def _sizes(self, metadata: pq.FileMetaData, column_bytes: int, present: set[str]) -> tuple[int, int]:
        """Return, by the file's metadata, the bytes of its largest row group's pages and of its widest rows.

        These include columns that are not read. pyarrow can give the size of a single column, but crashes if the
        metadata of that column is broken.
        """
        paths = (metadata.schema.column(leaf).path for leaf in range(metadata.num_columns))
        leaves = sum(path.split(".")[0] in present for path in paths)
        groups = [*map(metadata.row_group, range(metadata.num_row_groups))]
        largest = max([0, *(group.total_byte_size for group in groups)])
        widest = max([0, *(group.total_byte_size // max(group.num_rows, 1) for group in groups)])
        return largest + column_bytes * leaves, widest

    def _check(self, key: str, schema: pa.Schema) -> None:
        for column in self._declared.file_schema:
            at = schema.get_all_field_indices(column.name)
            if len(at) > 1:
                raise BadObject(key, None, column.name, None, "is twice in the file")
            if not at:
                if column.name not in self._declared.required:
                    continue
                content = f"it has {', '.join(schema.names)}"
                problem = "is not in the file"
                raise self._declared.missing_column_error(key, column.name, problem, schema.names, content=content)
            type_ = schema.field(at[0]).type
            if not may_cast(type_, column.type):
                reason = f"is {type_} in the file, declared {self._declared.types[column.name]}"
                raise BadObject(key, None, column.name, None, reason)

    def _with_nulls(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Add the declared columns that the file lacks, as nulls."""
        for column in self._declared.file_schema:
            if column.name not in raw.schema.names:
                raw = raw.append_column(column, pa.nulls(raw.num_rows, column.type))
        return raw

    def _converted(self, key: str, raw: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Convert to the declared columns. Raises BadRecord: the first value that does not fit, by column, then row."""
        arrays = []
        for column in self._declared.file_schema:
            array, bad = self._column(key, raw[column.name], column, first_row)
            if bad is not None:
                raise bad
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._declared.timed_schema(self._declared.file_schema))

    def _column(
        self, key: str, stored: pa.Array, column: pa.Field, first_row: int
    ) -> tuple[pa.Array, BadRecord | None]:
        """Convert one column; also return the error of its first value that does not fit, or None."""

        def bad(at: int, value: pa.Scalar | None, reason: str) -> BadRecord:
            text = None if value is None else _value_text(value)
            return BadRecord(key, None, column.name, text, reason, row=first_row + at + 1)

        type_ = self._declared.types[column.name]
        at, complaint = _first_refused(stored, partial(pa.Array.cast, target_type=column.type))
        if complaint is not None:
            return stored, bad(at, stored[at], f"does not fit {type_}")
        array = stored.cast(column.type)
        at, complaint = _first_refused(array, partial(pa.Array.validate, full=True))
        if complaint is not None:
            return stored, bad(at, array[at], f"is not valid {'UTF-8' if 'UTF8' in complaint else type_}")
        times = self._times(column, array)
        if times is not None and times.null_count:
            at = times.is_null().index(True).as_py()
            value = array[at] if array[at].is_valid else None
            return stored, bad(at, value, self._declared.fault(array[at]))
        return (array if times is None else times), None

    def _times(self, column: pa.Field, array: pa.Array) -> pa.Array | None:
        """Return the timestamps if this is the event-time column, else None."""
        time = self._declared.time
        return time.times(array) if time is not None and time.field.name == column.name else None

    def _split_bad_rows(self, key: str, raw: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the rows that fit, and for each other row the error of its first bad column."""
        refused: dict[int, BadRecord] = {}
        for column in self._declared.file_schema:
            # Halve each range with a bad value down to one row. If row 5 of 8 is bad, these are 0-7, 4-7, 4-5 and 5.
            pending = [range(raw.num_rows)]
            while pending:
                rows = pending.pop()
                part = raw[column.name].take(pa.array(rows, pa.int64()))
                if self._fits(part, column):
                    continue
                if len(rows) > 1:
                    half = len(rows) // 2
                    pending += [rows[:half], rows[half:]]
                    continue
                _, bad = self._column(key, part, column, first_row + rows.start)
                assert bad is not None
                refused.setdefault(rows.start, bad)
        good = [at for at in range(raw.num_rows) if at not in refused]
        batch = self._converted(key, raw.take(pa.array(good, pa.int64())), first_row)
        return batch, [bad for _, bad in sorted(refused.items(), key=itemgetter(0))]

    def _fits(self, stored: pa.Array, column: pa.Field) -> bool:
        try:
            array = stored.cast(column.type)
            array.validate(full=True)
        except pa.ArrowInvalid:
            return False
        times = self._times(column, array)
        return times is None or not times.null_count


def _too_large_error(key: str, rows_read: int, error: MemoryLimitExceeded) -> BadObject:
    return BadObject(key, None, None, None, f"its rows from {rows_read + 1:,} on need too much memory: {error}")


def _row_groups_of(part: ObjectPart, metadata: pq.FileMetaData) -> range:
    """Return the indices of a part's row groups. Each row group belongs to exactly one of an object's parts.

    Four row groups of equal size, scaled onto an object of 48 bytes, have their middles at 6, 18, 30 and 42. So the
    part [0, 24) has the first two.
    """
    sizes = [max(metadata.row_group(group).total_byte_size, 0) + 1 for group in range(metadata.num_row_groups)]
    ends = [*accumulate(sizes)]
    # Integers in half bytes, scaled by the total: rounding must not differ between parts.
    middles = [(2 * end - size) * part.object.size for end, size in zip(ends, sizes, strict=True)]
    scale = 2 * ends[-1] if ends else 1
    return range(bisect_left(middles, part.start * scale), bisect_left(middles, part.stop * scale))


def _rows_of(bytes_per_row: int) -> int:
    """Return the rows of a batch whose rows have this width."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(bytes_per_row, 1)))


def _first_refused(array: pa.Array, check: _Check) -> tuple[int, str | None]:
    """Return the index of the first value that a check rejects and the error message; None if it accepts all."""
    start, length, complaint = 0, len(array), _complaint(array, check)
    while complaint is not None and length > 1:
        # Taken, not sliced: the check of a slice of lists or structs also covers values outside the slice.
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


def _value_text(value: pa.Scalar) -> str | None:
    """Return a value as text, or None if it has no text form."""
    if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
        return value.as_buffer().to_pybytes().decode("utf-8", "replace")
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, LookupError):  # invalid text inside, or a year or zone that Python lacks
        return str(value.value) if isinstance(value, pa.TimestampScalar) else None
