"""Calendar units: days, weeks that begin on Monday, and months, as a spec writes them (`7d`, `1w`, `3mo`)."""

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
    """So many days, weeks or months on end, counted from 1970-01-01, weeks from the Monday before it.

    Attributes:
        unit: d, w or mo.
    """

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @property
    def shortest(self) -> timedelta:
        """The length that none of them is below, but for an hour that a clock skips."""
        return timedelta(days=self.count * _SHORTEST[self.unit])

    def period(self, day: date) -> int:
        """Return the number of the period that a day is in; the one that 1970 begins with is 0.

        >>> [Calendar(1, unit).period(date(1970, 1, 5)) for unit in ("d", "w", "mo")]
        [4, 1, 0]
        """
        if self.unit == "mo":
            return ((day.year - 1970) * 12 + day.month - 1) // self.count
        first = _MONDAY if self.unit == "w" else _DAY_ONE
        return (day.toordinal() - first) // self._days

    def first_day(self, period: int) -> date:
        """Return the day that a period begins with.

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
    """Return the weeks or months that `text` names; None: it names none. Raises ValueError: 0, or too many of them."""
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    found = Calendar(int(match[1]), match[2])
    if not found.count:
        raise ValueError("expected a length above 0")
    if found.shortest.days > MOST_DAYS:
        raise ValueError(f"expected at most a year, got {text}")
    return found
