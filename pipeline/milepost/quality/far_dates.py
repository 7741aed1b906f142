"""Represent dates outside the years 1 to 9999, which Python lacks, for the gate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import total_ordering
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.times import iso_text, python_values, scalar_text

_FIRST, _LAST = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


@total_ordering
@dataclass(frozen=True, slots=True)
class FarDate:
    """A date before or after every Python date, which can be compared with those.

    Attributes:
        days: days since 1970-01-01.

    >>> date(2024, 1, 1) < FarDate(3_000_000), FarDate(3_000_000) < date(2024, 1, 1), str(FarDate(3_000_000))
    (True, False, '10183-09-21')
    """

    days: int

    def __lt__(self, other: object) -> bool:
        if isinstance(other, FarDate):
            return self.days < other.days
        return self.days < 0 if isinstance(other, date) else NotImplemented

    def __str__(self) -> str:
        return iso_text(self.days, "D")


def far_values(column: pa.ChunkedArray) -> list[Any] | None:
    """Return a column's values if it has a date outside Python's years, else None."""
    return python_values(column, _far) if _has_far_date(column) else None


def _has_far_date(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        try:
            column.to_pandas()
        except ValueError:
            return True
        return False
    if not pa.types.is_date(column.type):
        return False
    days = pc.min_max(column.cast(pa.date32()).cast(pa.int32())).as_py()
    return days["min"] is not None and not _FIRST <= days["min"] <= days["max"] <= _LAST


def _far(item: pa.Scalar) -> FarDate | str:
    return FarDate(item.cast(pa.date32()).value) if pa.types.is_date(item.type) else scalar_text(item)
