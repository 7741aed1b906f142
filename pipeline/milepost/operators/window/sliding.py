"""`kind: window` with `sliding`: overlapping windows of one size, merged from panes of the slide's length.

A pane is the intersection of overlapping windows. State has one row per key and pane, not per window. A window's result
is merged from its panes when it fires. Panes are numbered, because local days have different lengths. A window has the
number of the first pane after it. With size 3 and slide 1:

    window   [0, 3)      [1, 4)      [2, 5)
    number   3           4           5
    panes    0, 1, 2     1, 2, 3     2, 3, 4      pane 2 is in all three windows

A row may arrive when some of its windows are complete and others are not. It counts for the incomplete ones, which end
at `first_end` or later. `first_end` is therefore part of the key of a pane. The rows of a window are a function of the
rows and their stamps, independent of their order and of how far this subtask has fired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall
from milepost.operators.aggregation.distinct_values import VALUE_COLUMN
from milepost.operators.base.edges import WINDOW_START
from milepost.operators.contract import (
    ONLY_TABLE,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    StateTable,
    only_table,
)
from milepost.operators.rows.columns import (
    UTC_MICROSECONDS,
    distinct_columns,
    group_rows,
    key_columns,
    number_keys,
    places_in_groups,
)
from milepost.operators.window.pane_values import PaneValues
from milepost.operators.window.tumbling import StateTables
from milepost.operators.window.window_bounds import CalendarSlides, FixedSlides
from milepost.operators.window.windowed import Emission, WindowedRows, microseconds
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, is_later
from milepost.protocol.records import EXPIRES_COLUMN, TIMER_COLUMN, TIMER_EVERY

PANE_START, FIRST_END = "__pane_start", "__first_end"
"""State columns (timestamps): the start of the pane, and the end of the first window that its rows count for."""

REACHED = "__reached"
"""For a changed pane, the number of the last window that had fired before the change."""

PAIRS_AT_ONCE = 1_000_000
"""Approximate limit of (pane, window) pairs merged in one step. A step has at least one window of each key."""


class SlidingWindowByKey:
    """Aggregates over the rows of a key in each of the windows that start every `slide`.

    A row is late if the lateness watermark has reached the end of the row's last window plus the allowed lateness. A
    window is emitted when the firing watermark reaches its end. With an allowed lateness it is emitted again
    in each epoch that adds rows to it.
    """

    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        slides: FixedSlides | CalendarSlides,
        emission: Emission,
        calls: Mapping[str, AggregateCall],
        input_: OperatorInput,
    ) -> None:
        self.windowed = windowed = WindowedRows(uid, key, calls, input_)
        self.slides = slides
        self.emission, self.lateness_us = emission, emission.lateness_us
        self.uid = uid
        self.routing_key = windowed.key
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        self.key = (*windowed.state_key, PANE_START, FIRST_END)
        self.output_kind = OutputKind.UPDATES if emission.updates else OutputKind.APPEND
        self.output_key = emission.output_key(key)
        self.output_schema = windowed.output_schema
        bounds = [pa.field(name, UTC_MICROSECONDS) for name in (PANE_START, FIRST_END)]
        timer = pa.field(TIMER_COLUMN, pa.int64(), metadata={TIMER_EVERY: str(slides.rings_us)})
        expires = pa.field(EXPIRES_COLUMN, pa.int64())
        fields = [*windowed.key_fields, *bounds, *windowed.aggregates.state_fields, timer, expires]
        self.state_schema = distinct_columns(uid, fields)
        self.tables: Mapping[str, StateTable] = {
            **only_table(self.key, self.routing_key, self.state_schema),
            **windowed.aggregates.value_tables([*windowed.key_fields, *bounds], key, expire=True),
        }

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> SlidingRun:
        """Start one subtask's epoch."""
        return SlidingRun(self, tables, previous_firing_us)

    def ingest(self, rows: pa.Table, lateness_us: int | None, tables: StateTables) -> tuple[pa.Table | None, pa.Table]:
        """Fold on-time rows into their panes. Return the changed panes, if any, and the late rows."""
        late = self.windowed.input_schema.empty_table()
        if not rows.num_rows:
            return None, late
        rows = self.windowed.plain(rows)
        given = self.windowed.event_time.of(rows)
        times = self.slides.within(given, self.lateness_us)
        panes = self.slides.of(times)
        first_ends = panes + 1
        if lateness_us is not None:
            first_ends = np.maximum(first_ends, self.slides.reached(lateness_us - self.lateness_us) + 1)
        on_time = first_ends <= panes + self.slides.panes
        self.windowed.refuse_unbounded(given[on_time & (times != given)])
        if not on_time.all():
            late = rows.filter(pa.array(~on_time))
            rows, panes, first_ends = rows.filter(pa.array(on_time)), panes[on_time], first_ends[on_time]
        return (self._fold(rows, panes, first_ends, tables) if rows.num_rows else None), late

    def until(self, panes: Panes, first: Ints, firing_us: int) -> WindowRange:
        """Return the windows of panes from `first` up to the last one that a firing watermark has reached."""
        return WindowRange(first, np.minimum(self.last_ends(panes), self.slides.reached(firing_us)))

    def first_ends(self, panes: Panes) -> Ints:
        """Return the number of the first window that each pane's rows count for."""
        return self.ending(microseconds(panes.rows, FIRST_END))

    def last_ends(self, panes: Panes) -> Ints:
        """Return the number of the last window that contains each pane."""
        return self._last_end(panes.rows)

    def ending(self, times: Ints) -> Ints:
        """Return the number of the first window that ends at or after each time."""
        return self.slides.of(times - 1) + 1

    def values_of(self, keys: pa.Table, tables: StateTables) -> Mapping[str, PaneValues]:
        """Return the windows that contain the distinct values of keys, by the column that counts them."""
        found = {}
        for one in self.windowed.aggregates.distinct:
            values = tables[one.name].lookup_all(keys)
            rows = values.take([VALUE_COLUMN, PANE_START, FIRST_END])
            first, last = self.ending(microseconds(rows, FIRST_END)), self._last_end(rows)
            found[one.counted] = PaneValues.of(values.owners, rows.column(VALUE_COLUMN), first, last + 1)
        return found

    def _last_end(self, rows: pa.Table) -> Ints:
        return self.slides.of(microseconds(rows, PANE_START)) + self.slides.panes

    def _fold(self, rows: pa.Table, panes: Ints, first_ends: Ints, tables: StateTables) -> pa.Table:
        keys = key_columns(rows, self.routing_key)
        for name, numbers in ((PANE_START, panes), (FIRST_END, first_ends)):
            times = pa.array(self.slides.begins(numbers), UTC_MICROSECONDS)
            keys = keys.append_column(self.state_schema.field(name), times)
        aggregates = self.windowed.aggregates
        if aggregates.distinct:
            rows = aggregates.flagged(keys, rows, tables, self._expires(panes + self.slides.panes))
        occurring, changed = aggregates.fold(keys, rows, tables[ONLY_TABLE])
        changed = changed.append_column(TIMER_COLUMN, changed.column(FIRST_END).cast(pa.int64()))
        changed = changed.append_column(EXPIRES_COLUMN, pa.array(self._expires(self._last_end(changed))))
        occurring.put(changed)
        return changed

    def _expires(self, last_ends: Ints) -> Ints:
        return self.slides.begins(last_ends) + self.lateness_us

    def merged(self, panes: Panes, wanted: WindowRange, *, only: Ends | None = None) -> pa.Table:
        """Merge panes into windows. Return state rows of windows, with the end of each as its timer.

        Args:
            only: restrict the result to these windows. None: all.
        """
        parts = [self._merged(panes, part, only) for part in self._parts(wanted)]
        return pa.concat_tables(parts) if parts else self.window_schema.empty_table()

    def _parts(self, wanted: WindowRange) -> Iterator[WindowRange]:
        """Divide windows by their ends until each part has at most PAIRS_AT_ONCE pairs, or a single end."""
        pairs, (low, high) = int(wanted.counts.sum()), wanted.ends
        if pairs > PAIRS_AT_ONCE and low < high:
            middle = low + (high - low) // 2
            yield from self._parts(replace(wanted, last=np.minimum(wanted.last, middle)))
            yield from self._parts(replace(wanted, first=np.maximum(wanted.first, middle + 1)))
        elif pairs:
            yield wanted

    def _merged(self, panes: Panes, wanted: WindowRange, only: Ends | None) -> pa.Table:
        counts = wanted.counts
        pane = np.repeat(np.arange(len(counts)), counts)
        ends = wanted.first[pane] + places_in_groups(counts)
        moments = np.unique(ends)
        windows = panes.owners[pane] * len(moments) + np.searchsorted(moments, ends)
        if only is not None:
            known = np.isin(only.ends, moments)
            allowed = only.owners[known] * len(moments) + np.searchsorted(moments, only.ends[known])
            chosen = np.isin(windows, allowed)
            pane, ends, windows = pane[chosen], ends[chosen], windows[chosen]
        _, first, codes = np.unique(windows, return_index=True, return_inverse=True)
        partials = panes.rows.select(pa.schema(self.windowed.aggregates.state_fields).names).take(pa.array(pane))
        accumulated = self.windowed.aggregates.merged(partials, codes, len(first))
        for name, values in panes.values.items():
            at = accumulated.column_names.index(name)
            counts = pa.array(values.counts(panes.owners[pane[first]], ends[first]))
            accumulated = accumulated.set_column(at, name, counts)
        keys = panes.rows.select(list(self.windowed.state_key)).take(pa.array(pane[first]))
        starts, ends = (self.slides.begins(ends[first] - by) for by in (self.slides.panes, 0))
        columns = [*keys.columns, pa.array(starts, UTC_MICROSECONDS), *accumulated.columns, pa.array(ends)]
        return pa.table(columns, schema=self.window_schema)

    @property
    def window_schema(self) -> pa.Schema:
        """Schema of merged windows: key, window_start, accumulators, and the end as a timer."""
        start, end = pa.field(WINDOW_START, UTC_MICROSECONDS), pa.field(TIMER_COLUMN, pa.int64())
        return pa.schema([*self.windowed.key_fields, start, *self.windowed.aggregates.state_fields, end])


