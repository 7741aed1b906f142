"""Window bounds lie a fixed length apart, or whole days, weeks or months of a time zone.

A local day has 23, 24 or 25 hours, so windows of days are found by the calendar: each begins at a moment of a local
clock. Where the clock skips that moment, it is reckoned as if the clock had not been set yet: midnight, where that is
what is skipped, is the moment of the change. A moment that the clock shows twice is the first of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import numpy as np

from milepost.jobspec.values.times import EPOCH, Calendar, in_us, zone_of
from milepost.operators.contract import Bools, Ints
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, END_OF_TIME_US

_DAY_US = 86_400_000_000
_DAY_ONE = date(1970, 1, 1).toordinal()
_FIRST_US, _LAST_US = ((date(year, 1, 1).toordinal() - _DAY_ONE) * _DAY_US for year in (300, 9_700))
"""Times that the calendar has, with room for windows before and behind."""
_ROOM_US = 3 * 366 * _DAY_US
"""More than a window is long."""


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of one length, from `offset_us` after a multiple of it."""

    size_us: int
    offset_us: int = 0

    def starts(self, times: Ints) -> Ints:
        """Return where the window of each time starts; at the beginning of time where it would be before that."""
        within = self._within(times)
        return np.where(times < BEGINNING_OF_TIME_US + within, BEGINNING_OF_TIME_US, times - within)

    def ends(self, starts: Ints) -> Ints:
        """Return where windows end that start there."""
        return starts + self.size_us

    def ends_after(self, starts: Ints, time_us: int) -> Bools:
        """Return which windows end after a time."""
        return starts > time_us - self.size_us

    def unbounded(self, times: Ints, starts: Ints, lateness_us: int) -> Bools:
        """Return which windows start or end, lateness included, where no timestamp is."""
        return (starts > END_OF_TIME_US - self.size_us - lateness_us) | (self._within(starts) != 0)

    def _within(self, times: Ints) -> Ints:
        within = np.mod(times, self.size_us)
        return np.mod(within - self.offset_us, self.size_us) if self.offset_us else within


@dataclass(frozen=True, slots=True)
class CalendarWindows:
    """Windows of whole days, weeks or months, from `offset` after midnight, Monday or the first of a month.

    Attributes:
        zone: the compiled rules of the time zone.
    """

    calendar: Calendar
    offset: timedelta
    zone: bytes

    def starts(self, times: Ints) -> Ints:
        """Return where the window of each time starts; of times that no calendar has that of the nearest one."""
        return self._bounds(times)[0]

    def ends(self, starts: Ints) -> Ints:
        """Return where windows end that start there."""
        return self._bounds(starts)[1]

    def ends_after(self, starts: Ints, time_us: int) -> Bools:
        """Return which windows end after a time."""
        return self.ends(starts) > time_us

    def unbounded(self, times: Ints, starts: Ints, lateness_us: int) -> Bools:
        """Return which times no calendar has."""
        return (times < _FIRST_US) | (times > _LAST_US)

    def _bounds(self, times: Ints) -> tuple[Ints, Ints]:
        _, edges, at = _periods(self, np.clip(times, _FIRST_US, _LAST_US))
        return edges[at], edges[at + 1]


@dataclass(frozen=True, slots=True)
class FixedSlides:
    """Panes of one length, from `offset_us` after a multiple of it; they, and where they begin, are numbered.

    Attributes:
        panes: of a window; the one that ends where a pane begins has that pane's number.
    """

    slide_us: int
    panes: int
    offset_us: int

    @property
    def rings_us(self) -> int:
        """A length of which from any start of a pane to another it is a multiple."""
        return self.slide_us

    def within(self, times: Ints, lateness_us: int) -> Ints:
        """Return the times, those whose windows begin or end, lateness included, where no timestamp is, moved."""
        room_us = (self.panes + 1) * self.slide_us
        return np.clip(times, BEGINNING_OF_TIME_US + room_us, END_OF_TIME_US - room_us - lateness_us)

    def of(self, times: Ints) -> Ints:
        """Return the number of the pane of each time."""
        return (times - self.offset_us) // self.slide_us

    def begins(self, numbers: Ints) -> Ints:
        """Return where panes begin."""
        return numbers * self.slide_us + self.offset_us

    def reached(self, time_us: int) -> int:
        """Return the last pane that has begun at a time."""
        return (time_us - self.offset_us) // self.slide_us


@dataclass(frozen=True, slots=True)
class CalendarSlides:
    """Panes of whole days, weeks or months, as `CalendarWindows`; numbered as `FixedSlides` are."""

    calendar: Calendar
    panes: int
    offset: timedelta
    zone: bytes
    rings_us = 1_000_000

    def within(self, times: Ints, lateness_us: int) -> Ints:
        """Return the times, those that no calendar has moved to the nearest one."""
        return np.clip(times, _FIRST_US, _LAST_US)

    def of(self, times: Ints) -> Ints:
        """Return the number of the pane of each time."""
        periods, _, at = _periods(self, np.clip(times, _FIRST_US - _ROOM_US, _LAST_US + _ROOM_US))
        return periods[at]

    def begins(self, numbers: Ints) -> Ints:
        """Return where panes begin."""
        distinct, each = np.unique(numbers, return_inverse=True)
        edges = [_begins_us(self.calendar, number, self.offset, self.zone) for number in distinct.tolist()]
        return np.asarray(edges, dtype=np.int64)[each]

    def reached(self, time_us: int) -> int:
        """Return the last pane that has begun at a time."""
        return int(self.of(np.array([max(time_us, BEGINNING_OF_TIME_US)]))[0])


def _periods(of: CalendarWindows | CalendarSlides, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the periods around times, where each begins, and of each time the place of its own among them."""
    days = np.unique((times - in_us(of.offset)) // _DAY_US) + _DAY_ONE
    near = {of.calendar.period(date.fromordinal(day + by)) for day in days.tolist() for by in (-2, 0, 2)}
    periods = sorted({period + by for period in near for by in (-1, 0, 1)})
    edges = np.asarray([_begins_us(of.calendar, period, of.offset, of.zone) for period in periods], dtype=np.int64)
    return np.asarray(periods, dtype=np.int64), edges, np.searchsorted(edges, times, side="right") - 1


@lru_cache(maxsize=100_000)
def _begins_us(calendar: Calendar, period: int, offset: timedelta, zone: bytes) -> int:
    """Return when a period begins, in microseconds since 1970."""
    local = datetime.combine(calendar.first_day(period), datetime.min.time()) + offset
    since = local.replace(tzinfo=zone_of(zone)).astimezone(UTC) - EPOCH
    return in_us(since)
