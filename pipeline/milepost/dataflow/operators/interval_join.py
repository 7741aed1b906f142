"""`kind: join`: pairs of a left and a right row with one key whose event times lie within an interval.

Both sides are kept as tables of rows, `left` and `right`, for as long as a row of the other side may come that pairs
with them. Each row is paired with what came before it, and then kept: so each pair comes out once, with the row of it
that came last. A key with a null in it pairs with nothing, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.operators.columns import (
    EventTime,
    check_event_time,
    check_key,
    first_of_each,
    group_rows,
    key_columns,
    plain_schema,
)
from milepost.dataflow.operators.contract import (
    EXPIRES_COLUMN,
    OUTPUT_BYTES,
    WEIGHT_COLUMN,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    RowsOfKeys,
    StateTable,
    multi_row_table,
)
from milepost.protocol.exchange.watermarks import BEGINNING_OF_TIME_US, END_OF_TIME_US
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.graph.join_rules import SIDES

LEFT, RIGHT = 0, 1

_GUESSED_BYTES = 48
"""Of a value of no fixed width."""


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of a join's output.

    Attributes:
        fields: of the output. sides: of each, whose it is. names: of each, what it is called there.
    """

    fields: tuple[pa.Field, ...]
    sides: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, uid: str, inputs: Sequence[pa.Schema], right_key: Sequence[str], renamed: Mapping[str, str]
    ) -> JoinedColumns:
        """Return the left row's columns, then the right's without its key.

        Args:
            renamed: new name -> column of the right input.
        Raises:
            InvalidRequest: a name is there twice, or one that is renamed is not there.
        """
        new = {old: name for name, old in renamed.items()}
        right = [field for field in inputs[RIGHT] if field.name not in right_key]
        unknown = sorted(set(new) - {field.name for field in right})
        if unknown:
            raise InvalidRequest(
                f"operator {uid!r}: `columns` renames right.{unknown[0]}, which its right input does not have beside "
                "its key. Nothing was changed.",
                hint=f"It has: {', '.join(field.name for field in right)}.",
            )
        fields = [*inputs[LEFT], *(field.with_name(new.get(field.name, field.name)) for field in right)]
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidRequest(
                f"operator {uid!r}: column {twice[0]!r} would come twice: from its left and from its right input. "
                "Nothing was changed.",
                hint=f"columns: {{right_{twice[0]}: right.{twice[0]}}}",
            )
        left = len(inputs[LEFT])
        sides = (LEFT,) * left + (RIGHT,) * len(right)
        return cls(tuple(fields), sides, (*inputs[LEFT].names, *(field.name for field in right)))

    def of_side(self, side: int) -> list[str]:
        """Return the columns of one input that come out, in order."""
        return [name for name, own in zip(self.names, self.sides, strict=True) if own == side]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; of text and nested values a guess."""
        return sum(_width(field.type) for field in self.fields)


def _width(data_type: pa.DataType) -> int:
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return _GUESSED_BYTES


class IntervalJoinByKey:
    """Joins rows of two inputs where right's event time − left's lies within an interval; inner.

    A row of either side is late when its event time is below the lateness watermark. With the interval [lo, hi], a left
    row of time t pairs with no on-time row any more once the watermark is past t + hi, a right one past t - lo. A pair
    has the left row's event time, so it may be as much as `hi` older than the row that completed it.
    """

    output_kind = OutputKind.APPEND
    output_key: tuple[str, ...] = ()
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        keys: Sequence[tuple[str, str]],
        within: tuple[timedelta, timedelta],
        inputs: Sequence[OperatorInput],
        renamed: Mapping[str, str],
    ) -> None:
        """Args:
        keys: pairs of a left and a right column. within: lo and hi. inputs: left, right.
        renamed: as in `JoinedColumns`.
        """
        self.uid = uid
        schemas = [plain_schema(one.schema) for one in inputs]
        self.routing_keys = tuple(tuple(pair[side] for pair in keys) for side in (LEFT, RIGHT))
        for side in (LEFT, RIGHT):
            check_key(uid, self.routing_keys[side], schemas[side])
        self.event_times = [
            check_event_time(uid, OperatorInput(schema, one.event_time, one.shift_us), f"the {name} input of a join")
            for name, schema, one in zip(SIDES, schemas, inputs, strict=True)
        ]
        low, high = (bound // timedelta(microseconds=1) for bound in within)
        self.reach_us = (low, high), (-high, -low)
        """Of each side, from where to where the other side's time may lie, from its own."""
        common = _common_types(uid, keys, schemas)
        self.input_schemas = schemas
        self.columns = JoinedColumns.of(uid, schemas, self.routing_keys[RIGHT], renamed)
        self.output_schema = pa.schema(list(self.columns.fields))
        self.stored = [
            _with_types(schema, dict(zip(key, common, strict=True)))
            for schema, key in zip(schemas, self.routing_keys, strict=True)
        ]
        self.tables: Mapping[str, StateTable] = {
            name: multi_row_table(self.routing_keys[side], self.stored[side], [EXPIRES_COLUMN])
            for side, name in enumerate(SIDES)
        }

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> IntervalJoinRun:
        """Start one subtask's epoch; nothing here fires."""
        return IntervalJoinRun(self, [tables[name] for name in SIDES])


