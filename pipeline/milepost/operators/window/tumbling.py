"""`kind: window` with `tumbling`: aggregates per key and event-time window, which touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.operators.base.edges import WINDOW_START
from milepost.operators.contract import (
    ONLY_TABLE,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    StateTable,
    only_table,
)
from milepost.operators.rows.changed_keys import ChangedKeys
from milepost.operators.rows.columns import UTC_MICROSECONDS, distinct_columns, key_columns
from milepost.operators.rows.timers import due_since_firing
from milepost.operators.window.window_bounds import CalendarWindows, FixedWindows
from milepost.operators.window.windowed import Emission, WindowedRows, exclude_fired, microseconds
from milepost.protocol.exchange import is_later
from milepost.protocol.records import EXPIRES_COLUMN, TIMER_COLUMN

StateTables: TypeAlias = Mapping[str, KeyedState]
"""An operator's tables of state by name."""


class TumblingWindowByKey:
    """Tumbling windows per key.

    A row is late when its window's end + allowed lateness <= the lateness watermark. A window is emitted in the epoch
    whose firing watermark reaches its end. With allowed lateness 0 that is final (append); otherwise (updates) it is
    emitted again in each epoch that brings it rows, until end + allowed lateness, when its state is dropped.
    Window [0, 10) with allowed lateness 5, firing and lateness watermark equal::

        watermark    9            10       12                        15
        window       not fired    fires    a row fires it again      a row for it is late
    """

    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        windows: FixedWindows | CalendarWindows,
        emission: Emission,
        calls: Mapping[str, AggregateCall],
        input_: OperatorInput,
    ) -> None:
        self.windowed = windowed = WindowedRows(uid, key, calls, input_)
        self._windows = windows
        self.emission = emission
        self.uid = uid
        self.routing_key = windowed.key
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        self.key = (*windowed.state_key, WINDOW_START)
        self.output_kind = OutputKind.UPDATES if emission.updates else OutputKind.APPEND
        self.output_key = emission.output_key(key)
        self.output_schema = windowed.output_schema
        start = pa.field(WINDOW_START, UTC_MICROSECONDS)
        times = [pa.field(TIMER_COLUMN, pa.int64()), pa.field(EXPIRES_COLUMN, pa.int64())]
        self.state_schema = distinct_columns(
            uid, [*windowed.key_fields, start, *windowed.aggregates.state_fields, *times]
        )
        self.tables: Mapping[str, StateTable] = {
            **only_table(self.key, self.routing_key, self.state_schema),
            **windowed.aggregates.value_tables([*windowed.key_fields, start], key, expire=True),
        }

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> WindowRun:
        """Start one subtask's epoch."""
        return WindowRun(self, tables, previous_firing_us)

    def ingest(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[pa.Table | None, pa.Table]:
        """Fold on-time rows into windows. Return the changed state rows, if any, and the late rows."""
        late = self.windowed.input_schema.empty_table()
        if not rows.num_rows:
            return None, late
        rows = self.windowed.plain(rows)
        times = self.windowed.event_time.of(rows)
        starts = self._windows.starts(times)
        if lateness_us is not None:
            on_time = self._windows.ends_after(starts, lateness_us - self.emission.lateness_us)
            late = rows.filter(pa.array(~on_time))
            rows, times, starts = rows.filter(pa.array(on_time)), times[on_time], starts[on_time]
        self.windowed.refuse_unbounded(times[self._windows.unbounded(times, starts, self.emission.lateness_us)])
        return (self._fold(rows, starts, tables) if rows.num_rows else None), late

    def _fold(self, rows: pa.Table, starts: np.ndarray, tables: StateTables) -> pa.Table:
        keys = key_columns(rows, self.routing_key)
        keys = keys.append_column(self.state_schema.field(WINDOW_START), pa.array(starts, UTC_MICROSECONDS))
        aggregates = self.windowed.aggregates
        rows = aggregates.flagged(keys, rows, tables, self._windows.ends(starts) + self.emission.lateness_us)
        windows, changed = aggregates.fold(keys, rows, tables[ONLY_TABLE])
        ends = self._windows.ends(microseconds(changed, WINDOW_START))
        changed = changed.append_column(TIMER_COLUMN, pa.array(ends))
        changed = changed.append_column(EXPIRES_COLUMN, pa.array(ends + self.emission.lateness_us))
        windows.put(changed)
        return changed


class WindowStates(Protocol):
    """The state rows of an operator that has one of each window."""

    @property
    def windowed(self) -> WindowedRows: ...
    @property
    def emission(self) -> Emission: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def state_schema(self) -> pa.Schema: ...


class TimedWindows(WindowStates, Protocol):
    """An operator with independent windows: tumbling windows and sessions."""

    def ingest(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[pa.Table | None, pa.Table]:
        """Ingest rows. Return the changed state rows, if any, and the late rows."""


class WindowRun:
    """One subtask's epoch of an operator with one state row per window, whose timer is its end."""

    def __init__(self, operator: TimedWindows, tables: StateTables, fired_us: int | None) -> None:
        self._operator = operator
        self._tables, self._state = tables, tables[ONLY_TABLE]
        self._fired_us = fired_us
        self._again = ChangedKeys(operator.key)

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest on-time rows. Windows are emitted when they fire. Raises OperatorFailed."""
        changed, late = self._operator.ingest(rows, lateness_us, self._tables)
        if changed is not None and self._operator.emission.early:
            self._again.add(changed)
        elif changed is not None and self._fired_us is not None:
            self._again.add(changed.filter(pc.field(TIMER_COLUMN) <= self._fired_us))
        yield OperatorOutput(self._operator.windowed.output_schema.empty_table(), late)

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit the windows that end by `firing_us`, by window and key."""
        return self._operator.windowed.results(self._fire(firing_us))

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit the windows that end by `firing_us`, and changed windows that are emitted again."""
        fired = self._fire(firing_us)
        again = self._again.current(self._state)
        if again is not None:
            fired = pa.concat_tables([fired, again.select(fired.column_names)])
        return self._operator.windowed.results(fired)

    def _fire(self, firing_us: int | None) -> pa.Table:
        """State rows of the windows that `firing_us` reaches and no earlier firing did."""
        before_us = self._fired_us
        if not is_later(firing_us, before_us):
            return self._operator.state_schema.empty_table()
        self._fired_us = firing_us
        if self._operator.emission.early:  # otherwise a window to emit again had already fired when its rows arrived
            changed, self._again = self._again.current(self._state), ChangedKeys(self._operator.key)
            if changed is not None:
                self._again.add(exclude_fired(changed, before_us, firing_us))
        return due_since_firing(self._state, TIMER_COLUMN, before_us, firing_us)
