"""What the next record of a log says, and when none is due (L1, L9, L10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import InvalidRequest, SourceReplaced, StateCorrupt
from milepost.protocol.landed.appends import EMPTY_RECORD_MS, first_record, next_record, require_identity
from milepost.protocol.landed.records import (
    LandedObject,
    LogRecord,
    StoredRecord,
    decode_record,
    encode_record,
    require_follows,
)

IDENTITY = {"job": "life 1", "format": "python", "source": "feeds:Clicks"}
OBJECT = LandedObject("00000000000000000002/w2/00000-00000.parquet", 120, "a" * 64, 7)


def stored(record: LogRecord | None) -> StoredRecord:
    assert record is not None
    return decode_record(encode_record(record), "record")


@pytest.fixture
def first() -> StoredRecord:
    return stored(first_record("w1", IDENTITY, {"next": 0}, 1_000))


def test_the_first_record_fixes_the_begin_even_without_rows(first: StoredRecord) -> None:
    record = first.record
    assert (record.log, record.sequence, record.start, record.end, record.rows) == (
        "w1",
        1,
        {"next": 0},
        {"next": 0},
        0,
    )
    assert (first.position.next, first.position.at, first.position.total_rows) == (2, {"next": 0}, 0)


def test_a_record_continues_the_one_before_and_counts_on(first: StoredRecord) -> None:
    second = stored(next_record("clicks", first, "w2", {"next": 7}, [OBJECT], 2_000))
    third = stored(next_record("clicks", second, "w3", {"next": 9}, [replace(OBJECT, rows=2, size=50)], 3_000))
    assert (third.record.previous, third.record.start) == (second.digest, second.record.end)
    assert (third.record.total_rows, third.record.total_bytes, third.record.total_objects) == (9, 170, 2)
    assert (third.record.identity, third.record.log) == (IDENTITY, "w1")
    require_follows(second, first.position, "record 2")
    require_follows(third, second.position, "record 3")


def test_a_landing_without_rows_appends_nothing_unless_the_position_moved_long_after_the_newest_record(
    first: StoredRecord,
) -> None:
    soon, late = 1_000 + EMPTY_RECORD_MS - 1, 1_000 + EMPTY_RECORD_MS
    assert next_record("clicks", first, "w2", {"next": 0}, [], late) is None
    assert next_record("clicks", first, "w2", {"next": 5}, [], soon) is None
    moved = next_record("clicks", first, "w2", {"next": 5}, [], late)
    assert moved is not None
    assert (moved.end, moved.rows, moved.rows_at_ms) == ({"next": 5}, 0, None)


def test_rows_whose_position_does_not_move_are_refused(first: StoredRecord) -> None:
    with pytest.raises(InvalidRequest, match="read 7 rows, but its position did not move"):
        next_record("clicks", first, "w2", {"next": 0}, [OBJECT], 2_000)


def test_a_clock_that_went_back_does_not_make_a_record_older_than_the_one_before(first: StoredRecord) -> None:
    second = next_record("clicks", first, "w2", {"next": 7}, [OBJECT], 10)
    assert second is not None
    assert (second.landed_at_ms, second.rows_at_ms) == (1_000, 1_000)


@pytest.mark.parametrize(
    "changed",
    [{"job": "life 2"}, {"source": "feeds:Others"}, {"format": "kafka"}, {"topic": "clicks"}],
    ids=["another life of the job", "another class", "another format", "a new part of the identity"],
)
def test_a_log_of_something_else_is_refused(changed: dict[str, str]) -> None:
    require_identity("clicks", IDENTITY, dict(IDENTITY))
    with pytest.raises(SourceReplaced, match=r"source clicks: its log (was begun for|is of an earlier life)"):
        require_identity("clicks", IDENTITY, IDENTITY | changed)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sequence": 4}, "expected sequence 3, got 4"),
        ({"log": "w9"}, "expected a record of log w1, got one of w9"),
        ({"previous": "b" * 64}, "it does not follow the record 2"),
        ({"start": {"next": 8}}, "it does not follow the record 2"),
    ],
)
def test_a_record_that_does_not_follow_is_not_read_as_if_it_did(
    first: StoredRecord, change: dict[str, object], problem: str
) -> None:
    second = stored(next_record("clicks", first, "w2", {"next": 7}, [OBJECT], 2_000))
    third = next_record("clicks", second, "w3", {"next": 9}, [OBJECT], 3_000)
    assert third is not None
    with pytest.raises(StateCorrupt, match=problem):
        require_follows(stored(replace(third, **change)), second.position, "record 3")


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 2},
        {"objects": (OBJECT,), "total_rows": 7, "total_bytes": 120, "total_objects": 1},
        {"log": "w9"},
        {"end": {"next": 1}},
        {"previous": "a" * 64},
    ],
)
def test_a_first_record_that_says_more_than_where_the_log_begins_is_corrupt(
    first: StoredRecord, change: dict[str, object]
) -> None:
    with pytest.raises(StateCorrupt):
        stored(replace(first.record, **change))
