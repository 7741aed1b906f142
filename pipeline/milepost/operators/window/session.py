"""`kind: window` with `session`: rows of a key that follow each other within a gap.

Each row starts as its own window [t, t + gap), and overlapping windows merge into one session. A row `gap` or more
after the last row therefore starts a new session, and the result does not depend on arrival order. With a gap of 10::

    stored sessions     a row at 12           stored afterwards
    [0, 10)  [20, 30)   becomes [12, 22)      [0, 10)  [12, 30)    the row at 20 moves to the session that starts at 12

State has one row per key and session that can still grow. An on-time row is never older than the firing watermark
minus the allowed lateness, so it cannot belong to a session that was already dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.language.times import in_us
from milepost.operators.base.edges import WINDOW_START
from milepost.operators.contract import (
    ONLY_TABLE,
    Bools,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorRun,
    OutputKind,
    StateTable,
    only_table,
)
from milepost.operators.rows.columns import (
    UTC_MICROSECONDS,
    distinct_columns,
    key_columns,
    number_keys,
)
from milepost.operators.rows.deletes import DELETED_FIELD
from milepost.operators.window.session_updates import EMITTED_COLUMN, MergedSessions, SessionUpdatesRun
from milepost.operators.window.session_values import forget_values, move_values
from milepost.operators.window.spans import merge_spans
from milepost.operators.window.tumbling import StateTables, WindowRun
from milepost.operators.window.windowed import Emission, WindowedRows, microseconds
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import BEGINS_NULL, EXPIRES_COLUMN, FIRED_COLUMN, TIMER_COLUMN


class SessionWindowByKey:
    """Aggregates over the rows of a key in one session.

    A row is late when its event time is below the lateness watermark less the allowed lateness, whatever it would join.
    A session is emitted when the firing watermark reaches its end. With allowed lateness 0 it is final (append);
    otherwise, and with `emit: early`, it may be emitted again and replaces the sessions that merged into it
    (`session_updates.py`).
    """

    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        gap: timedelta,
        emission: Emission,
        calls: Mapping[str, AggregateCall],
        input_: OperatorInput,
    ) -> None:
        self.windowed = windowed = WindowedRows(uid, key, calls, input_, any_order=True)
        self._gap_us = in_us(gap)
        self.uid, self.emission = uid, emission
        self.routing_key = windowed.key
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        self.key = (*windowed.state_key, WINDOW_START)
        self.output_kind = OutputKind.UPDATES if emission.updates else OutputKind.APPEND
        self.output_key = (*key, WINDOW_START) if emission.updates else ()
        deleted = [DELETED_FIELD] if emission.updates else []
        self.output_schema = pa.schema([*windowed.output_schema, *deleted])
        start = pa.field(WINDOW_START, UTC_MICROSECONDS)
        times = [pa.field(TIMER_COLUMN, pa.int64()), pa.field(EXPIRES_COLUMN, pa.int64())]
        of_emitted = (EMITTED_COLUMN, FIRED_COLUMN) if emission.updates else ()
        emitted = [pa.field(name, pa.bool_(), metadata={BEGINS_NULL: "1"}) for name in of_emitted]
        self._accumulated = pa.schema(windowed.aggregates.state_fields)
        fields = [*windowed.key_fields, start, *self._accumulated, *times, *emitted]
        self.state_schema = distinct_columns(uid, fields)
        self.tables: Mapping[str, StateTable] = {
            **only_table(self.key, self.routing_key, self.state_schema),
            **windowed.aggregates.value_tables([*windowed.key_fields, start], key),
        }

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> OperatorRun:
        """Start one subtask's epoch."""
        if self.emission.updates:
            return SessionUpdatesRun(self, tables, previous_firing_us)
        return FinalSessionsRun(self, tables, previous_firing_us)

    def forget(self, firing_us: int | None, tables: StateTables) -> None:
        """Delete the values of expired sessions. The session rows themselves expire by their times."""
        distinct = self.windowed.aggregates.distinct
        if firing_us is None or not distinct:
            return
        expired_rows = (
            tables[ONLY_TABLE].due(firing_us).filter(pc.field(EXPIRES_COLUMN) <= firing_us).select(list(self.key))
        )
        for one in distinct if expired_rows.num_rows else ():
            forget_values(tables[one.name], expired_rows)

    def ingest(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[pa.Table | None, pa.Table]:
        """Merge on-time rows into sessions. Return the changed state rows, if any, and the late rows."""
        joined, late = self.join(rows, lateness_us, tables)
        return None if joined is None else joined.changed, late

    def join(
        self, rows: pa.Table, lateness_us: int | None, tables: StateTables
    ) -> tuple[MergedSessions | None, pa.Table]:
        """Merge on-time rows into sessions. Return the merged sessions, if any, and the late rows."""
        late = self.windowed.input_schema.empty_table()
        if not rows.num_rows:
            return None, late
        rows = self.windowed.plain(rows)
        times = self.windowed.event_time.of(rows)
        if lateness_us is not None:
            on_time = times >= lateness_us - self.emission.lateness_us
            late = rows.filter(pa.array(~on_time))
            rows, times = rows.filter(pa.array(on_time)), times[on_time]
        self.windowed.refuse_unbounded(times[times > END_OF_TIME_US - self._gap_us - self.emission.lateness_us])
        return (self._join(rows, times, tables) if rows.num_rows else None), late

    def _join(self, rows: pa.Table, times: Ints, tables: StateTables) -> MergedSessions:
        state, aggregates = tables[ONLY_TABLE], self.windowed.aggregates
        keys = key_columns(rows, self.routing_key)
        owners, distinct = number_keys(keys)
        found = state.lookup_all(distinct)
        known = found.take([WINDOW_START, TIMER_COLUMN])
        owners = np.concatenate([found.owners, owners])
        starts = np.concatenate([microseconds(known, WINDOW_START), times])
        ends = np.concatenate([known.column(TIMER_COLUMN).to_numpy(), times + self._gap_us])
        sessions = merge_spans(owners, starts, ends)
        before = len(found.owners)
        joined = np.unique(sessions[before:])
        grown = np.flatnonzero(np.isin(sessions[:before], joined))
        # Sessions that no row joins stay as they are. The others are renumbered 0, 1, ... without gaps.
        taken = np.concatenate([grown, np.arange(before, len(owners))])
        numbers = np.searchsorted(joined, sessions[taken])
        first, last = np.full(len(joined), END_OF_TIME_US), np.zeros(len(joined), dtype=np.int64)
        np.minimum.at(first, numbers, starts[taken])
        last[numbers] = ends[taken]
        np.maximum.at(last, numbers, ends[taken])
        owner = np.zeros(len(joined), dtype=np.int64)
        owner[numbers] = owners[taken]
        of_grown, of_rows = np.split(numbers, [len(grown)])
        begins = pa.array(first, UTC_MICROSECONDS)
        later = starts[grown] != first[of_grown]
        moved = found.take(list(self.key), grown[later])
        parts = found.take(self._accumulated.names, grown)
        if aggregates.distinct:
            parts = self._move(parts, later, moved, begins.take(pa.array(of_grown[later])), tables)
            start_of_each = begins.take(pa.array(of_rows))
            rows = aggregates.flagged(keys.append_column(WINDOW_START, start_of_each), rows, tables)
        accumulated = aggregates.partials(rows, of_rows, len(joined))
        if len(grown):
            codes = np.concatenate([of_grown, np.arange(len(joined))])
            accumulated = aggregates.merged(pa.concat_tables([parts, accumulated]), codes, len(joined))
        early, fired = pa.array(np.full(len(joined), self.emission.early)), pa.nulls(len(joined), pa.bool_())
        emitted = [early, fired] if self.emission.updates else []
        times_of = [pa.array(last), pa.array(last + self.emission.lateness_us), *emitted]
        columns = [*distinct.take(pa.array(owner)).columns, begins, *accumulated.columns, *times_of]
        changed = pa.table(columns, schema=self.state_schema)
        state.delete(moved)
        state.upsert(changed)
        return MergedSessions(changed, moved)

    def _move(self, parts: pa.Table, later: Bools, moved: pa.Table, begins: pa.Array, tables: StateTables) -> pa.Table:
        """Have the values of sessions be of those that begin earlier now; return what is counted of each, once."""
        for one in self.windowed.aggregates.distinct if moved.num_rows else ():
            counts = parts.column(one.counted).to_numpy().copy()
            counts[later] = move_values(tables[one.name], moved, begins)
            parts = parts.set_column(parts.column_names.index(one.counted), one.counted, pa.array(counts))
        return parts


class FinalSessionsRun(WindowRun):
    """One subtask's epoch of sessions that are emitted once."""

    def __init__(self, operator: SessionWindowByKey, tables: StateTables, fired_us: int | None) -> None:
        super().__init__(operator, tables, fired_us)
        self._sessions = operator

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit the sessions that end by `firing_us` and delete their state."""
        fired = super().finish(firing_us)
        self._sessions.forget(firing_us, self._tables)
        return fired
