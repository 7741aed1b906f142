"""The laws of overlapping windows and of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from milepost.operators.window.spec import WindowOperator
from milepost_testkit.models.data.aggregate_calls import shown
from milepost_testkit.models.data.batch import (
    UNITS,
    Claim,
    Law,
    Place,
    WindowLaw,
    again_claims,
    differing,
    microseconds,
    names,
)


def window_law(spec: WindowOperator) -> Law:
    """Return the law of a window operator by its kind of windows."""
    if spec.window.sliding is not None:
        return SlidingLaw(spec)
    return WindowLaw(spec) if spec.window.session is None else SessionLaw(spec)


def _claims(law: SlidingLaw | SessionLaw, place: Place) -> Iterator[Claim]:
    every = f"{names((*law.spec.key, 'window_start', 'window_end'))}, {shown(law.spec.aggregates, place.columns)}"
    final = not law.spec.updates
    rows = place.appended(every) if final else place.shown(place.graph.nodes[place.uid].key, every)
    yield Claim("windows are the batch aggregate of those that are done", differing(rows, law.batch(place)))
    yield from again_claims(law.spec, place)
    if final:
        early = f'SELECT * FROM "{place.uid}" WHERE epoch_us(window_end) - 1 < __stamp'
        yield Claim("a window's row is on time for its consumers", early)


def _batch(spec: WindowOperator, place: Place, rows: str) -> str:
    """Aggregate rows by `__start` and `__end` of their window: final windows, or all of them with early results."""
    keys = names(("upto", *spec.key))
    done = "true" if spec.emit == "early" else "__end <= watermark_us"
    return (
        f"SELECT {keys}, make_timestamptz(__start) AS window_start, make_timestamptz(__end) AS window_end, "
        f"{place.calls(spec.aggregates)} FROM ({place.with_plain_key(spec.key, rows)}) "
        f"JOIN mark USING (upto) WHERE node = '{place.uid}' AND {done} "
        f"GROUP BY {keys}, __start, __end"
    )


@dataclass(frozen=True)
class SlidingLaw:
    """A row is in each window around it that was not final by its stamp. Without such a window it is late."""

    spec: WindowOperator

    def _end_us(self, place: Place, pane: str) -> str:
        """Return the end of a pane by its number. The row's own pane is number 0."""
        windows = self.spec.window
        offset = microseconds(windows.offset or timedelta(0))
        if windows.calendar is None:
            assert isinstance(windows.step, timedelta)
            slide, time = microseconds(windows.step), f"({place.time_us} - {offset})"
            return f"({place.time_us} - ({time} % {slide} + {slide}) % {slide} + ({pane} + 1)::BIGINT * {slide})"
        assert windows.calendar.count == 1, "panes of several days, weeks or months have a test of their own"
        unit, zone = UNITS[windows.calendar.unit], windows.timezone or "UTC"
        after = f"to_microseconds({offset})"
        first = f"date_trunc('{unit}', (make_timestamptz({place.time_us}) AT TIME ZONE '{zone}') - {after})"
        return f"epoch_us(({first} + to_{unit}s(({pane} + 1)::INTEGER) + {after}) AT TIME ZONE '{zone}')"

    @property
    def _panes(self) -> int:
        assert self.spec.window.sliding is not None
        return self.spec.window.sliding.panes

    def late(self, place: Place) -> str | None:
        return self._done(place, str(self._panes - 1))

    def late_for_some(self, place: Place) -> str:
        """Return the rows that are late for at least one window: the one that ends first."""
        return place.late(self._done(place, "0"))

    def _done(self, place: Place, pane: str) -> str:
        """Return the condition that the window that ends with a pane is final, for a row."""
        return f"{self._end_us(place, pane)} + {microseconds(self.spec.allowed_lateness)} <= __stamp"

    def batch(self, place: Place) -> str:
        panes = self._panes
        each = f"SELECT *, unnest(range({panes})) AS __pane FROM ({place.rows})"
        bounds = (self._end_us(place, "__pane"), self._end_us(place, f"(__pane - {panes})"))
        each = f"SELECT *, {bounds[0]} AS __end, {bounds[1]} AS __start FROM ({each})"
        open_ = f"coalesce(__end + {microseconds(self.spec.allowed_lateness)} > __stamp, true)"
        return _batch(self.spec, place, place.at_each(f"SELECT * FROM ({each}) WHERE {open_}"))

    def claims(self, place: Place) -> Iterator[Claim]:
        return _claims(self, place)


@dataclass(frozen=True)
class SessionLaw:
    """On-time rows of a key in order of time. A row at least `gap` after the previous one begins a session."""

    spec: WindowOperator

    def late(self, place: Place) -> str | None:
        return f"{place.time_us} < __stamp - {microseconds(self.spec.allowed_lateness)}"

    def batch(self, place: Place) -> str:
        assert self.spec.window.session is not None
        gap, by = microseconds(self.spec.window.session.gap), names(("upto", *self.spec.key))
        on_time = place.at_each(f"SELECT *, {place.time_us} AS __time FROM ({place.on_time(self.late(place))})")
        rows = place.with_plain_key(self.spec.key, on_time)
        last = f"lag(__time) OVER (PARTITION BY {by} ORDER BY __time, __order)"
        new = f"SELECT *, CASE WHEN __time - {last} < {gap} THEN 0 ELSE 1 END AS __new FROM ({rows})"
        order = f"PARTITION BY {by} ORDER BY __time, __order ROWS UNBOUNDED PRECEDING"
        numbered = f"SELECT *, sum(__new) OVER ({order}) AS __session FROM ({new})"
        bounds = f"OVER (PARTITION BY {by}, __session)"
        each = f"SELECT *, min(__time) {bounds} AS __start, max(__time) {bounds} + {gap} AS __end FROM ({numbered})"
        return _batch(self.spec, place, each)

    def claims(self, place: Place) -> Iterator[Claim]:
        return _claims(self, place)
