"""The records of a source's log, and positions and ranges in it.

A landed source is read once, into an append-only log of its own. Record 1 fixes where the log begins and what it is a
copy of. Every other record appends rows, which are in Parquet objects that were written before the record, or in data
files of a table, which the record refers to. A record is created only if its key is free, and never changes.

Example: the log of a source whose position is a count of messages, after two landings::

    1  start  0 -> 0
    2  rows   0 -> 500      2 objects
    3  rows   500 -> 620    1 object

A log that continues it elsewhere, from a savepoint that has read record 2, begins with a start record 2 at 500. If the
external system deletes 620 to 700 before they are landed, a person may approve a gap, and the log continues after it::

    4  gap    620 -> 700

If the external system then goes back to 510, a person may approve that records 3 and 4 are void, and the log continues
from the end of record 2::

    5  void   700 -> 500      void_from 3
    6  rows   500 -> 505      1 object
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from milepost.codec import Count, Sha256, Text, dump, from_json, load, to_json
from milepost.errors import StateCorrupt
from milepost.protocol.landed.files import LandedObject, ReferencedFile
from milepost.protocol.records import LogPosition as LogPosition
from milepost.protocol.records import Position as Position

Identity = Mapping[str, Any]
"""Identity of the external system that a log copies: JSON values that do not change while it is the same system."""


class RecordKind(Enum):
    """Kind of a record.

    Attributes:
        START: the log begins here. It has no rows.
        ROWS: these objects were landed. There may be none, if only the position moved.
        GAP: the data between `start` and `end` was lost before it was landed (L7).
        VOID: records before it were false, and landing continues from before them (L8).
        ACCEPT: checkpoints that have read false rows may continue after the void record, and keep these rows (L8).
    """

    START = "start"
    ROWS = "rows"
    GAP = "gap"
    VOID = "void"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """Data of an external system that is not landed yet.

    Attributes:
        unit: the unit of `count`, in the singular, such as offset; not rows, if the source cannot count them.
        age_ms: age of the oldest data when it was counted; None: unknown to the source.
    """

    count: Count
    unit: Text
    age_ms: Count | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a log continues at a later position, although the data before it was never landed.

    Attributes:
        reason: of the source. approved_by: who decided that the log continues.
    """

    reason: Text
    approved_by: Text


@dataclass(frozen=True, slots=True)
class Void:
    """Why records of a log are false.

    Attributes:
        void_from: sequence of the first of them. reason: of the source. approved_by: who decided it.
    """

    void_from: int
    reason: Text
    approved_by: Text


