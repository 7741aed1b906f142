"""The newest event time of what was read: by rows that may count for it, whatever the unit, batches and order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.sources.contract import PARTITION, SourceObject
from milepost.sources.event_times import MAX_NAMED_OBJECTS, EventTimeTracker, RowsAhead, merge_rows_ahead

PLANNED_MS = 1_800_000_000_123
AHEAD_US = 7 * 86_400_000_000
LIMIT_US = PLANNED_MS * 1000 + AHEAD_US
NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
INT64 = 2**63


def planned(key: str = "a.csv", planned_ms: int | None = PLANNED_MS) -> SourceObject:
    return SourceObject(key, "1", 1, 0, planned_ms)


def batch(values: list[int], unit: str = "us", zone: str | None = "UTC") -> pa.RecordBatch:
    return pa.record_batch({"t": pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))})


def times(*batches: tuple[SourceObject, pa.RecordBatch], ahead_us: int | None = AHEAD_US) -> EventTimeTracker:
    found = EventTimeTracker("t", ahead_us)
    for obj, rows in batches:
        found.add(obj, rows)
    return found


@given(
    unit=st.sampled_from(sorted(NS)),
    batches=st.lists(st.lists(st.integers(-INT64, INT64 - 1), max_size=4), max_size=4),
    offsets=st.lists(st.integers(-3, 3), max_size=4),
    ahead_us=st.none() | st.integers(0, 36_500 * 86_400_000_000),
)
@example(unit="ns", batches=[], offsets=[0, 1], ahead_us=AHEAD_US)
def test_the_newest_event_time_ignores_rows_too_far_ahead(
    unit: str, batches: list[list[int]], offsets: list[int], ahead_us: int | None
) -> None:
    """By whole numbers of any size; `offsets` are rows right at the limit, in the column's own unit."""
    edge = (PLANNED_MS * 1000 + (ahead_us or 0)) * 1000 // NS[unit]
    beside = [value for offset in offsets if -INT64 <= (value := edge + offset) < INT64]
    found = times(*((planned(), batch(values, unit)) for values in (*batches, beside)), ahead_us=ahead_us)
    microseconds = [value * NS[unit] // 1000 for values in (*batches, beside) for value in values]
    limit_us = None if ahead_us is None else PLANNED_MS * 1000 + ahead_us
    count = [value for value in microseconds if limit_us is None or value <= limit_us]
    newest = max(count, default=None)
    assert found.newest_us == (None if newest is None else min(max(newest, -INT64), INT64 - 2))
    assert found.ahead_rows == len(microseconds) - len(count)
    assert sum(one.rows for one in found.ahead) == found.ahead_rows


def test_a_row_ahead_is_counted_and_its_object_named() -> None:
    year_9999 = 253_402_300_799_000_000
    rows = batch([LIMIT_US, LIMIT_US + 1, year_9999]), batch([LIMIT_US - 5, year_9999 - 1])
    found = times((planned("a.csv"), batch([5])), (planned("b.csv"), rows[0]), (planned("b.csv"), rows[1]))
    assert (found.newest_us, found.ahead_rows) == (LIMIT_US, 3)
    assert found.ahead == [RowsAhead("b.csv", 3, year_9999)]
    assert found.furthest_us == year_9999


def test_the_newest_event_time_of_each_partition_ignores_rows_too_far_ahead() -> None:
    """Whatever batches and order: the column with the partitions is taken off."""
    found = EventTimeTracker("t", AHEAD_US)
    for partitions, values in ((["p1", "p0", "p1"], [5, 9, 7]), (["p0", "p2"], [8, LIMIT_US + 1])):
        rows = batch(values)
        partitioned = rows.append_column(PARTITION, pa.array(partitions).dictionary_encode())
        assert found.add(planned(), partitioned).equals(rows)
    assert found.partitions == {"p0": 9, "p1": 7}
    assert found.newest_us == 9


def test_rows_without_event_time_have_partitions_taken_off() -> None:
    rows = batch([1])
    assert EventTimeTracker(None, None).add(planned(), rows.append_column(PARTITION, pa.array(["p0"]))).equals(rows)


def test_each_object_is_judged_by_the_trigger_that_planned_it() -> None:
    """A replay of several epochs in one: the same rows count as counted then."""
    rows = batch([LIMIT_US])
    earlier, unknown = planned("a.csv", PLANNED_MS - 1), planned("b.csv", None)
    assert times((earlier, rows)).newest_us is None
    assert times((earlier, rows), (planned("c.csv"), rows)).newest_us == LIMIT_US
    far = batch([LIMIT_US * 2])
    assert times((unknown, far)).newest_us == LIMIT_US * 2, "an epoch of before it was recorded judged nobody"


def test_a_limited_number_of_objects_is_named_and_all_rows_are_counted() -> None:
    found = times(*((planned(f"{n}.csv"), batch([LIMIT_US + 1])) for n in range(MAX_NAMED_OBJECTS + 3)))
    assert [one.key for one in found.ahead] == [f"{n}.csv" for n in range(MAX_NAMED_OBJECTS)]
    assert found.ahead_rows == MAX_NAMED_OBJECTS + 3


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_static_source_and_an_empty_batch_have_no_event_time(zone: str | None) -> None:
    static = EventTimeTracker(None, AHEAD_US)
    static.add(planned(), batch([1], zone=zone))
    assert static.newest_us is None and times((planned(), batch([], zone=zone))).newest_us is None


def test_rows_ahead_of_an_object_that_several_subtasks_read_are_counted_together() -> None:
    read = [RowsAhead("a", 2, 50), RowsAhead("b", 1, 70), RowsAhead("b", 3, 60), RowsAhead("c", 1, 10)]
    assert merge_rows_ahead(read) == (RowsAhead("a", 2, 50), RowsAhead("b", 4, 70), RowsAhead("c", 1, 10))
