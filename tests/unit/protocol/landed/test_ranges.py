"""Which records of a log one epoch reads (L6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.protocol.landed.appends import first_record, next_record
from milepost.protocol.landed.files import LandedObject
from milepost.protocol.landed.ranges import RecordLimits, joined_ranges, range_of, within_limits
from milepost.protocol.landed.records import StoredRecord, decode_record, encode_record


def stored_log(*rows: int) -> tuple[StoredRecord, ...]:
    """A log whose records after the first have so many rows, and ten bytes for each."""
    records = [_stored(first_record("log", {"job": "life"}, 0, 0))]
    for number, count in enumerate(rows, 2):
        objects = [LandedObject(f"{number}/a/0.parquet", 10 * count, "0" * 64, count)] if count else []
        record = next_record("clicks", records[-1], f"write {number}", number, objects, number * 1_000_000)
        assert record is not None
        records.append(_stored(record))
    return tuple(records)


def _stored(record) -> StoredRecord:
    return decode_record(encode_record(record), "record")


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (RecordLimits(1000), 4),
        (RecordLimits(3), 3),
        (RecordLimits(1000, max_rows=70), 3),
        (RecordLimits(1000, max_rows=69), 2),
        (RecordLimits(1000, max_bytes=400), 2),
        (RecordLimits(1000, max_bytes=399), 1),
        (RecordLimits(1, max_rows=1), 1),
    ],
)
def test_an_epoch_takes_the_first_records_within_its_limits(limits: RecordLimits, count: int) -> None:
    records = stored_log(40, 0, 30, 50)[1:]
    assert within_limits(records, limits) == records[:count]


def test_a_record_larger_than_the_limits_is_taken_alone() -> None:
    records = stored_log(40, 1)[1:]
    assert within_limits(records, RecordLimits(1000, max_rows=3)) == records[:1]


def test_nothing_is_taken_of_a_log_without_further_records() -> None:
    assert within_limits([], RecordLimits(1000)) == ()
    assert range_of(None, ()) is None


def test_a_range_begins_at_its_position_and_ends_after_its_last_record() -> None:
    records = stored_log(1, 2, 3)
    whole = range_of(None, records)
    assert whole is not None
    assert (whole.first, whole.end.next, whole.end.total_rows, whole.count) == (1, 5, 6, 4)
    rest = range_of(records[1].position, records[2:])
    assert rest is not None
    assert (rest.first, rest.end) == (3, whole.end)


def test_consecutive_ranges_join_to_one() -> None:
    records = stored_log(1, 2, 3)
    first, second = range_of(None, records[:2]), range_of(records[1].position, records[2:])
    assert first is not None and second is not None
    assert joined_ranges([first, second]) == range_of(None, records)
    assert joined_ranges([]) is None


def test_a_range_is_behind_where_its_last_record_is() -> None:
    records = stored_log(1, 2, 3)
    behind = [replace(one, record=replace(one.record, behind=(f"p{one.record.sequence}",))) for one in records]
    first, second = range_of(None, tuple(behind[:2])), range_of(behind[1].position, tuple(behind[2:]))
    assert first is not None and second is not None
    assert (first.behind, second.behind) == (("p2",), ("p4",))
    joined = joined_ranges([first, second])
    assert joined is not None and joined.behind == ("p4",)
