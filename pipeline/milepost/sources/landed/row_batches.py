"""Turn what a user's reader yields into record batches with the declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.language import ColumnType, to_arrow
from milepost.operators.process import takes_value

_BATCH_ROWS = 10_000

_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)
"""What Arrow raises for a Python value that does not fit a type."""


def record_batches(source: str, rows: Iterator[Any], types: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the declared columns, from record batches or from rows, in order.

    A record batch may have its columns in another order, and more of them. A row is a tuple or list with the values in
    the order of `schema`, or a `Row` with their names.

    Args:
        source: for messages. types: the declared columns.
    Raises:
        InvalidRequest: a column is missing, or a value does not fit its type without loss.
    """
    schema = pa.schema([(name, to_arrow(type_)) for name, type_ in types.items()])
    waiting: list[Any] = []
    count = 0
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            yield from _of_rows(source, waiting, types, schema, count)
            count, waiting = count + len(waiting) + item.num_rows, []
            yield _declared(source, item, schema)
            continue
        waiting.append(item)
        if len(waiting) == _BATCH_ROWS:
            yield from _of_rows(source, waiting, types, schema, count)
            count, waiting = count + len(waiting), []
    yield from _of_rows(source, waiting, types, schema, count)


def _declared(source: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the declared columns of a batch, in their order, cast where nothing is lost."""
    missing = [name for name in schema.names if batch.schema.names.count(name) != 1]
    if missing:
        raise _refused(source, f"expected each declared column once, got {', '.join(batch.schema.names)}")
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _refused(source, f"column {field.name}: expected {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_rows(
    source: str, rows: Sequence[Any], types: Mapping[str, ColumnType], schema: pa.Schema, before: int
) -> Iterator[pa.RecordBatch]:
    """Yield one batch of the rows, if there are any. before: number of rows before them, for messages."""
    if not rows:
        return
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
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


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
        f"source {source}: what it read does not fit its `schema`: {problem}. Nothing of this read was landed.",
        hint="correct the class or the `schema`, then land again: it is read from the same position",
        source=source,
    )
