"""Multiset of live values per key, for aggregates over retractable input.

min, max, arg_min, arg_max and count(distinct …) read it: one state table per argument, one row per key and value. A
value is live while its weight is above 0. A row of weight 0 is deleted. A negative weight, from a retraction that
arrived before its insertion, is stored and counts as absent. The extreme of a key is cached with its accumulators. The
values are scanned, once at the end of the epoch, only if that extreme was retracted and nothing as extreme arrived::

    change      weights             max    count(distinct)
    +5 +5 +8    5: 2, 8: 1          8      2
    -8          5: 2                5      1                  the cached 8 was retracted, so the values are scanned
    -5          5: 1                5      1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.operators.aggregation.accumulators import Argument, Extreme, typed_by
from milepost.operators.aggregation.arg_extremes import ArgExtreme
from milepost.operators.aggregation.cached_extremes import NEGATIVE_ZEROS, WEIGHTS, CachedExtreme, Values
from milepost.operators.aggregation.distinct_values import VALUE_COLUMN
from milepost.operators.contract import Bools, GroupedKeys, Ints, KeyedState, StateTable
from milepost.operators.rows.columns import distinct_rows, find_rows, key_columns
from milepost.operators.rows.retractions import check_settled
from milepost.protocol.records import WEIGHT_COLUMN

BY_COLUMN = "__by"
"""State column of what a value is picked by; rows without it do not count, and are not kept."""

_LARGEST = {"min": False, "max": True, "arg_min": False, "arg_max": True}


@dataclass(frozen=True, slots=True)
class WeightedRows:
    """Input rows that are inserted or retracted.

    Attributes:
        keys: their normalised key columns. codes: of each the number of its key, below count. weights: how many times.
    """

    rows: pa.Table
    keys: pa.Table
    codes: Ints
    count: int
    weights: Ints


class ValueTable:
    """The values of one column, perhaps only of some rows, or each with what it is picked by.

    Attributes:
        name: of its table of state. kept: what stands of it in the row of a key. counted: the state column of how many
            there are; None: nothing asks. columns: of its rows, without the key: the value last, then its weights.
    """

    def __init__(self, calls: Sequence[AggregateCall], types: Mapping[str, pa.DataType]) -> None:
        """Args:
        calls: those that read one table. types: of the input's columns.
        """
        first = calls[0]
        argument, self._where = Argument(first.column, first.where), first.where
        picked_by = {} if first.by is None else {BY_COLUMN: first.by}
        self._inputs = {**picked_by, VALUE_COLUMN: str(first.column)}
        self._types = {name: types[origin] for name, origin in self._inputs.items()}
        self.name = str(first.weighted_table)
        wanted = {_LARGEST[call.function] for call in calls if not call.distinct}
        self.kept = tuple(_cached_extreme(argument, first.by, types, largest) for largest in sorted(wanted))
        self.counted = f"count(distinct {argument.label})" if any(call.distinct for call in calls) else None
        zeros = (NEGATIVE_ZEROS,) if pa.types.is_floating(self._types[VALUE_COLUMN]) else ()
        self.columns = (*self._inputs, WEIGHT_COLUMN, *zeros)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The state columns of it in the row of a key."""
        counts = () if self.counted is None else (pa.field(self.counted, pa.int64()),)
        return (*counts, *(field for kept in self.kept for field in kept.fields))

    @property
    def of_no_values(self) -> pa.Table:
        """The state columns of one key that has no value."""
        return pa.table(
            [pa.array([0 if field.name == self.counted else None], field.type) for field in self.fields],
            schema=pa.schema(self.fields),
        )

    def table(self, key: Sequence[pa.Field], routing_key: Sequence[str]) -> StateTable:
        """Return the declaration of its table: key columns, value, and how often it is there."""
        values = [typed_by(pa.field(name, type_), self._inputs[name]) for name, type_ in self._types.items()]
        weights = [pa.field(name, pa.int64()) for name in self.columns[len(values) :]]
        names = tuple(field.name for field in (*key, *values))
        return StateTable(names, tuple(routing_key), pa.schema([*key, *values, *weights]))

    def is_empty(self, state_rows: pa.Table) -> Bools:
        """Return which keys have no value that is there, by their state rows."""
        kept = [np.asarray(state_rows.column(kept.names[0]).is_null()) for kept in self.kept]
        counts = [] if self.counted is None else [_filled(state_rows, self.counted) == 0]
        empty: Bools = np.logical_and.reduce([*kept, *counts])
        return empty

    def counts(self, rows: pa.Table) -> Bools:
        """Return which rows have a value that counts."""
        counts = np.asarray(rows.column(next(iter(self._inputs.values()))).is_valid())
        if self._where is not None:
            counts = counts & np.asarray(pc.fill_null(rows.column(self._where), False))
        return counts

    def keys(self, keys: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the keys that rows have in the table."""
        for name, origin in self._inputs.items():
            keys = keys.append_column(name, key_columns(rows, [origin]).column(0))
        return keys

    def weights(self, rows: pa.Table, weights: Ints) -> dict[str, Ints]:
        """Return by how much rows change the weights of their values."""
        changes = {WEIGHT_COLUMN: weights}
        if NEGATIVE_ZEROS in self.columns:
            values = np.asarray(pc.fill_null(rows.column(self._inputs[VALUE_COLUMN]), 1.0))
            changes[NEGATIVE_ZEROS] = np.where((values == 0) & np.signbit(values), weights, 0)
        return changes


def weighted_tables(calls: Iterable[AggregateCall], types: Mapping[str, pa.DataType]) -> tuple[ValueTable, ...]:
    """Return the tables that calls over updates read: one per argument."""
    by_table: dict[str, list[AggregateCall]] = {}
    for call in calls:
        if call.weighted_table is not None:
            by_table.setdefault(call.weighted_table, []).append(call)
    return tuple(ValueTable(of_table, types) for of_table in by_table.values())


def _cached_extreme(
    argument: Argument, by: str | None, types: Mapping[str, pa.DataType], largest: bool
) -> CachedExtreme:
    data_type = types[str(argument.column)]
    one = (
        Extreme(argument, data_type, largest)
        if by is None
        else ArgExtreme(argument, by, (data_type, types[by]), largest)
    )
    return CachedExtreme(one.fields, largest)


class ValueTableRun:
    """One subtask's epoch of a `ValueTable`: weights change per piece, cached extremes are refreshed at its end.

    Args:
        key: state columns that identify a key.
    """

    def __init__(self, table: ValueTable, key: Sequence[str], state: KeyedState) -> None:
        self._table, self._key, self._state = table, list(key), state
        self._stale_keys: list[pa.Table] = []
        self._short: list[pa.Table] = []

    def ingest(self, weighted: WeightedRows, previous: pa.Table) -> list[pa.ChunkedArray | pa.Array]:
        """Update the weights of the rows' values and return the new state columns of their keys.

        Args:
            previous: the state row of each key; null where there is none.
        """
        table, places = self._table, np.flatnonzero(self._table.counts(weighted.rows))
        counts = None if table.counted is None else _filled(previous, table.counted).copy()
        if not places.size:
            kept_before = [previous.column(name) for kept in table.kept for name in kept.names]
            return kept_before if counts is None else [pa.array(counts), *kept_before]
        rows, keys = (one.take(pa.array(places)) for one in (weighted.rows, weighted.keys))
        occurring = self._state.group(table.keys(keys, rows))
        stored, known = occurring.find()
        changed = _plus(stored, table.weights(rows, weighted.weights[places]), occurring.codes)
        self._put(occurring, stored, changed, known)
        values = Values(weighted.codes[places[occurring.first]], changed.select(table.columns))
        columns: list[pa.ChunkedArray | pa.Array] = []
        if counts is not None:
            were_there = _filled(stored, WEIGHT_COLUMN) > 0
            np.add.at(counts, values.owners, values.is_live.astype(np.int64) - were_there)
            columns.append(pa.array(counts))
        is_stale = np.zeros(previous.num_rows, dtype=np.bool_)
        for kept in table.kept:
            chosen, unsure = kept.chosen(previous, values)
            columns += chosen
            is_stale |= unsure
        if is_stale.any():
            self._stale_keys.append(distinct_rows(changed.select(self._key).filter(pa.array(is_stale[values.owners]))))
        return columns

    def refresh_extremes(self, state_rows: pa.Table) -> tuple[pa.Table, Bools]:
        """Recompute stale cached extremes from the stored values.

        Args:
            state_rows: those of all changed keys.
        Returns:
            (the corrected state rows, which of them were stale).
        """
        is_stale = np.zeros(state_rows.num_rows, dtype=np.bool_)
        if not self._stale_keys:
            return state_rows, is_stale
        keys = distinct_rows(pa.concat_tables(self._stale_keys))
        found = self._state.lookup_all(keys)
        there = np.flatnonzero(found.take([WEIGHT_COLUMN]).column(0).to_numpy() > 0)
        values = Values(found.owners[there], found.take(self._table.columns, there))
        places = np.asarray(find_rows(keys, state_rows))
        of_row = np.arange(state_rows.num_rows)
        of_row[places] = np.arange(len(places)) + state_rows.num_rows
        for kept in self._table.kept:
            chosen = pa.table([*kept.chosen(kept.none(keys.num_rows), values)[0]], schema=pa.schema(kept.fields))
            both = pa.concat_tables([state_rows.select(kept.names).cast(chosen.schema), chosen]).take(pa.array(of_row))
            for name in kept.names:
                at = state_rows.column_names.index(name)
                state_rows = state_rows.set_column(at, state_rows.field(at), both.column(name))
        is_stale[places] = True
        return state_rows, is_stale

    def check_settled(self, uid: str, key: Sequence[str], *, all_keys: bool) -> None:
        """Raises OperatorFailed, which names the key: a value was retracted but never inserted."""
        if all_keys:
            rows = self._state.rows()
        elif self._short:
            rows = self._state.group(pa.concat_tables(self._short)).find()[0]
        else:
            return
        check_settled(uid, key, rows.filter(pa.array(_is_over_retracted(rows))))

    def _put(self, occurring: GroupedKeys, stored: pa.Table, changed: pa.Table, known: Bools) -> None:
        weights = [name for name in changed.column_names if name in WEIGHTS]
        stays = np.logical_or.reduce([_filled(changed, name) != 0 for name in weights])
        moves = np.logical_or.reduce([_filled(changed, name) != _filled(stored, name) for name in weights])
        occurring.put(changed.filter(pa.array(stays & moves)), stays & moves)
        self._state.delete(occurring.keys.filter(pa.array(known & ~stays)))
        short = _is_over_retracted(changed)
        if short.any():
            self._short.append(occurring.keys.filter(pa.array(short)))


def _filled(rows: pa.Table, name: str) -> Ints:
    filled: Ints = pc.fill_null(rows.column(name), 0).to_numpy()
    return filled


def _plus(stored: pa.Table, changes: Mapping[str, Ints], codes: Ints) -> pa.Table:
    """Return value rows with updated weights.

    Args:
        codes: of each change the number of the value's row.
    """
    for name, change in changes.items():
        weights = _filled(stored, name).copy()
        np.add.at(weights, codes, change)
        stored = stored.set_column(stored.column_names.index(name), name, pa.array(weights))
    return stored


def _is_over_retracted(rows: pa.Table) -> Bools:
    """Return which values have more retractions than insertions. The zeros 0.0 and -0.0 count separately."""
    weights = _filled(rows, WEIGHT_COLUMN)
    short: Bools = weights < 0
    if NEGATIVE_ZEROS in rows.column_names:
        negative = _filled(rows, NEGATIVE_ZEROS)
        short = short | (negative < 0) | (weights < negative)
    return short