@dataclass(frozen=True, slots=True)
class Ends:
    """Windows, each identified by the index of its key and its number."""

    owners: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Panes:
    """State rows of panes, in merge order.

    Attributes:
        owners: index of each row's key.
        values: distinct values of the keys, by the column that counts them in a window.
    """

    rows: pa.Table
    owners: Ints
    values: Mapping[str, PaneValues]

    @classmethod
    def of(cls, rows: pa.Table, owners: Ints, values: Mapping[str, PaneValues]) -> Panes:
        order = np.lexsort((microseconds(rows, FIRST_END), microseconds(rows, PANE_START)))
        return cls(rows.take(pa.array(order)), owners[order], values)


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Range of windows per pane: numbers of the first and the last window. The range is empty if last < first."""

    first: Ints
    last: Ints

    @property
    def counts(self) -> Ints:
        """Number of windows of each pane."""
        return np.maximum(self.last - self.first + 1, 0)

    def of(self, owners: Ints) -> Ends:
        """Return the windows as a flat list. owners: index of each pane's key."""
        counts = self.counts
        return Ends(np.repeat(owners, counts), np.repeat(self.first, counts) + places_in_groups(counts))

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest window number of all ranges."""
        has_any = self.last >= self.first
        return (int(self.first[has_any].min()), int(self.last[has_any].max())) if has_any.any() else (0, 0)


class SlidingRun:
    """One subtask's epoch of a `SlidingWindowByKey`."""

    def __init__(self, operator: SlidingWindowByKey, tables: StateTables, fired_us: int | None) -> None:
        self._operator = operator
        self._tables, self._state = tables, tables[ONLY_TABLE]
        self._fired_us = BEGINNING_OF_TIME_US if fired_us is None else fired_us
        self._again: list[pa.Table] = []

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Add on-time rows to panes. Windows are emitted when they fire. Raises OperatorFailed."""
        operator = self._operator
        changed, late = operator.ingest(rows, lateness_us, self._tables)
        if changed is not None:
            if not operator.emission.early:
                changed = changed.filter(pc.field(TIMER_COLUMN) <= self._fired_us)
            if changed.num_rows:
                reached = pa.array(np.full(changed.num_rows, operator.slides.reached(self._fired_us)))
                self._again.append(changed.select(list(operator.key)).append_column(REACHED, reached))
        yield OperatorOutput(operator.output_schema.empty_table(), late)

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit the windows that end at or before `firing_us`."""
        return self._operator.windowed.results(self._fire(firing_us))

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit the windows that end at or before `firing_us`, and changed windows that are emitted again or early."""
        fired = self._fire(firing_us)
        return self._operator.windowed.results(pa.concat_tables([self._changed(), fired]))

    def _fire(self, firing_us: int | None) -> pa.Table:
        """Return the windows that `firing_us` reaches and no earlier firing reached."""
        before_us, operator = self._fired_us, self._operator
        if not is_later(firing_us, before_us):
            return operator.window_schema.empty_table()
        self._fired_us = firing_us
        rows = self._state.due(firing_us).filter(pc.field(TIMER_COLUMN) <= firing_us)
        panes = self._panes(rows)
        first = operator.ending(panes.rows.column(TIMER_COLUMN).to_numpy())
        first = np.maximum(first, operator.slides.reached(before_us) + 1)
        wanted = operator.until(panes, first, firing_us)
        # With allowed lateness, a window that another subtask has fired may be due for only some of its panes.
        return self._whole(panes, wanted) if operator.lateness_us else operator.merged(panes, wanted)

    def _panes(self, rows: pa.Table) -> Panes:
        operator = self._operator
        owners, keys = number_keys(rows.select(list(operator.windowed.state_key)))
        if not operator.windowed.aggregates.distinct:
            return Panes.of(rows, owners, {})
        return Panes.of(rows, owners, operator.values_of(keys, self._tables))

    def _changed(self) -> pa.Table:
        """Return fired windows that have received rows, and with early emission changed windows that have not fired."""
        operator = self._operator
        if not self._again:
            return operator.window_schema.empty_table()
        rows = pa.concat_tables(self._again)
        panes = Panes.of(rows, group_rows(key_columns(rows, operator.routing_key))[0], {})
        first, last = operator.first_ends(panes), operator.last_ends(panes)
        wanted = [WindowRange(first, np.minimum(last, panes.rows.column(REACHED).to_numpy()))]
        if operator.emission.early:
            wanted.append(WindowRange(np.maximum(first, operator.slides.reached(self._fired_us) + 1), last))
        return self._whole(panes, *wanted)

    def _whole(self, panes: Panes, *wanted: WindowRange) -> pa.Table:
        """Return windows of some panes, each merged from all of its panes in state."""
        operator = self._operator
        if not any(range_.counts.any() for range_ in wanted):
            return operator.window_schema.empty_table()
        owners, keys = number_keys(key_columns(panes.rows, operator.routing_key))
        windows = [range_.of(owners) for range_ in wanted]
        only = Ends(np.concatenate([each.owners for each in windows]), np.concatenate([each.ends for each in windows]))
        found, values = self._state.lookup_all(keys), operator.values_of(keys, self._tables)
        every = Panes.of(found.take(operator.state_schema.names), found.owners, values)
        until = WindowRange(operator.first_ends(every), np.minimum(operator.last_ends(every), only.ends.max()))
        return operator.merged(every, until, only=only)
