"""`kind: aggregate`: running aggregates per key. Each epoch emits the changed keys with their new values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.operators.aggregate.over_updates import AggregateOverUpdates
from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.aggregation.aggregates import ROWS_COLUMN, Aggregates, timed_calls
from milepost.operators.aggregation.totals import initial_totals, state_key, state_key_fields
from milepost.operators.contract import (
    ONLY_TABLE,
    BuildOptions,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OperatorRun,
    OutputKind,
    StatefulOperator,
    StateTable,
    only_table,
)
from milepost.operators.rows.changed_keys import ChangedKeys
from milepost.operators.rows.columns import (
    check_key,
    distinct_columns,
    key_columns,
    number_keys,
    plain_schema,
)
from milepost.operators.rows.retractions import NONE, retractions
from milepost.protocol.records import WEIGHT_COLUMN


def build(spec: AggregateOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    calls = timed_calls(spec.uid, spec.aggregates, input_.event_time)
    if WEIGHT_COLUMN in input_.schema.names:
        return AggregateOverUpdates(spec.uid, spec.key, calls, input_)
    return AggregateByKey(spec.uid, spec.key, calls, input_.schema)


class AggregateByKey:
    """Aggregates over all rows of a key so far, or over all rows. No row is late. A null key is a group of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    listener: CheckpointListener | None = None

    def __init__(
        self, uid: str, key: Sequence[str], calls: Mapping[str, AggregateCall], input_schema: pa.Schema
    ) -> None:
        check_key(uid, key, input_schema)
        self._input_schema = plain_schema(input_schema)
        self._aggregates = Aggregates(uid, calls, self._input_schema)
        self.uid = uid
        self.key = self.routing_key = self.output_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        self.state_key, keys = state_key(key), state_key_fields(key, self._input_schema)
        self.state_schema = distinct_columns(uid, [*keys, *self._aggregates.state_fields])
        self.tables: Mapping[str, StateTable] = {
            **only_table(self.state_key, self.routing_key, self.state_schema),
            **self._aggregates.value_tables(keys, key),
        }
        self.output_schema = distinct_columns(uid, [*keys[: len(key)], *self._aggregates.output_fields])
        self.combiner: Combiner | None = AggregateCombiner(self) if self._aggregates.merges else None

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> AggregateRun:
        """Start one subtask's epoch."""
        return AggregateRun(self, tables)

    def ingest(self, rows: pa.Table, tables: Mapping[str, KeyedState]) -> pa.Table:
        """Fold rows into the state. Return the changed state rows, in the order of their state hash."""
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        row_keys = key_columns(rows, self.key)
        rows = self._aggregates.flagged(row_keys, rows, tables)
        keys, changed = self._aggregates.fold(row_keys, rows, tables[ONLY_TABLE])
        keys.put(changed)
        return changed

    def partials(self, rows: pa.Table) -> pa.Table:
        """Fold rows without state. Return per key: key columns, accumulators, and the number of rows."""
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        codes, folded = number_keys(key_columns(rows, self.key))
        count = folded.num_rows
        accumulated = self._aggregates.partials(rows, codes, count)
        for name in accumulated.column_names:
            folded = folded.append_column(accumulated.field(name), accumulated.column(name))
        return folded.append_column(ROWS_COLUMN, pa.array(np.bincount(codes, minlength=count).astype(np.int64)))

    def take_up_partials(self, partials: pa.Table, state: KeyedState) -> pa.Table:
        """Merge partial results into the state, in the same way as `ingest` folds rows."""
        keys, changed = self._aggregates.merge(partials.select(self.state_schema.names), self.state_key, state)
        keys.put(changed)
        return changed

    def initial_totals(self, state: KeyedState) -> pa.Table | None:
        """Return the row of totals if it starts in this epoch and no row has arrived."""
        return initial_totals(self.key, state, self._aggregates.of_no_rows)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output rows of state rows. Raises OperatorFailed on overflow."""
        columns = [*state_rows.select(list(self.key)).columns, *self._aggregates.results(state_rows)]
        return pa.table(columns, schema=self.output_schema)


class AggregateRun:
    """One subtask's epoch of an `AggregateByKey`. Rows are folded immediately, changed keys are emitted at the end."""

    def __init__(self, operator: AggregateByKey, tables: Mapping[str, KeyedState]) -> None:
        self._operator = operator
        self._tables, self._state = tables, tables[ONLY_TABLE]
        self._changed = ChangedKeys(operator.state_key)
        self._emitted = operator.output_schema.empty_table()

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Fold the rows. Nothing is emitted before `finish`, and no row is late."""
        if rows.num_rows:
            self._changed.add(self._operator.ingest(rows, self._tables))
        yield from ()

    def partials(self, partials: pa.Table) -> None:
        """Merge rows that upstream subtasks have folded."""
        self._changed.add(self._operator.take_up_partials(partials, self._state))

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit each changed key once, in the order of their state hash. Raises OperatorFailed on overflow."""
        changed = self._changed.current(self._state)
        if changed is None:
            changed = self._operator.initial_totals(self._state)
        if changed is not None:
            self._emitted = self._operator.results(changed)
        return self._emitted

    def retractions(self) -> pa.Table:
        """Return retractions of the changed keys' rows as of the start of the epoch, and their new rows."""
        now = self._emitted
        if not now.num_rows:
            return retractions(now, NONE, now, NONE)
        before, known = self._state.group(key_columns(now, self._operator.key)).find_at_start()
        emitted = self._operator.results(before.filter(pa.array(known)))
        return retractions(emitted, np.flatnonzero(known), now, np.arange(now.num_rows))


class AggregateCombiner:
    """Implements `Combiner` for an `AggregateByKey` whose accumulators merge."""

    def __init__(self, operator: AggregateByKey) -> None:
        self._operator = operator

    def combine(self, rows: pa.Table) -> pa.Table:
        return self._operator.partials(rows)

    def ingest(self, run: OperatorRun, partials: pa.Table) -> int:
        if not isinstance(run, AggregateRun):
            raise TypeError(f"partial results of {self._operator.uid!r} are for its own runs")
        if partials.num_rows:
            run.partials(partials)
        return int(pc.sum(partials.column(ROWS_COLUMN)).as_py() or 0)
