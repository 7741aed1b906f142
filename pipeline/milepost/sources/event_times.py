"""Event times of a source subtask: the newest that counts, and the rows too far ahead to count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.sources.contract import SourceObject

if TYPE_CHECKING:
    import pyarrow as pa

MAX_NAMED_OBJECTS = 5
"""So many objects with rows ahead are named; all rows are counted."""

_INT64 = 2**63
_NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """Rows of one object whose event time is too far ahead of the trigger that planned it.

    Attributes:
        newest_us: the furthest of them.
    """

    key: str
    rows: int
    newest_us: int


def merge_rows_ahead(of_subtasks: Iterable[RowsAhead]) -> tuple[RowsAhead, ...]:
    """Return the first objects with rows ahead, of those of a source's subtasks in order; parts of one are together."""
    found: dict[str, RowsAhead] = {}
    for one in of_subtasks:
        known = found.get(one.key, RowsAhead(one.key, 0, one.newest_us))
        found[one.key] = RowsAhead(one.key, known.rows + one.rows, max(known.newest_us, one.newest_us))
    return tuple(found.values())[:MAX_NAMED_OBJECTS]


class EventTimeTracker:
    """Takes the event times of one subtask's batches, in order.

    A row that is more than `ahead_us` ahead of its object's trigger counts for `ahead`, and never for `newest_us`: one
    wrong date would make all that follows late, for ever. What it is compared with is recorded with the object, so a
    replay, another parallelism and another try come to the same.

    Attributes:
        newest_us: of the rows that count; None: none did. ahead_rows: how many do not. furthest_us: of those.
        ahead: the first objects that have such rows.

    Args:
        column: event-time column; None: nothing is looked at. ahead_us: None: every row counts.
    """

    def __init__(self, column: str | None, ahead_us: int | None) -> None:
        self.newest_us: int | None = None
        self.ahead_rows = 0
        self.furthest_us: int | None = None
        self.ahead: list[RowsAhead] = []
        self._column, self._ahead_us = column, ahead_us

    def add(self, obj: SourceObject, batch: pa.RecordBatch) -> None:
        """Take one batch of an object in."""
        if self._column is None or batch.num_rows == 0:
            return
        import pyarrow.compute as pc  # not by who reads metadata, of which `RowsAhead` is a part

        column = batch.column(self._column)
        ns_per_unit = _NS_PER_UNIT[column.type.unit]
        times = column.cast("int64")
        newest = pc.max(times).as_py()
        limit_us = None
        if self._ahead_us is not None and obj.planned_ms is not None:
            limit_us = obj.planned_ms * 1000 + self._ahead_us
        if limit_us is not None and _microseconds(newest, ns_per_unit) > limit_us:
            # The largest whole unit that is not past the limit; of nanoseconds, the last one of its microsecond.
            limit = min((limit_us * 1000 + 999) // ns_per_unit, _INT64 - 1)
            self._note(obj.key, pc.sum(pc.greater(times, limit)).as_py(), _microseconds(newest, ns_per_unit))
            newest = pc.max(times.filter(pc.less_equal(times, limit))).as_py()
        if newest is not None:
            newest_us = _microseconds(newest, ns_per_unit)
            self.newest_us = newest_us if self.newest_us is None else max(self.newest_us, newest_us)

    def _note(self, key: str, rows: int, newest_us: int) -> None:
        self.ahead_rows += rows
        self.furthest_us = newest_us if self.furthest_us is None else max(self.furthest_us, newest_us)
        if self.ahead and self.ahead[-1].key == key:
            known = self.ahead[-1]
            self.ahead[-1] = RowsAhead(key, known.rows + rows, max(known.newest_us, newest_us))
        elif len(self.ahead) < MAX_NAMED_OBJECTS:
            self.ahead.append(RowsAhead(key, rows, newest_us))


def _microseconds(value: int, ns_per_unit: int) -> int:
    """Return a time in microseconds, rounded down; one that no int64 of them can hold becomes the nearest that can."""
    return min(max(value * ns_per_unit // 1000, -_INT64), _INT64 - 2)  # the last one is the end of time
