"""Choose the records of a log that one epoch reads (L6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from milepost.protocol.landed.records import LandedRange, LogPosition, RecordKind, StoredRecord


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Limits on the landed input of one epoch, which always takes whole records, and at least one.

    Attributes:
        max_records: at least 1. max_rows, max_bytes: None is no limit.
    """

    max_records: int
    max_rows: int | None = None
    max_bytes: int | None = None

    def allows(self, records: int, rows: int, bytes_: int) -> bool:
        """Return whether that much input is within the limits."""
        return (
            records <= self.max_records
            and (self.max_rows is None or rows <= self.max_rows)
            and (self.max_bytes is None or bytes_ <= self.max_bytes)
        )


def within_limits(records: Iterable[StoredRecord], limits: RecordLimits) -> tuple[StoredRecord, ...]:
    """Return the first records within the limits, at least one if there are any.

    Records of 40, 0, 30 and 50 rows with `max_rows: 80`: the first three are taken, with 70 rows.
    """
    taken: list[StoredRecord] = []
    rows = size = 0
    for stored in records:
        rows, size = rows + stored.record.rows, size + stored.record.bytes
        if taken and not limits.allows(len(taken) + 1, rows, size):
            break
        taken.append(stored)
    return tuple(taken)


def range_of(position: LogPosition | None, records: tuple[StoredRecord, ...]) -> LandedRange | None:
    """Return the range of records after a position, which are consecutive except for void ones; None: there are none.

    After position 3, the records 3, 4 and 8 are the range 3 to 8 with three skipped records.
    """
    if not records:
        return None
    first, last = records[0].record.sequence if position is None else position.next, records[-1]
    kinds = [stored.record.kind for stored in records]
    return LandedRange(
        first,
        last.position,
        last.record.behind,
        gaps=kinds.count(RecordKind.GAP),
        voids=kinds.count(RecordKind.VOID),
        skipped=last.record.sequence + 1 - first - len(records),
    )


def joined_ranges(ranges: Sequence[LandedRange]) -> LandedRange | None:
    """Return consecutive ranges as one; None if there are none. Records 3 to 5 and 6 to 6 are 3 to 6."""
    if not ranges:
        return None
    counts = {name: sum(getattr(item, name) for item in ranges) for name in ("gaps", "voids", "skipped")}
    return replace(ranges[-1], first=ranges[0].first, **counts)