@dataclass(frozen=True, slots=True)
class VoidSpan:
    """Void records of a log: from `first` until before `end`, which is the void record.

    Attributes:
        total_rows, total_bytes, total_objects: of the records before `first` that are not void.
        accepted: whether a checkpoint that has read rows of the span may continue after it.
    """

    first: int
    end: int
    total_rows: Count
    total_bytes: Count
    total_objects: Count
    accepted: bool


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a source's log.

    Attributes:
        log: id of the log, which is the write id of its first record.
        sequence: number of the record, from 1.
        write_id: unique text of the landing that wrote it.
        previous: SHA-256 of the stored record before; None for the first record.
        start, end: positions between which the external system was read. `start` is the `end` of the record before.
        landed_at_ms: by the clock of the job's store.
        objects: in the order of their rows.
        total_rows, total_bytes, total_objects: of this record and all before it, with files of tables and without
            records that were void then.
        rows_at_ms: when the newest record with rows was landed, up to this one; None: there was none.
        identity: what the log is a copy of, as in record 1.
        behind: partitions of the external system that were not yet read to where this landing ends. Their rows to come
            may be older than rows that are landed, so they hold back the watermark.
        first: sequence of the log's first record: 1, unless the log continues another one.
        continues: in the first record: the position of a savepoint, on a log elsewhere, that this log continues.
        backlog: what the external system had after `end` when this record was read; None: the source cannot say.
        gap: in a record of kind GAP: what was approved. total_gaps: gaps of this record and all before it in this log,
            also void ones.
        void: in a record of kind VOID or ACCEPT: what was approved.
        voids: the void records before this one, as spans in order. A void record swallows spans that it makes void.
        references: data files of a table, in the order of their rows, in a record without objects.
        layouts: declared columns when those were landed, each with its name in the file. A file may lack some of them.
        declared_start: in the first record: `start` of the spec by which the log began; empty: the source has none.
    """

    stored_format: ClassVar[str] = "milepost.landed/1"

    log: Text
    sequence: int
    kind: RecordKind
    write_id: Text
    previous: Sha256 | None
    start: Position
    end: Position
    landed_at_ms: Count
    objects: tuple[LandedObject, ...]
    total_rows: Count
    total_bytes: Count
    total_objects: Count
    rows_at_ms: Count | None
    identity: Identity
    behind: tuple[Text, ...] = ()
    first: int = 1
    continues: LogPosition | None = None
    backlog: SourceBacklog | None = None
    gap: Gap | None = None
    total_gaps: Count = 0
    void: Void | None = None
    voids: tuple[VoidSpan, ...] = ()
    references: tuple[ReferencedFile, ...] = ()
    layouts: tuple[Mapping[str, str], ...] = ()
    declared_start: str = ""

    def check(self) -> str | None:
        """Return the inconsistency between the fields, or None if they are consistent."""
        is_first = self.sequence == self.first
        if (
            not 1 <= self.first <= self.sequence
            or is_first != (self.kind is RecordKind.START)
            or is_first != (self.previous is None)
        ):
            return f"a record of kind {self.kind.value} cannot have sequence {self.sequence}"
        if is_first and (self.log != self.write_id or self.file_count or self.start != self.end):
            return "the first record only fixes the log's id and where it begins"
        if (self.continues is not None and not is_first) or (self.continues is None and is_first and self.first > 1):
            return f"record {self.sequence} of a log that begins with record {self.first} cannot say what it continues"
        if self.declared_start and not is_first:
            return "only the first record of a log says by which `start` it began"
        if self.continues is not None and self._read_before != self.continues.totals:
            return "it does not begin at the position that it continues"
        is_gap = self.kind is RecordKind.GAP
        if is_gap != (self.gap is not None) or (is_gap and (self.file_count or self.start == self.end)):
            return "a gap moves the position for a reason, and has no rows; no other record has such a reason"
        if self.total_gaps < is_gap or (is_first and self.total_gaps):
            return f"a record of kind {self.kind.value} cannot be after {self.total_gaps} gaps"
        if (fault := self._void_fault()) is not None:
            return fault
        if self.objects and self.references:
            return "its rows are in objects or in files of a table, not in both"
        if any(file.layout >= len(self.layouts) for file in self.references):
            return "a file has columns that the record does not name"
        if self.rows > self.total_rows or self.bytes > self.total_bytes:
            return "its totals are less than its objects have"
        return None

    def _void_fault(self) -> str | None:
        """Return why the record's void spans are inconsistent, or None."""
        before = 0
        for span in self.voids:
            if not before < span.first < span.end <= self.sequence:
                return f"it cannot name the records from {span.first} to {span.end}, exclusive, as void"
            before = span.end
        if (self.void is not None) != (self.kind in (RecordKind.VOID, RecordKind.ACCEPT)):
            return "only a void record, or one that accepts false rows, has such a reason"
        if self.kind is RecordKind.VOID and (self.file_count or not self.voids or self.voids[-1] != self.own_span):
            return "a void record has no rows, and names itself as the end of the records that it makes void"
        if self.kind is RecordKind.ACCEPT and (self.file_count or self.start != self.end):
            return "a record that accepts false rows has no rows, and does not move the position"
        return None

    @property
    def own_span(self) -> VoidSpan:
        """The records that a void record makes void."""
        assert self.void is not None, self.kind
        totals = self.total_rows, self.total_bytes, self.total_objects
        return VoidSpan(self.void.void_from, self.sequence, *totals, accepted=False)

    @property
    def _read_before(self) -> tuple[int, Position, int, int, int]:
        """What a record without rows has read before it, as `LogPosition.totals`."""
        return self.sequence + 1, self.start, self.total_rows, self.total_bytes, self.total_objects

    @property
    def rows(self) -> int:
        """Rows of all its objects and files."""
        return sum(item.rows for item in self.objects) + sum(file.rows for file in self.references)

    @property
    def bytes(self) -> int:
        """Stored size of all its objects and files."""
        return sum(item.size for item in self.objects) + sum(file.size for file in self.references)

    def versions(self) -> Iterator[tuple[str, str, int]]:
        """Yield the key, version and size of each object, or the URI, version and size of each file."""
        yield from ((item.key, item.sha256, item.size) for item in self.objects)
        yield from ((file.uri, file.etag, file.size) for file in self.references)

    @property
    def file_count(self) -> int:
        """Number of its objects and files."""
        return len(self.objects) + len(self.references)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record with the digest of its stored bytes, by which the next record refers to it."""

    record: LogRecord
    digest: str

    @property
    def position(self) -> LogPosition:
        """The position right after this record."""
        record = self.record
        return LogPosition(
            record.log,
            record.sequence + 1,
            self.digest,
            record.end,
            record.total_rows,
            record.total_bytes,
            record.total_objects,
        )


@dataclass(frozen=True, slots=True)
class LandedRange:
    """The records of a log that one epoch reads.

    Attributes:
        first: sequence of the first record. end: the position after the last one.
        behind: as in the last record. gaps: how many of the records are gaps.
        voids: how many of the records are void records. skipped: how many the epoch did not read, because they are
            void. They are not counted as gaps or voids.
    """

    first: int
    end: LogPosition
    behind: tuple[Text, ...] = ()
    gaps: Count = 0
    voids: Count = 0
    skipped: Count = 0

    def check(self) -> str | None:
        """Return why this cannot be a range, or None."""
        if not 1 <= self.first < self.end.next:
            return f"expected records, got {self.first} to {self.end.next}, exclusive"
        read = self.count - self.skipped
        if self.gaps + self.voids > read:
            return f"expected at most {read} gaps and voids, got {self.gaps + self.voids}"
        return None

    @property
    def count(self) -> int:
        """Number of records."""
        return self.end.next - self.first


def encode_record(record: LogRecord) -> bytes:
    """Return the canonical JSON of a record."""
    value = to_json(record)
    if record.backlog is not None and record.backlog.age_ms is None:
        del value["backlog"]["age_ms"]
    return dump({key: item for key, item in value.items() if key not in _ABSENT or item != _ABSENT[key]})


def decode_record(body: bytes, what: str) -> StoredRecord:
    """Return a stored record. Raises StateCorrupt, with `what`: it is not a record."""
    value = load(body, what)
    whole = {**_ABSENT, **value} if isinstance(value, dict) else value
    if isinstance(whole, dict) and isinstance(whole["backlog"], dict):
        whole["backlog"] = {"age_ms": None, **whole["backlog"]}
    return StoredRecord(from_json(LogRecord, whole, what), hashlib.sha256(body).hexdigest())


def require_follows(after: StoredRecord, before: LogPosition | None, what: str) -> None:
    """Check that a record continues the log right after a position; None is the begin of the log.

    Raises StateCorrupt: something else wrote there, or records were lost.
    """
    record = after.record
    expected = record.first if before is None else before.next
    problem = None
    if record.sequence != expected:
        problem = f"expected sequence {expected}, got {record.sequence}"
    elif before is not None and record.log != before.log:
        problem = f"expected a record of log {before.log}, got one of {record.log}"
    elif before is not None and (record.previous != before.digest or record.start != before.at):
        problem = f"it does not follow the record {before.next - 1} that was read before it"
    if problem is not None:
        raise StateCorrupt(f"{what}: {problem}. Nothing was changed.", hint=_RESTORE)


_ABSENT: Mapping[str, Any] = {
    "behind": [],
    "first": 1,
    "continues": None,
    "backlog": None,
    "gap": None,
    "total_gaps": 0,
    "void": None,
    "voids": [],
    "references": [],
    "layouts": [],
    "declared_start": "",
}
"""Fields that are stored only if they differ from these values, because older records do not have them."""

_RESTORE = "restore the source's log (landed/) from a copy of the store; `milepost fsck JOB` shows what is broken"
