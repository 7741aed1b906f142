"""A void record says which records before it count for nothing, and where landing continues (L8)."""

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
    RecordKind,
    StoredRecord,
    Void,
    VoidSpan,
    decode_record,
    encode_record,
    require_follows,
)
from milepost.protocol.landed.voids import (
    accept_record,
    false_span,
    is_void,
    live_records,
    live_sequences,
    totals_read,
    void_record,
)
from milepost.sources.planning.log_plan import has_new_rows

IDENTITY = {"job": "life 1"}


def stored(record: LogRecord | None) -> StoredRecord:
    assert record is not None
    return decode_record(encode_record(record), "record")


class Log:
    """Records of a log in memory."""

    def __init__(self) -> None:
        self.records = [stored(first_record("w1", IDENTITY, {"next": 0}, 1_000))]

    @property
    def newest(self) -> StoredRecord:
        return self.records[-1]

    def __getitem__(self, sequence: int) -> StoredRecord:
        return self.records[sequence - 1]

    def add(self, record: LogRecord | None) -> StoredRecord:
        self.records.append(stored(record))
        require_follows(self.newest, self.records[-2].position, "record")
        return self.newest

    def rows(self, end: int, count: int = 1) -> StoredRecord:
        item = LandedObject(f"{self.newest.record.sequence + 1}/w/0.parquet", 10 * count, "a" * 64, count)
        return self.add(next_record("clicks", self.newest, "w", {"next": end}, [item], 2_000))

    def gap(self, end: int) -> StoredRecord:
        return self.add(gap_record(self.newest, "w", {"next": end}, Gap("deleted", "by a person"), 2_000))

    def void(self, first: int) -> StoredRecord:
        void = Void(first, "it went back", "by a person")
        return self.add(void_record(self.newest, self[first], "w", void, 3_000, self[first - 1].record.behind))

    def accept(self, first: int) -> StoredRecord:
        return self.add(accept_record(self.newest, "w", Void(first, "no checkpoint", "by a person"), 3_000))

    @property
    def live(self) -> list[int]:
        return [item.record.sequence for item in live_records(self.records, self.newest.record.voids)]


@pytest.fixture
def log() -> Log:
    """Records 2 to 5 with rows, of which 4 and 5 are void, void record 6, and record 7 with rows."""
    log = Log()
    for end in (10, 20, 30, 40):
        log.rows(end)
    log.void(4)
    log.rows(25)
    return log


def test_a_void_record_takes_the_position_and_the_totals_back_to_before_the_void_records(log: Log) -> None:
    record = log[6].record
    assert (record.kind, record.start, record.end, record.rows) == (RecordKind.VOID, {"next": 40}, {"next": 20}, 0)
    assert log[6].position.totals[2:] == log[3].position.totals[2:]
    assert (log[7].record.start, log[7].record.total_rows) == ({"next": 20}, 3)
    assert record.voids == log[7].record.voids == (VoidSpan(4, 6, 2, 20, 2, accepted=False),)
    assert log.live == [1, 2, 3, 6, 7]


def test_a_log_without_void_records_is_stored_as_before(log: Log) -> None:
    assert not {"void", "voids"} & load(encode_record(log[5].record), "record").keys()


@pytest.mark.parametrize(
    ("read", "has_false_rows", "unread"),
    [(2, False, 2), (3, False, 1), (4, True, 1), (5, True, 1), (6, False, 1), (7, False, 0)],
)
def test_a_position_has_read_false_rows_only_if_it_is_after_the_first_of_them(
    log: Log, read: int, has_false_rows: bool, unread: int
) -> None:
    position, newest = log[read].position, log.newest.record
    assert (false_span(position, newest) is not None) == has_false_rows
    assert newest.total_rows - totals_read(position, newest.voids)[0] == unread
    assert has_new_rows(position, newest) == (unread > 0)


def test_a_void_record_alone_begins_no_epoch() -> None:
    log = Log()
    log.rows(10)
    at = log.rows(20).position
    log.void(3)
    assert not has_new_rows(log[2].position, log.newest.record)
    assert not has_new_rows(at, log.newest.record)
    assert (false_span(None, log.newest.record), totals_read(None, log.newest.record.voids)) == (None, (0, 0, 0))


def test_a_position_that_has_passed_a_void_gap_without_rows_after_it_goes_on() -> None:
    log = Log()
    log.rows(10)
    at = log.gap(50).position
    log.rows(60)
    log.void(3)
    assert (log.newest.record.end, log.newest.record.total_gaps) == ({"next": 10}, 1)
    assert false_span(at, log.newest.record) is None
    assert false_span(log[4].position, log.newest.record) is not None


