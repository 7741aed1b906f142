"""How the values of an output row select the input rows that made it.

Totals per city of `SELECT city, minutes FROM trips WHERE paid`. Going back from the row {city: Bonn, minutes: 42}:

    totals (aggregate by city)    rows of `clean` with city = Bonn, whatever their minutes
    clean (sql)                   rows of `trips` with city = Bonn and the minutes of one of those rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Event times of input rows, from two columns of an output row.

    Attributes:
        time: event time column of the input. start, end: output columns; the end is exclusive.
        within: where only one of them is known, how far from it the rows are at most.
        is_session: whether a window grows with its rows.
        allowed_lateness: a row is not among them if the operator read it when the lateness watermark was as far behind
            the end, or farther.
    """

    time: str
    start: str
    end: str
    within: timedelta
    is_session: bool = False
    allowed_lateness: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class RowTrace:
    """Which rows of one input an output row is made of. An operator may have several per input.

    Attributes:
        position: of the input.
        equal: input column -> output column with an equal value. Other rows of the input never change the output row.
        picked: more such pairs, of the rows that the operator picked among those. The other ones were compared with
            them, and the picked rows alone make the same output row.
        newest_by: columns; of the rows that the operator picked, the greatest by these counts, one per values of
            `equal`. (): all count.
        span: bounds of the rows' event times.
    """

    position: int
    equal: Mapping[str, str]
    picked: Mapping[str, str] = field(default_factory=dict)
    span: TimeSpan | None = None
    newest_by: tuple[str, ...] = ()


def same_names(columns: Iterable[str]) -> dict[str, str]:
    """Return pairs of columns that have the same name in the input and in the output."""
    return {name: name for name in columns}
