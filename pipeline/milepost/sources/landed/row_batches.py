"""Convert rows or batches to record batches with the declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, arrow_schema
from milepost.operators.process import takes_value
from milepost.sources.kernel.time_column import TimeColumn

_BATCH_ROWS, _BATCH_BYTES = 10_000, 16 << 20
_FIRST_ROWS = 10
"""Rows of a first batch, which shows how large rows are. With texts of 10 MB, a later batch is one or two rows."""

_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)
"""What Arrow raises for a Python value that does not fit a type."""


def record_batches(
    source: str, rows: Iterator[Any], types: Mapping[str, ColumnType], event_time: EventTimeSpec | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the declared columns, from record batches or from rows, in order.

    A record batch may have its columns in another order, and more of them. A row is a tuple or list with the values in
    the order of `schema`, or a `Row` with their names.

    Args:
        source: for messages. types: the declared columns.
        event_time: the column of the event time; None: rows have none.
    Raises:
        InvalidRequest: a column is missing, a value does not fit its type without loss, or a row has no event time. No
            epoch could ever process such a row, and it could never leave the log.
    """
    times = None if event_time is None else TimeColumn(event_time, types[event_time.column])
    count = 0
    for batch in _batches(source, rows, types):
        if times is not None:
            _require_times(source, batch.column(times.field.name), times, count)
        count += batch.num_rows
        yield batch


def _require_times(source: str, column: pa.Array, times: TimeColumn, before: int) -> None:
    """Check that each row has an event time. before: number of rows before them, for messages."""
    valid = times.times(column).is_valid()
    if (at := valid.index(pa.scalar(False)).as_py()) >= 0:
        value = column[at]
        shown = f", value {value.as_py()!r:.80}," if value.is_valid else ""
        raise _refused(source, f"row {before + at + 1}, column {times.field.name}{shown} {times.fault(value)}")


def _batches(source: str, rows: Iterator[Any], types: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the declared columns."""
    schema = arrow_schema(types)
    waiting: list[Any] = []
    count, size = 0, _FIRST_ROWS
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            if waiting:
                yield _of_rows(source, waiting, types, schema, count)
            count, waiting = count + len(waiting) + item.num_rows, []
            yield _declared(source, item, schema)
            continue
        waiting.append(item)
        if len(waiting) >= size:
            batch = _of_rows(source, waiting, types, schema, count)
            count, waiting = count + len(waiting), []
            size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
            yield batch
    if waiting:
        yield _of_rows(source, waiting, types, schema, count)


def _declared(source: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the declared columns of a batch, in their order, cast where nothing is lost."""
    missing = [name for name in schema.names if batch.schema.names.count(name) != 1]
    if missing:
        raise _refused(source, f"expected each declared column once, got {', '.join(batch.schema.names)}")
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                cast = column.cast(field.type)
                is_same = _is_same(column, cast)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise _refused(source, f"column {field.name}: expected {field.type}: {error}") from error
            if not is_same:
                raise _refused(
                    source,
                    f"column {field.name}: expected {field.type}, got values of {column.type} that do not fit it",
                )
            column = cast
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_same(column: pa.Array, cast: pa.Array) -> bool:
    """Return whether values are the same after a cast. Arrow casts 5 to true, 0.126 to 0.13, and drops fields.

    Floats of another width are the same, rounded, unless they become infinite.
    """
    if pa.types.is_floating(column.type) and pa.types.is_floating(cast.type):
        return bool(pc.is_inf(column).equals(pc.is_inf(cast)))
    if pa.types.is_null(column.type):
        return True
    back = cast.cast(column.type)
    return back.equals(column) or repr(back.to_pylist()) == repr(column.to_pylist())  # NaN equals itself here


def _of_rows(
    source: str, rows: Sequence[Any], types: Mapping[str, ColumnType], schema: pa.Schema, before: int
) -> pa.RecordBatch:
    """Return one batch of the rows. before: number of rows before them, for messages."""
    values = [_values(source, row, schema, before + at) for at, row in enumerate(rows, 1)]
    columns = []
    for field, column in zip(schema, zip(*values, strict=True), strict=True):
        for at, value in enumerate(column, before + 1):
            if not takes_value(types[field.name], value):
                raise _refused(
                    source, f"row {at}, column {field.name}: expected {types[field.name]}, got {value!r:.80}"
                )
        try:
            columns.append(pa.array(column, field.type))
        except _UNFIT as error:
            at = next(at for at, value in enumerate(column, before + 1) if not _fits(value, field.type))
            raise _refused(source, f"row {at}, column {field.name}: expected {types[field.name]}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(source: str, row: Any, schema: pa.Schema, number: int) -> Sequence[Any]:
    """Return the values of a row in the order of the schema."""
    names = getattr(row, "__fields__", None)  # a pyspark Row with names
    if names is not None:
        if sorted(names) != sorted(schema.names):
            raise _refused(source, f"row {number}: expected the columns {', '.join(schema.names)}, got {names}")
        return [row[name] for name in schema.names]
    if not isinstance(row, tuple | list) or len(row) != len(schema):
        got = f"{len(row)} values" if isinstance(row, tuple | list) else type(row).__name__
        raise _refused(source, f"row {number}: expected a tuple of {len(schema)} values, got {got}")
    return row


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.array([value], type_)
    except _UNFIT:
        return False
    return True


def _refused(source: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"source {source}: what it read does not fit its `schema`: {problem}. Nothing from this read was landed.",
        hint="correct what it reads, or the `schema`, then land again: it is read from the same position",
        source=source,
    )
