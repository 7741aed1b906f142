"""`kind: window` with `session`: rows of a key that follow each other within a gap.

A session is from its first row to `gap` after its last one. Each row is a window [t, t + gap) of its own, and windows
that have a moment in common are one session: so a row `gap` after the last one, or later, begins a new one, and which
rows are together does not depend on the order in which they come. State has one row per key and session that may still
grow. An on-time row is not before the firing watermark less the allowed lateness: it joins none that is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from milepost.dataflow.operators.contract import (
    BEGINS_NULL,
    EXPIRES_COLUMN,
    ONLY_TABLE,
    TIMER_COLUMN,
    Bools,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorRun,
    OutputKind,
    RowsOfKeys,
    only_table,
)
from milepost.dataflow.operators.rows.columns import (
    UTC_MICROSECONDS,
    distinct_columns,
    first_of_each,
    group_rows,
    key_columns,
)
from milepost.dataflow.operators.rows.deletes import DELETED_FIELD
from milepost.dataflow.operators.windows.session_updates import EMITTED_COLUMN, Joined, SessionUpdatesRun
from milepost.dataflow.operators.windows.window import StateTables, WindowRun
from milepost.dataflow.operators.windows.windowed import WINDOW_START, Emission, WindowedRows
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.values.aggregates import AggregateCall


class SessionWindowByKey:
    """Aggregates over the rows of a key in one session.

    A row is late when its event time is below the lateness watermark less the allowed lateness, whatever it would join.
    A session is emitted in the epoch whose firing watermark reaches its end. With allowed lateness 0 that is final
    (append); with more, and early, it may come out again, in place of what it is made of (`session_updates.py`).
    """

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
        self.windowed = windowed = WindowedRows(uid, key, calls, input_)
        if not windowed.aggregates.merges:
            raise InvalidRequest(
                f"operator {uid!r}: a sum, average or deviation of floats in a session depends on the order in "
                "which rows join sessions. Nothing was changed.",
                hint="CAST the column to a decimal in a `sql` operator before it.",
            )
        self._gap_us = gap // timedelta(microseconds=1)
        self.uid, self.emission = uid, emission
        self.routing_key = windowed.key
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        self.key = (*key, WINDOW_START)
        self.combiner: Combiner | None = None
        self.output_kind = OutputKind.UPDATES if emission.updates else OutputKind.APPEND
        self.output_key = self.key if emission.updates else ()
        deleted = [DELETED_FIELD] if emission.updates else []
        self.output_schema = pa.schema([*windowed.output_schema, *deleted])
        start = pa.field(WINDOW_START, UTC_MICROSECONDS)
        times = [pa.field(TIMER_COLUMN, pa.int64()), pa.field(EXPIRES_COLUMN, pa.int64())]
        emitted = [pa.field(EMITTED_COLUMN, pa.bool_(), metadata={BEGINS_NULL: "1"})] if emission.updates else []
        self._accumulated = pa.schema(windowed.aggregates.state_fields)
        fields = [*windowed.key_fields, start, *self._accumulated, *times, *emitted]
        self.state_schema = distinct_columns(uid, fields)
        self.tables = only_table(self.key, self.routing_key, self.state_schema)

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> OperatorRun:
        """Start one subtask's epoch."""
        run = SessionUpdatesRun if self.emission.updates else WindowRun
        return run(self, tables, previous_firing_us)

    def take_up(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[pa.Table | None, pa.Table]:
        """Have on-time rows join sessions; return the state rows that changed, if any, and the late rows."""
        joined, late = self.join(rows, lateness_us, tables)
        return None if joined is None else joined.changed, late

    def join(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[Joined | None, pa.Table]:
        """Have on-time rows join sessions; return what they have made of them, if there are any, and the late rows."""
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
        return (self._join(rows, times, tables[ONLY_TABLE]) if rows.num_rows else None), late

    def _join(self, rows: pa.Table, times: Ints, state: KeyedState) -> Joined:
        keys = key_columns(rows, self.routing_key)
        owners, count = group_rows(keys)
        distinct = keys.take(pa.array(first_of_each(owners, count)))
        found = state.lookup_all(distinct)
        known = found.take([WINDOW_START, TIMER_COLUMN])
        owners = np.concatenate([found.owners, owners])
        starts = np.concatenate([_microseconds(known, WINDOW_START), times])
        ends = np.concatenate([known.column(TIMER_COLUMN).to_numpy(), times + self._gap_us])
        sessions = sessions_of(owners, starts, ends)
        before = len(found.owners)
        joined = np.unique(sessions[before:])
        grown = np.isin(sessions[:before], joined)
        # Sessions that no row joins stay as they are; the others are numbered anew.
        taken = np.concatenate([grown, np.ones(len(times), dtype=np.bool_)])
        numbers = np.searchsorted(joined, sessions[taken])
        first = np.full(len(joined), END_OF_TIME_US)
        np.minimum.at(first, numbers, starts[taken])
        last = np.zeros(len(joined), dtype=np.int64)
        last[numbers] = ends[taken]
        np.maximum.at(last, numbers, ends[taken])
        accumulated = self._accumulate(rows, numbers, found, grown)
        owner = np.zeros(len(joined), dtype=np.int64)
        owner[numbers] = owners[taken]
        emitted = [pa.array(np.full(len(joined), self.emission.early))] if self.emission.updates else []
        times_of = [pa.array(last), pa.array(last + self.emission.lateness_us), *emitted]
        columns = [*distinct.take(pa.array(owner)).columns, pa.array(first, UTC_MICROSECONDS), *accumulated.columns]
        changed = pa.table([*columns, *times_of], schema=self.state_schema)
        begun_before = starts[:before][grown] != first[numbers[: int(grown.sum())]]
        moved = found.take(list(self.key), np.flatnonzero(grown)[begun_before])
        state.delete(moved)
        state.upsert(changed)
        return Joined(changed, moved)

    def _accumulate(self, rows: pa.Table, numbers: Ints, found: RowsOfKeys, grown: Bools) -> pa.Table:
        """Return the accumulators of each session: of those that it had, and of the rows that joined it."""
        count, before = int(numbers.max()) + 1, int(grown.sum())
        fresh = self.windowed.aggregates.partials(rows, numbers[before:], count)
        if not before:
            return fresh
        partials = pa.concat_tables([found.take(self._accumulated.names, np.flatnonzero(grown)), fresh])
        codes = np.concatenate([numbers[:before], np.arange(count)])
        return self.windowed.aggregates.merged(partials, codes, count)


def sessions_of(owners: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return the number of the session that each span is in: spans of an owner that overlap are in one.

    >>> sessions_of(np.array([0, 0, 1, 0]), np.array([9, 0, 4, 5]), np.array([19, 6, 9, 9])).tolist()
    [1, 0, 2, 0]
    """
    moments = np.unique(np.concatenate([starts, ends]))
    size = len(moments)
    # One line for all owners, each behind the one before it.
    begins = owners * size + np.searchsorted(moments, starts)
    stops = owners * size + np.searchsorted(moments, ends)
    order = np.argsort(begins, kind="stable")
    reached = np.maximum.accumulate(stops[order])
    new = np.ones(len(order), dtype=np.int64)
    new[1:] = begins[order][1:] >= reached[:-1]
    sessions = np.empty(len(order), dtype=np.int64)
    sessions[order] = np.cumsum(new) - 1
    return sessions


def _microseconds(rows: pa.Table, column: str) -> Ints:
    return rows.column(column).cast(pa.int64()).to_numpy()