def test_a_later_void_record_swallows_the_earlier_one_or_leaves_it() -> None:
    log = Log()
    for end in (10, 20, 30):
        log.rows(end)
    log.void(4)  # record 5
    log.rows(25)  # record 6
    log.void(6)  # record 7: what followed the first one is false as well
    assert [(span.first, span.end) for span in log.newest.record.voids] == [(4, 5), (6, 7)]
    assert log.newest.record.end == {"next": 20}
    log.rows(22)
    log.void(3)  # record 9
    assert [(span.first, span.end, span.total_rows) for span in log.newest.record.voids] == [(3, 9, 1)]
    assert (log.live, log.newest.record.end) == ([1, 2, 9], {"next": 10})
    assert false_span(log[7].position, log.newest.record) is not None, "it has read record 3"


def test_accepted_false_rows_let_every_position_among_them_go_on(log: Log) -> None:
    log.accept(4)
    record = log.newest.record
    assert (record.kind, record.start, record.rows) == (RecordKind.ACCEPT, record.end, 0)
    assert all(false_span(log[read].position, record) is None for read in range(1, 8))
    assert has_new_rows(log[5].position, record)
    assert not has_new_rows(log[7].position, record)
    log.void(3)
    assert false_span(log[5].position, log.newest.record) is not None, "record 3 is false now, and nobody accepted it"


def test_sequences_that_are_not_void_are_found_without_reading_records(log: Log) -> None:
    log.rows(30)
    log.void(8)
    voids = log.newest.record.voids
    assert [*live_sequences(1, 9, voids)] == log.live == [1, 2, 3, 6, 7, 9]
    assert [*live_sequences(5, 7, voids)] == [6, 7]
    assert [*live_sequences(4, 5, voids)] == []
    assert [is_void(sequence, voids) for sequence in (3, 4, 5, 6, 8, 9)] == [False, True, True, False, True, False]


def test_a_range_counts_the_records_that_it_skips(log: Log) -> None:
    def read(after: int, last: int) -> tuple[StoredRecord, ...]:
        return tuple(live_records(log.records[after:last], log.newest.record.voids))

    position = log[2].position
    whole = range_of(position, read(2, 7))
    assert whole is not None
    assert (whole.first, whole.end, whole.voids, whole.skipped, whole.count) == (3, log[7].position, 1, 2, 5)
    parts = [range_of(position, read(2, 3)), range_of(log[3].position, read(3, 7))]
    assert [(part.first, part.skipped) for part in parts if part is not None] == [(3, 0), (4, 2)]
    assert joined_ranges([part for part in parts if part is not None]) == whole
    assert replace(whole, voids=4).check() == "expected at most 3 gaps and voids, got 4"


def test_a_copy_of_a_log_has_the_same_void_records(log: Log) -> None:
    begin = stored(continuing_record("c1", "life 2", IDENTITY, log[2].position, 5_000))
    copies = [begin]
    for item in log.records[2:]:
        copies.append(stored(copied_record(copies[-1], item.record)))
    assert copies[-1].record.voids == log.newest.record.voids
    late = stored(continuing_record("c2", "life 3", IDENTITY, log[5].position, 5_000))
    void = stored(copied_record(late, log[6].record))
    assert false_span(late.position, void.record) is not None, "the savepoint has read false rows"
    later = stored(continuing_record("c3", "life 4", IDENTITY, log[6].position, 5_000))
    assert stored(copied_record(later, log[7].record)).record.voids == ()
    log.accept(4)
    assert stored(copied_record(stored(copied_record(void, log[7].record)), log[8].record)).record.voids[0].accepted


def test_a_clock_that_went_back_does_not_make_a_void_record_older_than_the_record_before(log: Log) -> None:
    assert void_record(log.newest, log[7], "w", Void(7, "false", "by a person"), 10).landed_at_ms == 3_000


@pytest.mark.parametrize(
    "change",
    [
        {"void": None},
        {"kind": RecordKind.ROWS},
        {"kind": RecordKind.GAP},
        {"voids": ()},
        {"voids": (VoidSpan(4, 5, 2, 20, 2, accepted=False),)},
        {"voids": (VoidSpan(4, 6, 3, 20, 2, accepted=False),)},
        {"voids": (VoidSpan(4, 6, 2, 20, 2, accepted=True),)},
        {"voids": (VoidSpan(2, 5, 2, 20, 2, accepted=False), VoidSpan(4, 6, 2, 20, 2, accepted=False))},
        {"void": Void(5, "it went back", "by a person")},
        {"void": Void(4, "", "by a person")},
        {"void": Void(4, "it went back", "")},
        {"objects": (LandedObject("6/w/0.parquet", 1, "a" * 64, 1),)},
    ],
)
def test_a_void_record_that_contradicts_itself_is_corrupt(log: Log, change: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt):
        stored(replace(log[6].record, **change))


@pytest.mark.parametrize("change", [{"void": None}, {"end": {"next": 26}}, {"kind": RecordKind.VOID}])
def test_an_acceptance_that_contradicts_itself_is_corrupt(log: Log, change: dict[str, object]) -> None:
    accept = log.accept(4)
    with pytest.raises(StateCorrupt):
        stored(replace(accept.record, **change))
