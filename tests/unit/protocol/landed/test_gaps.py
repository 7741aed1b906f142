"""A gap is a record of the log: it follows the newest one, moves the position and has no rows (L7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.codec import load
from milepost.errors import StateCorrupt
from milepost.protocol.landed.appends import first_record, next_record
from milepost.protocol.landed.continuations import continuing_record, copied_record
from milepost.protocol.landed.gaps import gap_record
from milepost.protocol.landed.ranges import joined_ranges, range_of
from milepost.protocol.landed.records import (
    Gap,
    LandedObject,
    LogRecord,
    StoredRecord,
    decode_record,
    encode_record,
    require_follows,
)
from milepost.sources.planning.log_plan import has_new_rows

IDENTITY = {"job": "life 1"}
GAP = Gap("rows before 20 were deleted", "by a person")
OBJECT = LandedObject("00000000000000000002/w2/00000-00000.parquet", 120, "a" * 64, 7)


def stored(record: LogRecord | None) -> StoredRecord:
    assert record is not None
    return decode_record(encode_record(record), "record")


@pytest.fixture
def rows() -> StoredRecord:
    first = stored(first_record("w1", IDENTITY, {"next": 0}, 1_000))
    return stored(next_record("clicks", first, "w2", {"next": 7}, [OBJECT], 2_000))


@pytest.fixture
def gap(rows: StoredRecord) -> StoredRecord:
    return stored(gap_record(rows, "w3", {"next": 20}, GAP, 3_000, ["clicks/0"]))


def test_a_gap_follows_the_newest_record_and_the_log_goes_on_at_its_end(rows: StoredRecord, gap: StoredRecord) -> None:
    require_follows(gap, rows.position, "record 3")
    record, position = gap.record, gap.position
    assert (record.start, record.end, record.rows, record.gap) == ({"next": 7}, {"next": 20}, 0, GAP)
    assert (position.total_rows, position.total_objects, record.rows_at_ms) == (7, 1, 2_000)
    assert not has_new_rows(rows.position, record), "a gap begins no epoch"
    after = stored(next_record("clicks", gap, "w4", {"next": 25}, [OBJECT], 4_000))
    require_follows(after, position, "record 4")
    assert (after.record.start, after.record.total_rows, after.record.gap) == ({"next": 20}, 14, None)
    assert (rows.record.total_gaps, record.total_gaps, after.record.total_gaps) == (0, 1, 1)


def test_a_clock_that_went_back_does_not_make_a_gap_older_than_the_record_before(rows: StoredRecord) -> None:
    assert gap_record(rows, "w3", {"next": 20}, GAP, 10).landed_at_ms == 2_000


def test_records_of_a_log_without_gaps_are_stored_as_before_there_were_any(rows: StoredRecord) -> None:
    assert not {"gap", "total_gaps"} & load(encode_record(rows.record), "record").keys()


def test_a_range_counts_the_gaps_that_an_epoch_passes(rows: StoredRecord, gap: StoredRecord) -> None:
    after = stored(next_record("clicks", gap, "w4", {"next": 25}, [OBJECT], 4_000))
    whole = range_of(None, (rows, gap, after))
    parts = [range_of(None, (rows,)), range_of(rows.position, (gap,)), range_of(gap.position, (after,))]
    assert whole is not None and whole.gaps == 1
    assert [part.gaps for part in parts if part is not None] == [0, 1, 0]
    assert joined_ranges([part for part in parts if part is not None]) == replace(whole, first=whole.first)
    gap_alone = range_of(rows.position, (gap,))
    assert gap_alone is not None and gap_alone.behind == ("clicks/0",)


def test_a_copy_of_a_gap_in_a_log_that_continues_elsewhere_counts_in_that_log(
    rows: StoredRecord, gap: StoredRecord
) -> None:
    begin = stored(continuing_record("b1", "life 2", IDENTITY, rows.position, 5_000))
    copied = stored(copied_record(begin, gap.record))
    require_follows(copied, begin.position, "record 3")
    assert (copied.record.gap, copied.record.total_gaps) == (GAP, 1)
    later = stored(continuing_record("c1", "life 3", IDENTITY, gap.position, 5_000))
    assert later.record.total_gaps == 0


@pytest.mark.parametrize(
    "change",
    [
        {"gap": None},
        {"objects": (OBJECT,)},
        {"end": {"next": 7}},
        {"total_gaps": 0},
        {"gap": Gap("", "by a person")},
        {"gap": Gap("deleted", "")},
    ],
    ids=["no reason", "rows", "the position does not move", "not counted", "an empty reason", "approved by nobody"],
)
def test_a_gap_that_contradicts_itself_is_corrupt(gap: StoredRecord, change: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt):
        stored(replace(gap.record, **change))


def test_a_record_of_another_kind_with_a_reason_is_corrupt(rows: StoredRecord) -> None:
    with pytest.raises(StateCorrupt, match="no other record has such a reason"):
        stored(replace(rows.record, gap=GAP, total_gaps=1))


def test_a_range_with_more_gaps_than_records_is_corrupt(gap: StoredRecord) -> None:
    landed = range_of(None, (gap,))
    assert landed is not None
    assert replace(landed, gaps=2).check() == "expected at most 1 gaps and voids, got 2"
