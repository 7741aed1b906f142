"""`kind: latest`: the newest row of each key. Each epoch emits the keys with a changed or deleted row.

Sequence columns decide which row is newer; the order of arrival has no effect. A deleted key leaves a *tombstone* of
its key and sequence, so that no older row revives it::

    id  status  lsn  a delete          state after each row         the table
    1   new     10   false             1  new   10  false           1  new
    1   null    30   true              1  null  30  true            (1 has no row)
    1   paid    20   false             the same: it is older
    1   again   40   false             1  again 40  false           1  again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.times import in_us
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import (
    ONLY_TABLE,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OperatorRun,
    OutputKind,
    only_table,
)
from milepost.operators.latest.spec import LatestOperator
from milepost.operators.rows.changed_keys import ChangedKeys
from milepost.operators.rows.columns import (
    check_event_time,
    check_key,
    check_order,
    group_rows,
    key_columns,
    plain_schema,
)
from milepost.operators.rows.retractions import retractions
from milepost.operators.rows.row_order import last_rows, tie_break
from milepost.operators.rows.tombstones import (
    TOMBSTONE_COLUMN,
    are_tombstones,
    put_last_rows,
    with_tombstone_flags,
    without_payload,
)
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import BEGINS_NULL, EXPIRES_COLUMN

ROWS_COLUMN = "__rows"
"""Column of partial results: how many input rows each stands for."""


class LatestByKey:
    """The newest row of each key, or its delete. Null is a key of its own.

    With a ttl, a row is late when its event time < lateness watermark - ttl, and a tombstone is remembered while a row
    with its event time would be on time. Without a ttl tombstones are permanent, and nothing is late.
    """

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    listener: CheckpointListener | None = None

    def __init__(self, spec: LatestOperator, input_: OperatorInput) -> None:
        """Args:
        input_: with `DELETED_COLUMN` where the spec has `delete_when`.
        """
        schema = plain_schema(input_.schema)
        ttl = spec.tombstone_ttl
        self.uid, self.key, self.deletes = spec.uid, spec.key, DELETED_COLUMN in schema.names
        check_key(self.uid, self.key, schema)
        check_order(self.uid, spec.sequence_by, schema)
        self._ttl_us = None if ttl is None else in_us(ttl)
        self._event_time = None if ttl is None else check_event_time(self.uid, input_, "`tombstone_ttl`")
        shown = spec.columns or tuple(name for name in schema.names if name != DELETED_COLUMN)
        self._sequence_columns = (*spec.sequence_by, TOMBSTONE_COLUMN) if self.deletes else spec.sequence_by
        self._payload = [name for name in shown if name not in {*self.key, *spec.sequence_by}]
        self._input_schema = schema
        self.late_schema = pa.schema([field for field in schema if field.name != DELETED_COLUMN])
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        self.output_key = self.key
        kept = [self._state_field(field) for field in schema if field.name in {*self.key, *spec.sequence_by, *shown}]
        tombstone = [pa.field(TOMBSTONE_COLUMN, pa.bool_(), metadata={BEGINS_NULL: "1"})] if self.deletes else []
        self._row_schema = pa.schema([*kept, *tombstone])
        expires = [] if ttl is None else [pa.field(EXPIRES_COLUMN, pa.int64())]
        self.state_schema = pa.schema([*self._row_schema, *expires])
        ties = tie_break(pa.schema(kept), self.key, spec.sequence_by)
        self.tables = only_table(self.key, self.key, self.state_schema, ties)
        self._shown = [*shown, TOMBSTONE_COLUMN] if self.deletes else list(shown)
        mark = [schema.field(DELETED_COLUMN)] if self.deletes else []
        self.output_schema = pa.schema([*(schema.field(name) for name in shown), *mark])
        self.combiner: Combiner | None = LatestCombiner(self) if ttl is None else None

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> LatestRun:
        """Start one subtask's epoch; nothing here fires."""
        return LatestRun(self, tables[ONLY_TABLE])

    def ingest(self, rows: pa.Table, lateness_us: int | None, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Store the newest rows. Return the changed state rows and the late rows."""
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        late = self.late_schema.empty_table()
        times = None if self._event_time is None else self._event_time.of(rows)
        if times is not None and self._ttl_us is not None and lateness_us is not None:
            on_time = times >= lateness_us - self._ttl_us
            late = rows.filter(pa.array(~on_time)).select(self.late_schema.names)
            rows, times = rows.filter(pa.array(on_time)), times[on_time]
        return self._keep(self._to_state_rows(rows, times), lateness_us, state), late

    def newest(self, rows: pa.Table) -> tuple[pa.Table, Ints]:
        """Return the newest row of each key in state columns, and the number of input rows of each key."""
        rows = self._to_state_rows(rows.select(self._input_schema.names).cast(self._input_schema), None)
        groups, count = group_rows(rows.select(list(self.key)))
        newest = rows.take(pa.array(last_rows(rows, groups, self._sequence_columns)))
        return newest, np.bincount(groups, minlength=count).astype(np.int64)

    def take_up_newest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """As `ingest`, for rows in the columns of the state."""
        return self._keep(rows.select(self.state_schema.names).cast(self.state_schema), None, state)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the table rows of state rows. A deleted key has none."""
        if self.deletes:
            state_rows = with_tombstone_flags(state_rows)
            state_rows = state_rows.filter(pc.invert(state_rows.column(TOMBSTONE_COLUMN)))
        return pa.table(state_rows.select(self._shown).columns, schema=self.output_schema)

    def changes(self, state_rows: pa.Table, state: KeyedState) -> pa.Table:
        """Return an epoch's table changes: current rows, then deletes of the keys that lost their row."""
        rows = self.results(state_rows)
        if rows.num_rows == state_rows.num_rows:
            return rows
        new_tombstones = state_rows.filter(state_rows.column(TOMBSTONE_COLUMN))
        before = state.lookup_all_at_start(new_tombstones.select(list(self.key)))
        deletes = new_tombstones.take(pa.array(before.owners[~are_tombstones(before.take([TOMBSTONE_COLUMN]))]))
        columns = [
            deletes.column(name) if name in (*self.key, TOMBSTONE_COLUMN) else pa.nulls(deletes.num_rows, field.type)
            for name, field in zip(self._shown, self.output_schema, strict=True)
        ]
        return pa.concat_tables([rows, pa.table(columns, schema=self.output_schema)])

    def replaced(self, state_rows: pa.Table, state: KeyedState) -> pa.Table:
        """Return the rows of changed keys as they were when the epoch began, taken back, and as they are."""
        found = state.lookup_all_at_start(state_rows.select(list(self.key)))
        before, positions = self._rows(found.take(self.state_schema.names))
        now, places = self._rows(state_rows)
        return retractions(before, found.owners[positions], now, places)

    def _rows(self, state_rows: pa.Table) -> tuple[pa.Table, Ints]:
        """Return the rows that a table has of state rows, without a mark, and which of these they are of."""
        there = ~are_tombstones(state_rows) if self.deletes else np.ones(state_rows.num_rows, dtype=np.bool_)
        rows = self.results(state_rows)
        return rows.select([name for name in rows.column_names if name != DELETED_COLUMN]), np.flatnonzero(there)

    def _state_field(self, field: pa.Field) -> pa.Field:
        """Return a column of a kept row; one that only the table has may be added later, and begins null."""
        return field.with_metadata({BEGINS_NULL: "1"}) if field.name in self._payload else field

    def _to_state_rows(self, rows: pa.Table, times: Ints | None) -> pa.Table:
        """Return rows in state columns, with normalised keys. A delete has only its key and sequence."""
        columns = {
            name: rows.column(DELETED_COLUMN if name == TOMBSTONE_COLUMN else name) for name in self._row_schema.names
        }
        columns |= dict(zip(self.key, key_columns(rows, self.key).columns, strict=True))
        kept = pa.table(list(columns.values()), schema=self._row_schema)
        if self.deletes:
            kept = without_payload(kept, self._payload)
        return kept if self._ttl_us is None else kept.append_column(EXPIRES_COLUMN, self._expires(rows, times))

    def _expires(self, rows: pa.Table, times: Ints | None) -> pa.Array:
        """Return when each tombstone expires, and null for all other rows, which never do."""
        assert times is not None and self._ttl_us is not None
        # One past the last watermark at which this event time is on time. Beyond the end of time: for ever.
        outlives = min(self._ttl_us + 1, END_OF_TIME_US)
        until = np.where(times > END_OF_TIME_US - outlives, END_OF_TIME_US, times + outlives)
        return pa.array(until, mask=~rows.column(DELETED_COLUMN).to_numpy())

    def _keep(self, rows: pa.Table, lateness_us: int | None, state: KeyedState) -> pa.Table:
        if not rows.num_rows:
            return self.state_schema.empty_table()
        occurring = state.group(rows.select(list(self.key)))
        stored, known = occurring.find()
        if self._ttl_us is not None and lateness_us is not None:
            # Firing may lag behind lateness while rows are in flight; rows expire by the lateness watermark alone.
            known = known & (pc.fill_null(stored.column(EXPIRES_COLUMN), END_OF_TIME_US).to_numpy() > lateness_us)
        return put_last_rows(occurring, rows, stored, known, self._sequence_columns)


class LatestRun:
    """One subtask's epoch of a `LatestByKey`: stores newer rows as they arrive, emits changed keys at its end."""

    def __init__(self, operator: LatestByKey, state: KeyedState) -> None:
        self._operator = operator
        self._state = state
        self._keys = ChangedKeys(operator.key)
        self._changed = operator.state_schema.empty_table()

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest rows without emitting anything."""
        if rows.num_rows:
            changed, late = self._operator.ingest(rows, lateness_us, self._state)
            self._keys.add(changed)
            yield OperatorOutput(self._operator.output_schema.empty_table(), late)

    def partials(self, partials: pa.Table) -> None:
        """Ingest the newest rows that other subtasks selected."""
        self._keys.add(self._operator.take_up_newest(partials, self._state))

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing: rows expire by the lateness watermark, in `rows`."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit each changed key once: rows, then deletes, each in the order of their state hash."""
        changed = self._keys.current(self._state)
        if changed is not None:
            self._changed = changed
        return self._operator.changes(self._changed, self._state)

    def retractions(self) -> pa.Table:
        """Return the rows of changed keys as they were when the epoch began, taken back, and as they are."""
        return self._operator.replaced(self._changed, self._state)


class LatestCombiner:
    """Implements `Combiner` for a `LatestByKey` for which nothing is late: of each key the newest row is enough."""

    def __init__(self, operator: LatestByKey) -> None:
        self._operator = operator

    def combine(self, rows: pa.Table) -> pa.Table:
        newest, count = self._operator.newest(rows)
        return newest.append_column(ROWS_COLUMN, pa.array(count))

    def ingest(self, run: OperatorRun, partials: pa.Table) -> int:
        if not isinstance(run, LatestRun):
            raise TypeError(f"partial results of {self._operator.uid!r} are for its own runs")
        if partials.num_rows:
            run.partials(partials)
        return int(pc.sum(partials.column(ROWS_COLUMN)).as_py() or 0)
