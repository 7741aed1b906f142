"""Bounds of windows: a fixed length, or whole days, weeks or months of a time zone.

A local day has 23, 24 or 25 hours, so windows of days follow the calendar: each starts at a time of the local clock. If
the clock skips that time, it is computed as if the clock had not been changed yet. A skipped midnight is therefore the
moment of the change. Of a time that the clock shows twice, the first one counts. In Europe/Berlin:

    day          start (UTC)        hours
    2024-03-31   2024-03-30 23:00   23
    2024-06-01   2024-05-31 22:00   24
    2024-10-27   2024-10-26 22:00   25
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import numpy as np

from milepost.language.times import EPOCH, Calendar, in_us, zone_of
from milepost.operators.contract import Bools, Ints
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, END_OF_TIME_US

_DAY_US = 86_400_000_000
_DAY_ONE = date(1970, 1, 1).toordinal()
_FIRST_US, _LAST_US = ((date(year, 1, 1).toordinal() - _DAY_ONE) * _DAY_US for year in (300, 9_700))
"""Range of times that the calendar supports, with room for windows before and after it."""
_ROOM_US = 3 * 366 * _DAY_US
"""Longer than any window."""


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of one length that start at multiples of it plus `offset_us`."""

    size_us: int
    offset_us: int = 0

    def starts(self, times: Ints) -> Ints:
        """Return the start of each time's window, at least the beginning of time.

        With size 10 and offset 3, the times 2, 3, 12 and 13 have the starts -7, 3, 3 and 13.
        """
        within = self._within(times)
        return np.where(times < BEGINNING_OF_TIME_US + within, BEGINNING_OF_TIME_US, times - within)

    def ends(self, starts: Ints) -> Ints:
        """Return the ends of the windows with these starts."""
        return starts + self.size_us

    def ends_after(self, starts: Ints, time_us: int) -> Bools:
        """Return which windows end after a time."""
        return starts > time_us - self.size_us

    def unbounded(self, times: Ints, starts: Ints, lateness_us: int) -> Bools:
        """Return which windows start, or end plus lateness, outside the range of timestamps."""
        return (starts > END_OF_TIME_US - self.size_us - lateness_us) | (self._within(starts) != 0)

    def _within(self, times: Ints) -> Ints:
        within = np.mod(times, self.size_us)
        return np.mod(within - self.offset_us, self.size_us) if self.offset_us else within


@dataclass(frozen=True, slots=True)
class CalendarWindows:
    """Windows of whole days, weeks or months, which start `offset` after midnight, Monday or the first of a month.

    Attributes:
        zone: the compiled rules of the time zone.
    """

    calendar: Calendar
    offset: timedelta
    zone: bytes

    def starts(self, times: Ints) -> Ints:
        """Return the start of each time's window. Times outside the calendar are clipped to its range."""
        return self._bounds(times)[0]

    def ends(self, starts: Ints) -> Ints:
        """Return the ends of the windows with these starts."""
        return self._bounds(starts)[1]

    def ends_after(self, starts: Ints, time_us: int) -> Bools:
        """Return which windows end after a time."""
        return self.ends(starts) > time_us

    def unbounded(self, times: Ints, starts: Ints, lateness_us: int) -> Bools:
        """Return which times are outside the calendar's range."""
        return (times < _FIRST_US) | (times > _LAST_US)

    def _bounds(self, times: Ints) -> tuple[Ints, Ints]:
        _, edges, at = _periods(self, np.clip(times, _FIRST_US, _LAST_US))
        return edges[at], edges[at + 1]


@dataclass(frozen=True, slots=True)
class FixedSlides:
    """Numbered panes of one length that start at multiples of it plus `offset_us`.

    With a slide of 10, pane 0 is [0, 10) and pane 2 is [20, 30). With 3 panes per window, window 3 is [0, 30).

    Attributes:
        panes: number of panes per window. A window has the number of the pane that starts at its end.
    """

    slide_us: int
    panes: int
    offset_us: int

    @property
    def rings_us(self) -> int:
        """A length that divides the distance between any two pane starts."""
        return self.slide_us

    def within(self, times: Ints, lateness_us: int) -> Ints:
        """Clip times so that their windows start, and end plus lateness, within the range of timestamps."""
        room_us = (self.panes + 1) * self.slide_us
        return np.clip(times, BEGINNING_OF_TIME_US + room_us, END_OF_TIME_US - room_us - lateness_us)

    def of(self, times: Ints) -> Ints:
        """Return the number of the pane of each time."""
        return (times - self.offset_us) // self.slide_us

    def begins(self, numbers: Ints) -> Ints:
        """Return the starts of panes."""
        return numbers * self.slide_us + self.offset_us

    def reached(self, time_us: int) -> int:
        """Return the number of the last pane that starts at or before a time."""
        return (time_us - self.offset_us) // self.slide_us


@dataclass(frozen=True, slots=True)
class CalendarSlides:
    """Panes of whole days, weeks or months, as in `CalendarWindows`, numbered as in `FixedSlides`."""

    calendar: Calendar
    panes: int
    offset: timedelta
    zone: bytes
    rings_us = 1_000_000

    def within(self, times: Ints, lateness_us: int) -> Ints:
        """Clip times to the calendar's range."""
        return np.clip(times, _FIRST_US, _LAST_US)

    def of(self, times: Ints) -> Ints:
        """Return the number of the pane of each time."""
        periods, _, at = _periods(self, np.clip(times, _FIRST_US - _ROOM_US, _LAST_US + _ROOM_US))
        return periods[at]

    def begins(self, numbers: Ints) -> Ints:
        """Return the starts of panes."""
        distinct, each = np.unique(numbers, return_inverse=True)
        edges = [_begins_us(self.calendar, number, self.offset, self.zone) for number in distinct.tolist()]
        return np.asarray(edges, dtype=np.int64)[each]

    def reached(self, time_us: int) -> int:
        """Return the number of the last pane that starts at or before a time."""
        return int(self.of(np.array([max(time_us, BEGINNING_OF_TIME_US)]))[0])


def _periods(of: CalendarWindows | CalendarSlides, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (numbers of the periods around times, their starts, index of each time's period among them)."""
    days = np.unique((times - in_us(of.offset)) // _DAY_US) + _DAY_ONE
    near = {of.calendar.period(date.fromordinal(day + by)) for day in days.tolist() for by in (-2, 0, 2)}
    periods = sorted({period + by for period in near for by in (-1, 0, 1)})
    edges = np.asarray([_begins_us(of.calendar, period, of.offset, of.zone) for period in periods], dtype=np.int64)
    return np.asarray(periods, dtype=np.int64), edges, np.searchsorted(edges, times, side="right") - 1


@lru_cache(maxsize=100_000)
def _begins_us(calendar: Calendar, period: int, offset: timedelta, zone: bytes) -> int:
    """Return the start of a period, in microseconds since the epoch."""
    local = datetime.combine(calendar.first_day(period), datetime.min.time()) + offset
    since = local.replace(tzinfo=zone_of(zone)).astimezone(UTC) - EPOCH
    return in_us(since)