class IntervalJoinRun:
    """One subtask's epoch of an `IntervalJoinByKey`: pairs are final as they come, and nothing fires."""

    def __init__(self, operator: IntervalJoinByKey, tables: Sequence[KeyedState]) -> None:
        self._operator = operator
        self._tables = tables

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Pair rows of one side with those of the other, then keep them. Raises OperatorFailed."""
        operator = self._operator
        schema = operator.input_schemas[position]
        rows = rows.select(schema.names).cast(schema)
        times = operator.event_times[position].of(rows)
        late = schema.empty_table()
        if lateness_us is not None:
            on_time = times >= lateness_us
            late = rows.filter(pa.array(~on_time))
            rows, times = rows.filter(pa.array(on_time)), times[on_time]
        yield OperatorOutput(operator.output_schema.empty_table(), late)
        rows, times = _with_a_key(rows, times, operator.routing_keys[position])
        if not rows.num_rows:
            return
        keys = key_columns(rows, operator.routing_keys[position])
        for name in keys.column_names:
            rows = rows.set_column(rows.column_names.index(name), name, keys.column(name))
        for pairs in self._pairs(position, rows, times):
            yield OperatorOutput(pairs, schema.empty_table())
        self._keep(position, rows, times)

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing: what is forgotten pairs with nothing any more."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()

    def _pairs(self, position: int, rows: pa.Table, times: Ints) -> Iterator[pa.Table]:
        """Yield pairs in the order of the rows, then of the other side's times, as many at once as memory allows."""
        operator, other = self._operator, RIGHT - position
        stored = operator.stored[position]
        own_key, other_key = operator.routing_keys[position], operator.routing_keys[other]
        keys = rows.select(list(own_key)).cast(pa.schema([stored.field(name) for name in own_key]))
        codes, count = group_rows(keys)
        distinct = keys.take(pa.array(first_of_each(codes, count))).rename_columns(list(other_key))
        kept = _Kept.of(self._tables[other].lookup_all(distinct), operator.event_times[other])
        begins, ends = kept.between(codes, *_reached(times, operator.reach_us[position]))
        at_once = max(1, OUTPUT_BYTES // max(1, operator.columns.row_bytes))
        for own, others in _in_parts(begins, ends, at_once):
            yield self._joined(position, rows.take(pa.array(own)), kept, others)

    def _joined(self, position: int, rows: pa.Table, kept: _Kept, others: Ints) -> pa.Table:
        columns, other = self._operator.columns, RIGHT - position
        found = kept.found.take(columns.of_side(other), kept.order[others])
        sides = {position: rows, other: found}
        values = [sides[side].column(name) for side, name in zip(columns.sides, columns.names, strict=True)]
        return pa.table(values, names=[field.name for field in columns.fields]).cast(self._operator.output_schema)

    def _keep(self, position: int, rows: pa.Table, times: Ints) -> None:
        operator = self._operator
        _, until = _reached(times, operator.reach_us[position])
        # One past the last watermark at which a row of the other side that pairs with it is on time.
        expires = np.where(until < END_OF_TIME_US, until + 1, END_OF_TIME_US)
        kept = rows.cast(operator.stored[position]).append_column(EXPIRES_COLUMN, pa.array(expires))
        self._tables[position].add(kept)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows that one side has kept of some keys, by key and time.

    Attributes:
        order: positions among `found`, by key and time; a row stands as often as there are equal ones.
        owners, times: in that order.
    """

    found: RowsOfKeys
    order: Ints
    owners: Ints
    times: Ints

    @classmethod
    def of(cls, found: RowsOfKeys, event_time: EventTime) -> _Kept:
        known = found.take([event_time.column, WEIGHT_COLUMN])
        times, weights = event_time.of(known), known.column(WEIGHT_COLUMN).to_numpy()
        order = np.lexsort((times, found.owners))
        if bool((weights != 1).any()):
            order = np.repeat(order, weights[order])
        return cls(found, order, found.owners[order], times[order])

    def between(self, owners: Ints, least: Ints, most: Ints) -> tuple[Ints, Ints]:
        """Return which rows each key has from one time to another, both included: from, and up to.

        Two rows of key 0, at 10 and 20, and one of key 1: key 0 from 15 to 30 has the second one.

        >>> kept = _Kept(None, np.arange(3), np.array([0, 0, 1]), np.array([10, 20, 20]))
        >>> [bounds.tolist() for bounds in kept.between(np.array([0]), np.array([15]), np.array([30]))]
        [[1], [2]]
        """
        moments = np.unique(np.concatenate([self.times, least, most]))
        size = len(moments) + 1

        def place(keys: Ints, times: Ints) -> Ints:
            return keys * size + np.searchsorted(moments, times)

        places = place(self.owners, self.times)
        begins = np.searchsorted(places, place(owners, least), side="left")
        ends = np.searchsorted(places, place(owners, most), side="right")
        return begins, ends


def _in_parts(begins: Ints, ends: Ints, at_once: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs (row, one of those from its begin up to its end), row by row, so many at once.

    >>> parts = list(_in_parts(np.array([5, 0, 7]), np.array([7, 0, 8]), 2))
    >>> [(own.tolist(), others.tolist()) for own, others in parts]
    [([0, 0], [5, 6]), ([2], [7])]
    """
    counts = np.maximum(ends - begins, 0)
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    for start in range(0, total, at_once):
        pair = np.arange(start, min(start + at_once, total))
        own = np.searchsorted(before + counts, pair, side="right")
        yield own, begins[own] + pair - before[own]


def _reached(times: Ints, reach_us: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return from where to where the other side's times may lie: each moved by a bound, within all of time."""
    low, high = (
        np.where(
            times > END_OF_TIME_US - by if by > 0 else times < BEGINNING_OF_TIME_US - by,
            END_OF_TIME_US if by > 0 else BEGINNING_OF_TIME_US,
            times + by,
        )
        for by in reach_us
    )
    return low, high


def _with_a_key(rows: pa.Table, times: Ints, key: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Return the rows whose key has no null."""
    there = np.ones(rows.num_rows, dtype=np.bool_)
    for name in key:
        if rows.column(name).null_count:
            there &= pc.is_valid(rows.column(name)).to_numpy()
    return (rows, times) if bool(there.all()) else (rows.filter(pa.array(there)), times[there])


def _common_types(uid: str, keys: Sequence[tuple[str, str]], schemas: Sequence[pa.Schema]) -> list[pa.DataType]:
    """Return of each pair of key columns the type that holds both exactly. Raises InvalidRequest: there is none."""
    found = []
    for left, right in keys:
        types = schemas[LEFT].field(left).type, schemas[RIGHT].field(right).type
        common = common_key_type(*types)
        if common is None:
            raise InvalidRequest(
                f"operator {uid!r}: key {left} of its left input is {types[LEFT]}, {right} of its right input is "
                f"{types[RIGHT]}: values of one are not values of the other. Nothing was changed.",
                hint="CAST one of them in a `sql` operator before it.",
            )
        found.append(common)
    return found


def common_key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both exactly, equal ones in one key group; None: there is none.

    Signed integers among themselves, floats, decimals of one scale, and times of one kind.
    """
    if left == right:
        return left
    for ladder in _LADDERS:
        if left in ladder and right in ladder:
            return max(left, right, key=ladder.index)
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        finest = max(left, right, key=lambda one: _UNITS.index(one.unit) if one.unit in _UNITS else len(_UNITS))
        return finest if finest.unit in _UNITS else None
    if pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale:
        return max(left, right, key=lambda one: one.precision)
    return None


_LADDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
_UNITS = ("s", "ms", "us")


def _with_types(schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in schema])
