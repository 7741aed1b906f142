"""Where windows that touch begin and end: of a fixed length, or of whole days, weeks or months of a time zone.

A local day has 23, 24 or 25 hours, so windows of days are found by the calendar: each begins at a moment of a local
clock. Where the clock skips that moment, it is reckoned as if the clock had not been set yet: midnight, where that is
what is skipped, is the moment of the change. A moment that the clock shows twice is the first of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import numpy as np

from milepost.dataflow.operators.contract import Bools, Ints
from milepost.protocol.exchange.watermarks import BEGINNING_OF_TIME_US, END_OF_TIME_US
from milepost.spec.values.calendar import Calendar
from milepost.spec.values.time_zones import zone_of

_DAY_US = 86_400_000_000
_DAY_ONE = date(1970, 1, 1).toordinal()
_FIRST_US, _LAST_US = ((date(year, 1, 1).toordinal() - _DAY_ONE) * _DAY_US for year in (300, 9_700))
"""Times that the calendar has, with room for windows before and behind."""


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
        times = np.clip(times, _FIRST_US, _LAST_US)
        days = np.unique((times - self.offset // timedelta(microseconds=1)) // _DAY_US) + _DAY_ONE
        near = {self.calendar.period(date.fromordinal(day + by)) for day in days.tolist() for by in (-2, 0, 2)}
        periods = sorted({period + by for period in near for by in (-1, 0, 1)})
        edges = np.asarray([_begins_us(self.calendar, period, self.offset, self.zone) for period in periods])
        at = np.searchsorted(edges, times, side="right") - 1
        return edges[at], edges[at + 1]


@lru_cache(maxsize=100_000)
def _begins_us(calendar: Calendar, period: int, offset: timedelta, zone: bytes) -> int:
    """Return when a period begins, in microseconds since 1970."""
    local = datetime.combine(calendar.first_day(period), datetime.min.time()) + offset
    since = local.replace(tzinfo=zone_of(zone)).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)
