"""Calendar units for windows: days, weeks and months (`7d`, `1w`, `3mo`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

_SPAN = re.compile(r"(\d{1,4})(w|mo)")
MOST_DAYS = 366
_SHORTEST = {"d": 1, "w": 7, "mo": 28}
_DAY_ONE = date(1970, 1, 1).toordinal()
_MONDAY = date(1969, 12, 29).toordinal()


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods of `count` days, weeks or months, aligned to 1970-01-01, or for weeks to the Monday before it.

    Attributes:
        unit: d, w or mo.
    """

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @property
    def shortest(self) -> timedelta:
        """Lower bound of the length of a period, ignoring the hour that a clock change skips."""
        return timedelta(days=self.count * _SHORTEST[self.unit])

    @property
    def longest(self) -> timedelta:
        """Upper bound of the length of a period, ignoring the hour that a clock change adds."""
        return timedelta(days=self.count * (31 if self.unit == "mo" else self._days))

    def period(self, day: date) -> int:
        """Return the number of the period that contains a day. Period 0 contains 1970-01-01.

        >>> [Calendar(1, unit).period(date(1970, 1, 5)) for unit in ("d", "w", "mo")]
        [4, 1, 0]
        """
        if self.unit == "mo":
            return ((day.year - 1970) * 12 + day.month - 1) // self.count
        first = _MONDAY if self.unit == "w" else _DAY_ONE
        return (day.toordinal() - first) // self._days

    def first_day(self, period: int) -> date:
        """Return the first day of a period.

        >>> Calendar(3, "mo").first_day(-1)
        datetime.date(1969, 10, 1)
        """
        if self.unit == "mo":
            years, months = divmod(period * self.count, 12)
            return date(1970 + years, months + 1, 1)
        return date.fromordinal((_MONDAY if self.unit == "w" else _DAY_ONE) + period * self._days)

    @property
    def _days(self) -> int:
        return self.count * (7 if self.unit == "w" else 1)


def parse_calendar(text: object) -> Calendar | None:
    """Parse weeks or months. Return None for any other text. Raises ValueError: zero, or more than a year."""
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    calendar = Calendar(int(match[1]), match[2])
    if not calendar.count:
        raise ValueError("expected a length above 0")
    if calendar.shortest.days > MOST_DAYS:
        raise ValueError(f"expected at most a year, got {text}")
    return calendar
