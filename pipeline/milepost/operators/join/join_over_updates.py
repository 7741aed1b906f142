"""`kind: join` without `within`: the join of the current rows of both inputs, which may be retracted.

The state tables `left` and `right` are the multisets of the inputs' rows. An epoch emits the difference between the
join of the states at its end and at its start. With weights l and r of a left and a right row at the end, and l', r' at
the start, a pair changes by l * r - l' * r'. That is 0 unless one of the rows changed, so these pairs are enough::

    changed left  x  unchanged right        a customer moves: every order of the customer
    changed left  x  changed right          both changed in this epoch
    unchanged left  x  changed right        an order changes: the customer of the order

Each pair occurs in one of the three products, so an epoch emits it at most once. Two epochs of one key::

    left       right      weight    emitted
    +(7, a)    +(7, x)    1 * 1     +(7, a, x)
    -(7, a)    +(7, y)    0 * 1     nothing for (7, a, y); 0 * 1 - 1 * 1 for (7, a, x), so -(7, a, x)

A row with a weight below 0 was retracted before it arrived. It takes part in products as it is, so that they add up.
Every `how` but inner depends on whether a row has a match: whether the sum of its matches' weights is above 0. The sums
at the start and at the end are computed from the rows of the changed keys. A full join whose right rows change::

    left       right        sum of matches      emitted
    +(7, a)    -            0 -> 0              +(7, a, null)
               +(7, x)      0 -> 1, of (7, a)   +(7, a, x), -(7, a, null)
               +(8, y)      0 -> 0, of (8, y)   +(8, null, y)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import (
    OUTPUT_BYTES,
    TOTAL_COLUMN,
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
from milepost.operators.join.condition import Comparison
from milepost.operators.join.matching import Compared, Matches, matched_weights
from milepost.operators.join.unmatched import LEFT_ALONE, UNMATCHED_SIDES
from milepost.operators.pairs.join_columns import LEFT, RIGHT, JoinedColumns, check_unmatched_right, common_types
from milepost.operators.rows.columns import (
    check_key,
    check_order,
    key_columns,
    number_keys,
    plain_schema,
    with_plain_keys,
    without_nulls,
)
from milepost.operators.rows.retractions import NONE, check_settled
from milepost.protocol.exchange import NullSpreadingKey
from milepost.protocol.records import WEIGHT_COLUMN, cached_property


@dataclass(frozen=True, slots=True)
class JoinRules:
    """What a join emits.

    Attributes:
        keys: pairs of a left and a right column. how: as in the spec. renamed: as in `JoinedColumns`.
    """

    keys: Sequence[tuple[str, str]]
    how: str
    condition: Sequence[Comparison]
    renamed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SideRows:
    """Some rows of one side. Their values are read on demand.

    Attributes:
        keys: number of each row's key. now, before: weight of each row, and its weight when the epoch began.
    """

    keys: Ints
    now: Ints
    before: Ints
    rows: pa.Table | RowsOfKeys

    @classmethod
    def of(cls, rows: pa.Table, keys: Ints, before: Ints) -> SideRows:
        """Return rows of a state table, which have their weight."""
        return cls(keys, rows.column(WEIGHT_COLUMN).to_numpy(), before, rows)

    def take(self, columns: Sequence[str], positions: Ints) -> pa.Table:
        """Return columns of the rows at some positions."""
        if isinstance(self.rows, pa.Table):
            return self.rows.select(columns).take(pa.array(positions))
        return self.rows.take(columns, positions)

    def values(self, column: str) -> pa.ChunkedArray:
        """Return a column of all rows."""
        return self.take([column], np.arange(len(self.keys))).column(0)


class JoinOverUpdates:
    """Joins the current rows of two inputs. Nothing is ever late.

    A row with a null in its key matches nothing. It is stored only if its side emits unmatched rows, so that all
    emitted rows can be retracted and emitted again.
    """

    combiner: Combiner | None = None
    listener: CheckpointListener | None = None
    output_key: tuple[str, ...] = ()

    def __init__(self, uid: str, rules: JoinRules, inputs: Sequence[OperatorInput]) -> None:
        """Args:
        inputs: left, right.
        """
        self.uid, self.how, self.condition = uid, rules.how, tuple(rules.condition)
        schemas = [_without_weight(one.schema) for one in inputs]
        keys = [tuple(pair[side] for pair in rules.keys) for side in (LEFT, RIGHT)]
        for side in (LEFT, RIGHT):
            check_key(uid, keys[side], schemas[side])
            check_order(uid, [getattr(one, SIDES[side]) for one in self.condition], schemas[side])
        self.keys = keys
        self.unmatched_sides = UNMATCHED_SIDES.get(self.how, ())
        self.tested_sides = (LEFT,) if self.how == "semi" else self.unmatched_sides
        """The sides with rows that are emitted, or not, depending on whether they have a match."""
        self.routing_keys: tuple[tuple[str, ...], ...] = tuple(
            key if side in self.unmatched_sides else NullSpreadingKey(key) for side, key in enumerate(keys)
        )
        compared = [(one.left, one.right) for one in self.condition]
        self.compared_types = common_types(uid, compared, schemas, what="compared column")
        self.only_adds = self.how in ("inner", "semi") and not any(WEIGHT_COLUMN in one.schema.names for one in inputs)
        self.output_kind = OutputKind.APPEND if self.only_adds else OutputKind.UPDATES
        if self.how in LEFT_ALONE:
            self.columns = JoinedColumns.of_left(schemas[LEFT])
        else:
            self.columns = JoinedColumns.of(uid, schemas, keys[RIGHT], rules.renamed)
        self.output_schema = self.columns.schema
        key_types = common_types(uid, rules.keys, schemas)
        self.under = dict(rules.keys)
        """The right columns that an unmatched right row shows in left columns."""
        if RIGHT in self.unmatched_sides:
            check_unmatched_right(uid, self.how, rules.keys, schemas)
        self.stored = tuple(
            self._stored(side, schemas[side], dict(zip(keys[side], key_types, strict=True))) for side in (LEFT, RIGHT)
        )
        self.tables: Mapping[str, StateTable] = {
            name: multi_row_table(keys[side], self.stored[side]) for side, name in enumerate(SIDES)
        }
        self.batch_rows = max(1, OUTPUT_BYTES // max(1, self.columns.row_bytes))

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> JoinOverUpdatesRun:
        """Start one subtask's epoch. Nothing here fires."""
        return JoinOverUpdatesRun(self, [tables[name] for name in SIDES])

    def whole(self, tables: Mapping[str, KeyedState]) -> Iterator[pa.Table]:
        """Yield the join of all rows of the state, with weights."""
        left, right = (tables[name].rows() for name in SIDES)
        numbers, _ = self.number_keys(left, right)
        every = [
            SideRows.of(rows, keys, np.zeros(rows.num_rows, dtype=np.int64))
            for rows, keys in zip((left, right), numbers, strict=True)
        ]
        none = [SideRows.of(rows.slice(0, 0), NONE, NONE) for rows in (left, right)]
        yield from self.difference(every, none)

    def take(self, position: int, rows: pa.Table) -> pa.Table:
        """Return the rows of one side as they are stored, with weights."""
        schema, key = self.stored[position], self.keys[position]
        weights = rows.column(WEIGHT_COLUMN) if WEIGHT_COLUMN in rows.column_names else None
        if TOTAL_COLUMN in schema.names:
            rows = rows.append_column(TOTAL_COLUMN, pa.repeat(True, rows.num_rows))
        rows = with_plain_keys(rows.select(schema.names).cast(schema), key)
        ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
        rows = rows.append_column(WEIGHT_COLUMN, ones if weights is None else weights)
        if position in self.unmatched_sides:
            return rows
        return rows.filter(pa.array(without_nulls(rows.select(list(key)))))

    def number_keys(self, left: pa.Table, right: pa.Table) -> tuple[tuple[Ints, Ints], pa.Table]:
        """Return the numbers of the keys of left and of right rows, and the distinct keys under their left names.

        A key with a null has another number on each side, below 0.
        """
        keys = [key_columns(rows, self.keys[side]) for side, rows in enumerate((left, right))]
        numbers, distinct = number_keys(
            pa.concat_tables([keys[LEFT], keys[RIGHT].rename_columns(keys[LEFT].column_names)])
        )
        whole = [without_nulls(one) for one in keys]
        left_numbers, right_numbers = numbers[: left.num_rows], numbers[left.num_rows :]
        return (np.where(whole[LEFT], left_numbers, -1), np.where(whole[RIGHT], right_numbers, -2)), distinct

    def difference(self, changed: Sequence[SideRows], same: Sequence[SideRows]) -> Iterator[pa.Table]:
        """Yield the rows by which the output changes, with their weights.

        Args:
            changed, same: changed and unchanged rows of each side, with keys in common numbers.
        """
        if self.how not in LEFT_ALONE:
            yield from self._pairs(changed[LEFT], same[RIGHT])
            yield from self._pairs(changed[LEFT], changed[RIGHT])
            yield from self._pairs(same[LEFT], changed[RIGHT])
        for side in self.tested_sides:
            for rows in (changed[side], same[side]):
                yield from self._by_existence(side, rows, (changed[RIGHT - side], same[RIGHT - side]))

    def _pairs(self, left: SideRows, right: SideRows) -> Iterator[pa.Table]:
        """Yield the changes of the pairs of some left and right rows."""
        if not (len(left.keys) and len(right.keys)):
            return
        matches = Matches.of(left.keys, right.keys, self._compared(left, right))
        names = self.columns.of_side(LEFT), self.columns.of_side(RIGHT)
        for own, other in matches.pairs(self.batch_rows):
            weights = left.now[own] * right.now[other] - left.before[own] * right.before[other]
            there = weights != 0
            own, other = own[there], other[there]
            if own.size:
                joined = self.columns.joined(left.take(names[LEFT], own), right.take(names[RIGHT], other))
                yield joined.append_column(WEIGHT_COLUMN, pa.array(weights[there]))

    def _by_existence(self, side: int, rows: SideRows, others: Sequence[SideRows]) -> Iterator[pa.Table]:
        """Yield the changes of one side's rows that are emitted because they have a match (`semi`) or have none."""
        if not len(rows.keys):
            return
        sums = np.zeros((2, len(rows.keys)), dtype=np.int64)  # of the weights of its matches, now and before
        for other in others:
            if len(other.keys):
                compared = self._compared(rows, other) if side == LEFT else self._compared(other, rows)
                if side == RIGHT:
                    compared = [one.swapped for one in compared]
                sums += matched_weights(rows.keys, other.keys, compared, (other.now, other.before))
        shown_now, shown_before = sums > 0
        if side in self.unmatched_sides:
            shown_now, shown_before = ~shown_now, ~shown_before
        weights = rows.now * shown_now - rows.before * shown_before
        positions = np.flatnonzero(weights)
        names = self.columns.of_side(side) if side == LEFT else [*self.under.values(), *self.columns.of_side(side)]
        for start in range(0, len(positions), self.batch_rows):
            some = positions[start : start + self.batch_rows]
            padded = self.columns.padded(side, rows.take(names, some), self.under)
            yield padded.append_column(WEIGHT_COLUMN, pa.array(weights[some]))

    def _compared(self, left: SideRows, right: SideRows) -> list[Compared]:
        """Return the values that the condition compares."""
        return [
            Compared.of(one.symbol, left.values(one.left).cast(type_), right.values(one.right).cast(type_))
            for one, type_ in zip(self.condition, self.compared_types, strict=True)
        ]

    def _stored(self, side: int, schema: pa.Schema, key_types: Mapping[str, pa.DataType]) -> pa.Schema:
        fields = [pa.field(field.name, key_types.get(field.name, field.type)) for field in schema]
        if side == RIGHT and self.how in LEFT_ALONE:
            needed = {*key_types, *(one.right for one in self.condition)}
            fields = [field for field in fields if field.name in needed] or [pa.field(TOTAL_COLUMN, pa.bool_())]
        return pa.schema(fields)


