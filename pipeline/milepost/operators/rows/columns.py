"""Columns as the operators need them: dense group numbers, normalised keys, event times as integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.jobspec.values.times import scalar_text
from milepost.operators.contract import TOTAL_COLUMN, Bools, Ints, OperatorFailed, OperatorInput

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def check_key(uid: str, key: Sequence[str], schema: pa.Schema) -> None:
    """Raises InvalidRequest unless every key column exists in the operator's input and is not nested."""
    _check_scalars(uid, "key column", "cannot be a key", key, schema)


def check_order(uid: str, columns: Iterable[str], schema: pa.Schema) -> None:
    """Raises InvalidRequest unless the input has every column of an order, and it is not nested."""
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
    """Return the fields as a schema. Raises InvalidRequest when two have one name."""
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
    """Return the key columns with one zero and one NaN, so that equal keys are equal bits; of no key `TOTAL_COLUMN`."""
    if not key:
        return pa.table({TOTAL_COLUMN: pa.repeat(True, rows.num_rows)})
    return pa.table({name: _normalized(rows.column(name)) for name in key})


def with_plain_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows with their key columns as `key_columns` has them."""
    for name in key:
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), _normalized(rows.column(name)))
    return rows


def _normalized(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return pc.if_else(pc.equal(column, pa.scalar(0.0, column.type)), pa.scalar(0.0, column.type), column)


def group_rows(keys: pa.Table) -> tuple[Ints, int]:
    """Number the distinct keys 0, 1, … in order of first appearance; nulls equal nulls.

    Args:
        keys: made by `key_columns`.
    Returns:
        (number of each row, how many there are).
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
    """Index of the first row of each group."""
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def places_in_groups(counts: Ints) -> Ints:
    """Return the place of each item in its group, from 0, for groups of so many that follow one another.

    >>> places_in_groups(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def number_keys(keys: pa.Table) -> tuple[Ints, pa.Table]:
    """Return the number of each row's key, as `group_rows` gives it, and each key once, by its number."""
    codes, count = group_rows(keys)
    return codes, keys.take(pa.array(first_of_each(codes, count)))


def distinct_rows(keys: pa.Table) -> pa.Table:
    """Return each key once, in order of first appearance. Args: keys: made by `key_columns`."""
    return number_keys(keys)[1]


def without_nulls(keys: pa.Table) -> Bools:
    """Return which keys have no null in them."""
    there = np.ones(keys.num_rows, dtype=np.bool_)
    for column in keys.columns:
        if column.null_count:
            there &= pc.is_valid(column).to_numpy()
    return there


def find_rows(keys: pa.Table, among: pa.Table) -> pa.Array:
    """For each of the distinct `keys` the index of the row in `among` with the same key, or null."""
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
    """The event times of an operator's input.

    Attributes:
        column: that has them. shift_us: what is added to it.
    """

    uid: str
    column: str
    shift_us: int

    @classmethod
    def of_input(cls, uid: str, input_: OperatorInput) -> EventTime | None:
        """Return those of an input; None: nothing times its rows."""
        return None if input_.event_time is None else cls(uid, input_.event_time, input_.shift_us)

    def of(self, rows: pa.Table) -> Ints:
        """Return them as microseconds since the epoch, UTC; nanoseconds are floored, zoneless times are UTC.

        Raises:
            OperatorFailed: a null, or one that no int64 of microseconds holds.
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
    """Return an input's event time. Raises InvalidRequest when it has none or it is not a time."""
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
