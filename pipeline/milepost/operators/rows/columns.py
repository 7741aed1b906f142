"""Column helpers of operators: group numbers, normalised keys, and event times as integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language.times import scalar_text
from milepost.operators.contract import TOTAL_COLUMN, Bools, Ints, OperatorFailed, OperatorInput

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def check_key(uid: str, key: Sequence[str], schema: pa.Schema) -> None:
    """Check the key columns. Raises InvalidRequest: one is not in the operator's input, or is nested."""
    _check_scalars(uid, "key column", "cannot be a key", key, schema)


def check_order(uid: str, columns: Iterable[str], schema: pa.Schema) -> None:
    """Check the columns of an order. Raises InvalidRequest: one is not in the operator's input, or is nested."""
    _check_scalars(uid, "order column", "has no order", columns, schema)


def _check_scalars(uid: str, what: str, why_not: str, columns: Iterable[str], schema: pa.Schema) -> None:
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise InvalidRequest(
                f"operator {uid!r}: {what} {name!r} is not in its input. Nothing was changed.",
                hint=f"Its input has: {', '.join(schema.names)}.",
            )
        if pa.types.is_nested(schema.field(name).type):
            raise InvalidRequest(
                f"operator {uid!r}: {what} {name!r} has type {schema.field(name).type}, which {why_not}. "
                "Nothing was changed.",
                hint="Take a scalar out of it in a `sql` operator.",
            )


def distinct_columns(uid: str, fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the fields as a schema. Raises InvalidRequest: two have the same name."""
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(
                f"operator {uid!r}: column {name!r} would come twice. Nothing was changed.",
                hint="Rename the key column or the aggregate.",
            )
    return pa.schema(fields)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every field nullable, without dictionaries and metadata."""
    types = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    return pa.schema([pa.field(name, data_type) for name, data_type in types])


def key_columns(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return normalised key columns, or `TOTAL_COLUMN` without a key. Equal keys have equal bits: one zero, one NaN."""
    if not key:
        return pa.table({TOTAL_COLUMN: pa.repeat(True, rows.num_rows)})
    return pa.table({name: _normalized(rows.column(name)) for name in key})


def with_plain_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows with normalised key columns, as in `key_columns`."""
    for name in key:
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), _normalized(rows.column(name)))
    return rows


def _normalized(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return pc.if_else(pc.equal(column, pa.scalar(0.0, column.type)), pa.scalar(0.0, column.type), column)


def group_rows(keys: pa.Table) -> tuple[Ints, int]:
    """Number the distinct keys 0, 1, … in order of first appearance. Nulls equal nulls.

    The keys (x, 1), (y, 1), (x, 1), (null, 2) have the numbers 0, 1, 0, 2. There are 3.

    Args:
        keys: normalised by `key_columns`.
    Returns:
        (number of each row, count of distinct keys).
    """
    if not keys.num_rows:
        return np.empty(0, dtype=np.int64), 0
    codes, count = np.zeros(keys.num_rows, dtype=np.int64), 1
    for column in keys.columns:
        column_codes, column_count = _dense(column.combine_chunks())
        codes, count = (
            _dense(pa.array(codes * column_count + column_codes)) if count > 1 else (column_codes, column_count)
        )
    return codes, count


def _dense(array: pa.Array | pa.ChunkedArray) -> tuple[Ints, int]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def first_of_each(codes: Ints, count: int) -> Ints:
    """Return the index of the first row of each group."""
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def places_in_groups(counts: Ints) -> Ints:
    """Return the position of each item in its group, from 0, for consecutive groups of these sizes.

    >>> places_in_groups(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def number_keys(keys: pa.Table) -> tuple[Ints, pa.Table]:
    """Return the number of each row's key, as in `group_rows`, and the distinct keys in that order."""
    codes, count = group_rows(keys)
    return codes, keys.take(pa.array(first_of_each(codes, count)))


def distinct_rows(keys: pa.Table) -> pa.Table:
    """Return the distinct keys in order of first appearance. Args: keys: normalised by `key_columns`."""
    return number_keys(keys)[1]


def without_nulls(keys: pa.Table) -> Bools:
    """Return which keys contain no null."""
    complete = np.ones(keys.num_rows, dtype=np.bool_)
    for column in keys.columns:
        if column.null_count:
            complete &= pc.is_valid(column).to_numpy()
    return complete


def find_rows(keys: pa.Table, among: pa.Table) -> pa.Array:
    """Return for each of the distinct `keys` the index of the row in `among` with the same key, or null.

    The keys x, y among the rows z, x have the indexes 1, null.
    """
    names = keys.column_names
    if not among.num_rows:
        return pa.nulls(keys.num_rows, pa.int64())
    codes, count = group_rows(pa.concat_tables([keys, key_columns(among, names).cast(keys.schema)]))
    position = np.full(max(count, 1), -1, dtype=np.int64)
    position[codes[keys.num_rows :]] = np.arange(among.num_rows)
    position = position[codes[: keys.num_rows]]
    return pa.array(position, mask=position < 0)


@dataclass(frozen=True, slots=True)
class EventTime:
    """Event time of an operator's input.

    Attributes:
        column: event-time column.
        shift_us: offset added to the column.
    """

    uid: str
    column: str
    shift_us: int

    @classmethod
    def of_input(cls, uid: str, input_: OperatorInput) -> EventTime | None:
        """Return the event time of an input. None: its rows have no event time."""
        return None if input_.event_time is None else cls(uid, input_.event_time, input_.shift_us)

    def of(self, rows: pa.Table) -> Ints:
        """Return event times as microseconds since the epoch, UTC. Nanoseconds are floored, zoneless times are UTC.

        Raises:
            OperatorFailed: a time is null, or does not fit int64 microseconds.
        """
        times = _microseconds(self.uid, rows, self.column)
        return times + self.shift_us if self.shift_us else times


def _microseconds(uid: str, rows: pa.Table, column: str) -> Ints:
    times = rows.column(column)
    if times.null_count:
        raise OperatorFailed(
            uid,
            f"{times.null_count} of {rows.num_rows} rows have no event time ({column} is null); filter them before it",
        )
    if pa.types.is_date(times.type) or times.type.unit in ("s", "ms"):
        times = _as_microseconds(uid, times, column)
    values = pc.cast(times, pa.int64()).to_numpy()
    return np.floor_divide(values, 1_000) if times.type.unit == "ns" else values


def _as_microseconds(uid: str, times: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    try:
        return pc.cast(times, pa.timestamp("us"))
    except pa.ArrowInvalid:
        ends = pc.min_max(times)
        raise OperatorFailed(
            uid,
            f"an event time ({column}) is beyond int64 microseconds: they are from {scalar_text(ends['min'])} to "
            f"{scalar_text(ends['max'])}; filter such rows before it",
        ) from None


def check_event_time(uid: str, input_: OperatorInput, why: str) -> EventTime:
    """Return an input's event time. Raises InvalidRequest: it has none, or its type is not a time."""
    event_time, schema = EventTime.of_input(uid, input_), input_.schema
    if event_time is None or schema.get_field_index(event_time.column) < 0:
        raise InvalidRequest(
            f"operator {uid!r}: {why} needs event time, but its input has none. Nothing was changed.",
            hint="Set `event_time` of the source and keep that column in the `sql` operators between.",
        )
    data_type = schema.field(event_time.column).type
    if not (pa.types.is_timestamp(data_type) or pa.types.is_date(data_type)):
        raise InvalidRequest(
            f"operator {uid!r}: event time {event_time.column!r} has type {data_type}, expected a timestamp or date. "
            "Nothing was changed."
        )
    return event_time