class JoinOverUpdatesRun:
    """One subtask's epoch of a `JoinOverUpdates`. The output's difference is emitted at its end."""

    def __init__(self, operator: JoinOverUpdates, tables: Sequence[KeyedState]) -> None:
        self._operator, self._tables = operator, tables

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest rows without emitting anything. Nothing is ever late."""
        if rows.num_rows:
            self._tables[position].add(self._operator.take(position, rows))
        yield from ()

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit nothing: `changes` yields the rows."""
        return self._operator.output_schema.empty_table()

    def changes(self) -> Iterator[pa.Table]:
        """Yield the difference between the join at the end and at the start of the epoch."""
        operator = self._operator
        (left, left_before), (right, right_before) = self._changed
        (left_keys, right_keys), distinct = operator.number_keys(left, right)
        changed = [SideRows.of(left, left_keys, left_before), SideRows.of(right, right_keys, right_before)]
        # Whether a row has a match depends on all rows of its key on the other side. They are read if one changed.
        both = np.concatenate([left_keys, right_keys])
        read_left = both if RIGHT in operator.tested_sides else right_keys
        read_right = both if LEFT in operator.tested_sides else left_keys
        same = [self._unchanged(LEFT, distinct, read_left), self._unchanged(RIGHT, distinct, read_right)]
        for rows in operator.difference(changed, same):
            yield from _repeated(rows, operator.batch_rows) if operator.only_adds else (rows,)

    def check_settled(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a row was retracted but never inserted."""
        for side, (table, (changed, _)) in enumerate(zip(self._tables, self._changed, strict=True)):
            rows = table.rows() if all_keys else changed
            check_settled(self._operator.uid, self._operator.keys[side], rows.filter(pc.field(WEIGHT_COLUMN) < 0))

    @cached_property
    def _changed(self) -> list[tuple[pa.Table, Ints]]:
        """The rows of each side with changed weights, and their weights when the epoch began."""
        return [table.weight_changes() for table in self._tables]

    def _unchanged(self, side: int, distinct: pa.Table, keys: Ints) -> SideRows:
        """Return the rows of one side with some keys, except those with changed weights.

        Args:
            distinct: all keys by number. keys: numbers of the keys to read, or below 0.
        """
        names, is_read = self._operator.keys[side], np.zeros(distinct.num_rows, dtype=np.bool_)
        is_read[keys[keys >= 0]] = True
        numbers = np.flatnonzero(is_read)
        routing_keys = distinct.take(pa.array(numbers))
        unchanged = self._tables[side].lookup_unchanged(routing_keys.rename_columns(names) if names else routing_keys)
        weights = unchanged.take([WEIGHT_COLUMN]).column(0).to_numpy()
        return SideRows(numbers[unchanged.owners], weights, weights, unchanged)


def _repeated(rows: pa.Table, batch_rows: int) -> Iterator[pa.Table]:
    """Yield each row as often as its weight says, without the weight."""
    weights = rows.column(WEIGHT_COLUMN).to_numpy()
    positions = np.repeat(np.arange(rows.num_rows), weights)
    rows = rows.drop_columns([WEIGHT_COLUMN])
    for start in range(0, len(positions), batch_rows):
        yield rows.take(pa.array(positions[start : start + batch_rows]))


def _without_weight(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in plain_schema(schema) if field.name != WEIGHT_COLUMN])
