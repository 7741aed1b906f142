"""Decide which records of a log are void, and how positions continue after them (L8). Pure.

Records 3 and 4 prove false, because the external system was rolled back to 510::

    2  rows   0 -> 500
    3  rows   500 -> 620
    4  gap    620 -> 700
    5  void   700 -> 500     void_from 3, approved by a person
    6  rows   500 -> 505

A position at or before record 3 skips records 3 and 4. One at record 4 or 5 has read false rows: it stops until the job
is rolled back, or a person accepts the false rows. Record 5 begins with what record 2 left, so its totals are those of
record 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from milepost.protocol.landed.records import LogPosition, LogRecord, RecordKind, StoredRecord, Void, VoidSpan


def void_record(
    newest: StoredRecord, first: StoredRecord, write_id: str, void: Void, now_ms: int, behind: Sequence[str] = ()
) -> LogRecord:
    """Return the void record that follows the newest record.

    Args:
        first: the first record that is void from then on. void: names it.
        now_ms: the store's clock. If it went back, the time of the newest record counts.
        behind: as in the record before `first`.
    """
    before, false = newest.record, first.record
    record = _without_rows(newest, RecordKind.VOID, write_id, void, now_ms)
    record = replace(
        record,
        end=false.start,
        total_rows=false.total_rows - false.rows,
        total_bytes=false.total_bytes - false.bytes,
        total_objects=false.total_objects - false.file_count,
        behind=tuple(behind),
    )
    return replace(record, voids=voids_after(before.voids, record))


def accept_record(newest: StoredRecord, write_id: str, void: Void, now_ms: int) -> LogRecord:
    """Return the record after which checkpoints that have read rows of void records may continue.

    Args:
        void: names the first of these records.
    """
    before, record = newest.record, _without_rows(newest, RecordKind.ACCEPT, write_id, void, now_ms)
    return replace(record, voids=voids_after(before.voids, record), behind=before.behind)


def voids_after(voids: Sequence[VoidSpan], record: LogRecord) -> tuple[VoidSpan, ...]:
    """Return the void records of a log after a record. voids: before it."""
    void = record.void
    if void is None:
        return tuple(voids)
    if record.kind is RecordKind.VOID:
        return (*(span for span in voids if span.end < void.void_from), record.own_span)
    return tuple(replace(span, accepted=True) if span.first == void.void_from else span for span in voids)


def is_void(sequence: int, voids: Iterable[VoidSpan]) -> bool:
    """Return whether a record is void."""
    return any(span.first <= sequence < span.end for span in voids)


def live_records(records: Iterable[StoredRecord], voids: Sequence[VoidSpan]) -> Iterator[StoredRecord]:
    """Yield the records that are not void. voids: of the newest record of the log."""
    return (stored for stored in records if not is_void(stored.record.sequence, voids))


def live_sequences(first: int, last: int, voids: Sequence[VoidSpan]) -> Sequence[int]:
    """Return the sequences from `first` to `last` of the records that are not void."""
    if not voids:
        return range(first, last + 1)
    begins, ends = [first, *(span.end for span in voids)], [*(span.first for span in voids), last + 1]
    parts = (range(max(first, begin), min(last + 1, end)) for begin, end in zip(begins, ends, strict=True))
    return tuple(chain.from_iterable(parts))


def false_span(position: LogPosition | None, newest: LogRecord) -> VoidSpan | None:
    """Return the void records of which a position has read rows; None: there are none, or these rows were accepted."""
    span = void_span_read(position, newest.voids)
    return None if span is None or span.accepted else span


def void_span_read(position: LogPosition | None, voids: Iterable[VoidSpan]) -> VoidSpan | None:
    """Return the void records of which a position has read rows, also accepted ones; None: there are none.

    A position after the void record has read none of them: that epoch has skipped them.
    """
    span = _span_at(position, voids)
    return span if position is not None and span is not None and position.total_objects > span.total_objects else None


def totals_read(position: LogPosition | None, voids: Iterable[VoidSpan]) -> tuple[int, int, int]:
    """Return the rows, bytes and objects before a position, without those of void records.

    The difference to the totals of the newest record is what is not read yet. Example: after record 4 of the log above,
    620 rows were read. Once records 3 and 4 are void, 500 of them count, and the 5 rows of record 6 are unread.

    Args:
        position: None is before the log. voids: of the newest record of the log.
    """
    if position is None:
        return 0, 0, 0
    at = _span_at(position, voids) or position
    return at.total_rows, at.total_bytes, at.total_objects


def _span_at(position: LogPosition | None, voids: Iterable[VoidSpan]) -> VoidSpan | None:
    """Return the span of whose records a position has read some; None: it is outside of all."""
    if position is None:
        return None
    return next((span for span in voids if span.first < position.next <= span.end), None)


def _without_rows(newest: StoredRecord, kind: RecordKind, write_id: str, void: Void, now_ms: int) -> LogRecord:
    before = newest.record
    return LogRecord(
        log=before.log,
        sequence=before.sequence + 1,
        kind=kind,
        write_id=write_id,
        previous=newest.digest,
        start=before.end,
        end=before.end,
        landed_at_ms=max(now_ms, before.landed_at_ms),
        objects=(),
        total_rows=before.total_rows,
        total_bytes=before.total_bytes,
        total_objects=before.total_objects,
        rows_at_ms=before.rows_at_ms,
        identity=before.identity,
        first=before.first,
        total_gaps=before.total_gaps,
        void=void,
        voids=before.voids,
    )
