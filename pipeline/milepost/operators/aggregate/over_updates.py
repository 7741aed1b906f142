"""`kind: aggregate` over updates: retracted rows are subtracted, and a key without rows is deleted.

Sums are exact, so an insertion and its retraction cancel. Other aggregates read the live values (`value_tables.py`). A
key may have a negative row count while the matching insertions are in flight. It is stored, and counts as absent::

    change                  rows    sum(x)    output
    +(a, 5)  +(a, 2)        2       7         a  7
    -(a, 5)                 1       2         a  2
    -(a, 2)                 0       0         a is deleted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.operators.aggregation.aggregates import ROWS_COLUMN, Aggregates
from milepost.operators.aggregation.totals import initial_totals, state_key, state_key_fields
from milepost.operators.aggregation.value_tables import ValueTableRun, WeightedRows
from milepost.operators.contract import (
    ONLY_TABLE,
    Bools,
    CheckpointListener,
    Combiner,
    GroupedKeys,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    StateTable,
    only_table,
)
from milepost.operators.rows.columns import (
    check_key,
    distinct_columns,
    distinct_rows,
    key_columns,
    plain_schema,
)
from milepost.operators.rows.deletes import DELETED_FIELD, with_deletes
from milepost.operators.rows.retractions import NONE, check_settled, retractions
from milepost.protocol.records import WEIGHT_COLUMN


class AggregateOverUpdates:
    """Aggregates over the live rows of each key. Nothing is ever late, and null is a key of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, uid: str, key: Sequence[str], calls: Mapping[str, AggregateCall], input_: OperatorInput) -> None:
        check_key(uid, key, input_.schema)
        schema = plain_schema(input_.schema)
        self._input_schema = pa.schema([field for field in schema if field.name != WEIGHT_COLUMN])
        self._aggregates = Aggregates(uid, calls, self._input_schema, over_updates=True)
        self.uid = uid
        self.key = self.output_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        self.state_key, keys = state_key(key), state_key_fields(key, schema)
        state_schema = distinct_columns(uid, [*keys, *self._aggregates.state_fields])
        self.tables: Mapping[str, StateTable] = {
            **only_table(self.state_key, self.key, state_schema),
            **{one.name: one.table(keys, key) for one in self._aggregates.weighted},
        }
        self._nothing = self._aggregates.of_no_rows
        self.deletes = bool(key) and not input_.always_has(key)
        self.row_schema = distinct_columns(uid, [*keys[: len(key)], *self._aggregates.output_fields])
        self.output_schema = self.row_schema.append(DELETED_FIELD) if self.deletes else self.row_schema

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> UpdatesRun:
        """Start one subtask's epoch; nothing here fires."""
        values = [ValueTableRun(one, self.state_key, tables[one.name]) for one in self._aggregates.weighted]
        return UpdatesRun(self, tables[ONLY_TABLE], values)

    def ingest(self, rows: pa.Table, state: KeyedState, values: Sequence[ValueTableRun]) -> pa.Table:
        """Add inserted rows to the accumulators, subtract retracted ones, and return the distinct keys."""
        weights = rows.column(WEIGHT_COLUMN).to_numpy()
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        keys = key_columns(rows, self.key)
        occurring = state.group(keys)
        previous = occurring.find()[0]
        weighted = WeightedRows(rows, keys, occurring.codes, previous.num_rows, weights)
        columns = [*occurring.keys.columns, *self._aggregates.fold_weighted(weighted, previous)]
        for one in values:
            columns += one.ingest(weighted, previous)
        occurring.put(pa.table(columns, schema=self.tables[ONLY_TABLE].schema))
        return occurring.keys

    def rows_of(self, state_rows: pa.Table) -> pa.Table:
        """Return the output of keys that have rows. Raises OperatorFailed on overflow."""
        if not self.key and not _counted(state_rows).all():
            state_rows = self._nothing
        columns = [*state_rows.select(list(self.key)).columns, *self._aggregates.results(state_rows)]
        return pa.table(columns, schema=self.row_schema)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output of those keys in `state_rows` that have rows. Raises OperatorFailed on overflow."""
        rows = self.rows_of(state_rows.filter(pa.array(self.has_rows(state_rows))))
        return self.marked(rows, self.row_schema.empty_table())

    def is_empty(self, state_rows: pa.Table) -> Bools:
        """Return which keys have no rows and no values."""
        return self._aggregates.is_empty(state_rows)

    def marked(self, rows: pa.Table, deleted_rows: pa.Table) -> pa.Table:
        """Return the output rows, with deletes of the keys in `deleted_rows` if the operator emits deletes."""
        return with_deletes(rows, deleted_rows, self.key) if self.deletes else rows

    def has_rows(self, state_rows: pa.Table) -> Bools:
        """Return which keys have rows. Totals exist without any."""
        if self.key:
            return _counted(state_rows)
        known: Bools = state_rows.column(ROWS_COLUMN).is_valid().to_numpy()
        return known

    def initial_totals(self, state: KeyedState) -> pa.Table | None:
        """Create the row of totals if this subtask has it and it does not exist yet; otherwise return None."""
        return initial_totals(self.key, state, self._nothing)


def _counted(state_rows: pa.Table) -> Bools:
    """Return which keys have rows. A key with more retractions than insertions has none."""
    counted: Bools = pc.fill_null(state_rows.column(ROWS_COLUMN), 0).to_numpy() > 0
    return counted


class UpdatesRun:
    """One subtask's epoch of an `AggregateOverUpdates`. Changed keys are emitted at its end."""

    def __init__(self, operator: AggregateOverUpdates, state: KeyedState, values: Sequence[ValueTableRun] = ()) -> None:
        self._operator = operator
        self._state, self._values = state, values
        self._pieces: list[pa.Table] = []
        nothing = operator.row_schema.empty_table()
        self._before, self._now = (nothing, NONE), (nothing, NONE)

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest rows without emitting anything. Nothing is ever late."""
        if rows.num_rows:
            self._pieces.append(self._operator.ingest(rows, self._state, self._values))
        yield from ()

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit each changed key that has rows, then a delete of each key that had rows when the epoch began.

        With a stable key, a key is without rows only while the rows that replace them are in flight.
        """
        if not self._pieces and (first := self._operator.initial_totals(self._state)) is not None:
            self._pieces.append(first.select(self._operator.state_key))
        if not self._pieces:
            return self._operator.output_schema.empty_table()
        occurring = self._state.group(self._changed_keys())
        state_rows = self._refresh_extremes(occurring)
        started = occurring.find_at_start()[0]
        exists, existed = self._operator.has_rows(state_rows), self._operator.has_rows(started)
        self._before = self._rows(started, existed), np.flatnonzero(existed)
        self._now = self._rows(state_rows, exists), np.flatnonzero(exists)
        if self._operator.key:
            self._state.delete(occurring.keys.filter(pa.array(self._operator.is_empty(state_rows))))
        return self._operator.marked(self._now[0], occurring.keys.filter(pa.array(existed & ~exists)))

    def retractions(self) -> pa.Table:
        """Return, per changed key, the retraction of its row at the start of the epoch, and its current row."""
        return retractions(*self._before, *self._now)

    def check_settled(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a row was retracted but never inserted."""
        if not self._pieces and not all_keys:
            return
        rows = self._state.rows() if all_keys else self._state.group(self._changed_keys()).find()[0]
        short = ~_counted(rows) & ~self._operator.is_empty(rows)
        check_settled(self._operator.uid, self._operator.key, rows.filter(pa.array(short)))
        for one in self._values:
            one.check_settled(self._operator.uid, self._operator.key, all_keys=all_keys)

    def _rows(self, state_rows: pa.Table, wanted: Bools) -> pa.Table:
        return self._operator.rows_of(state_rows.filter(pa.array(wanted)))

    def _refresh_extremes(self, occurring: GroupedKeys) -> pa.Table:
        """Return the state rows of keys after refreshing their cached extremes."""
        state_rows = occurring.find()[0]
        changed = np.zeros(state_rows.num_rows, dtype=np.bool_)
        for one in self._values:
            state_rows, of_table = one.refresh_extremes(state_rows)
            changed |= of_table
        occurring.put(state_rows.filter(pa.array(changed)), changed)
        return state_rows

    def _changed_keys(self) -> pa.Table:
        return distinct_rows(pa.concat_tables(self._pieces))
