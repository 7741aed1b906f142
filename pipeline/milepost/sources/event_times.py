"""Track the newest event time of a source subtask, and rows too far in the future."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.sources.contract import PARTITION, SourceObject

if TYPE_CHECKING:
    import pyarrow as pa

MAX_NAMED_OBJECTS = 5
"""Limit on the objects that are named. All rows ahead are counted."""

_INT64 = 2**63
_NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """Rows of one object with event times too far ahead of the trigger that planned it.

    Attributes:
        newest_us: the largest event time among them.
    """

    key: str
    rows: int
    newest_us: int


def merge_rows_ahead(of_subtasks: Iterable[RowsAhead]) -> tuple[RowsAhead, ...]:
    """Merge the `RowsAhead` of all subtasks per object. Return the first `MAX_NAMED_OBJECTS` objects."""
    merged: dict[str, RowsAhead] = {}
    for part in of_subtasks:
        previous = merged.get(part.key, RowsAhead(part.key, 0, part.newest_us))
        merged[part.key] = RowsAhead(part.key, previous.rows + part.rows, max(previous.newest_us, part.newest_us))
    return tuple(merged.values())[:MAX_NAMED_OBJECTS]


class EventTimeTracker:
    """Tracks the event times of one subtask's batches, in order.

    A row more than `ahead_us` ahead of its object's trigger is counted in `ahead_rows` and never raises `newest_us`.
    Otherwise a single wrong date would make all later rows late, permanently. The time of the trigger is recorded with
    the object, so a replay, another parallelism or another attempt computes the same result.

    Attributes:
        newest_us: largest event time that is not too far ahead; None: there was none.
        partitions: the same per partition, for rows with the column `PARTITION`.
        ahead_rows: number of rows too far ahead.
        furthest_us: largest event time of those rows.
        ahead: the first objects with such rows.

    Args:
        column: event-time column; None: nothing is tracked.
        ahead_us: limit in microseconds; None: no row is too far ahead.
    """

    def __init__(self, column: str | None, ahead_us: int | None) -> None:
        self.newest_us: int | None = None
        self.partitions: dict[str, int] = {}
        self.ahead_rows = 0
        self.furthest_us: int | None = None
        self.ahead: list[RowsAhead] = []
        self._column, self._ahead_us = column, ahead_us

    def add(self, obj: SourceObject, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Track one batch of an object. Returns its rows without their partitions."""
        partitions = None
        if PARTITION in batch.schema.names:
            partitions, batch = batch.column(PARTITION), batch.drop_columns([PARTITION])
        if self._column is None or batch.num_rows == 0:
            return batch
        import pyarrow.compute as pc  # imported late: reading checkpoint metadata needs `RowsAhead` only

        column = batch.column(self._column)
        ns_per_unit = _NS_PER_UNIT[column.type.unit]
        times = column.cast("int64")
        newest = pc.max(times).as_py()
        limit_us = None
        if self._ahead_us is not None and obj.planned_ms is not None:
            limit_us = obj.planned_ms * 1000 + self._ahead_us
        if limit_us is not None and _microseconds(newest, ns_per_unit) > limit_us:
            # The limit, rounded down to the unit of the column. For nanoseconds: the last one in its microsecond.
            # A limit of 1_500_000 us is 1 in seconds, 1_500 in ms, 1_500_000 in us and 1_500_000_999 in ns.
            limit = min((limit_us * 1000 + 999) // ns_per_unit, _INT64 - 1)
            self._note(obj.key, pc.sum(pc.greater(times, limit)).as_py(), _microseconds(newest, ns_per_unit))
            counted = pc.less_equal(times, limit)
            times = times.filter(counted)
            partitions = None if partitions is None else partitions.filter(counted)
            newest = pc.max(times).as_py()
        if newest is not None:
            self.newest_us = _latest(self.newest_us, _microseconds(newest, ns_per_unit))
        if partitions is not None:
            for partition, in_partition in _newest_of_each(partitions, times):
                newest_us = _microseconds(in_partition, ns_per_unit)
                self.partitions[partition] = _latest(self.partitions.get(partition), newest_us)
        return batch

    def _note(self, key: str, rows: int, newest_us: int) -> None:
        self.ahead_rows += rows
        self.furthest_us = _latest(self.furthest_us, newest_us)
        if self.ahead and self.ahead[-1].key == key:
            last = self.ahead[-1]
            self.ahead[-1] = RowsAhead(key, last.rows + rows, max(last.newest_us, newest_us))
        elif len(self.ahead) < MAX_NAMED_OBJECTS:
            self.ahead.append(RowsAhead(key, rows, newest_us))


def _newest_of_each(partitions: pa.Array, times: pa.Array) -> Iterator[tuple[str, int]]:
    """Yield each partition with its largest time. Partitions a, a, b with times 1, 2, 1 give (a, 2) and (b, 1)."""
    import pyarrow as pa

    grouped = pa.table({"partition": partitions, "time": times}).group_by("partition").aggregate([("time", "max")])
    yield from zip(grouped["partition"].to_pylist(), grouped["time_max"].to_pylist(), strict=True)


def _latest(before: int | None, now: int) -> int:
    return now if before is None else max(before, now)


def _microseconds(value: int, ns_per_unit: int) -> int:
    """Convert a time to microseconds, rounded down and clamped to the range of event times."""
    return min(max(value * ns_per_unit // 1000, -_INT64), _INT64 - 2)  # 2**63 - 1 is END_OF_TIME_US
