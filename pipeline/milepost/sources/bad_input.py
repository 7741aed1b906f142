"""Count the unreadable records of a source, and name where they are without their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from milepost.sources.contract import BadRecord

MAX_NAMED_BAD_RECORDS = 5
"""Limit on the bad records that are named. All of them are counted."""


@dataclass(frozen=True, slots=True)
class BadRecordLocation:
    """Location of an unreadable record, and the reason.

    Attributes:
        object: key of the object; of a landed message, its topic, partition and offset.
        line: 1-based line in the object, or row of a Parquet object; None for a message.
    """

    object: str
    line: int | None
    column: str | None
    reason: str

    def describe(self) -> str:
        """Return the location and the reason as text."""
        line = f", line {self.line}" if self.line is not None else ""
        column = f", column {self.column}" if self.column is not None else ""
        return f"{self.object}{line}{column}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TriggerCounts:
    """Readable and bad records among those of a source that one trigger planned.

    Attributes:
        planned_ms: time of the trigger. A replay that combines several epochs distinguishes them by it.
    """

    stored_as_row: ClassVar[bool] = True

    planned_ms: int | None
    rows: int
    bad: int


@dataclass(frozen=True, slots=True)
class BadInput:
    """Bad input of one source in one epoch.

    Attributes:
        records: dead letters written. A bad object counts as one.
        objects: objects that could not be read at all.
        total: dead letters of the timeline up to and including this epoch.
        first: the first bad records of this epoch, in plan order.
        read: one subtask's counts by trigger; () once the limits of the epoch were checked.
    """

    records: int = 0
    objects: int = 0
    total: int = 0
    first: tuple[BadRecordLocation, ...] = ()
    read: tuple[TriggerCounts, ...] = ()


class BadInputCounter:
    """Counts the records of one subtask's objects. Objects must come in plan order."""

    def __init__(self) -> None:
        self.records = self.objects = 0
        self._first: list[BadRecordLocation] = []
        self._read: dict[int | None, list[int]] = {}

    def add_rows(self, planned_ms: int | None, count: int) -> None:
        """Count readable rows."""
        self._read.setdefault(planned_ms, [0, 0])[0] += count

    def add_bad(
        self, planned_ms: int | None, count: int, first: Iterable[BadRecord], *, whole_object: bool = False
    ) -> int:
        """Count bad records, or one bad object; return how many bad records that trigger has so far.

        Args:
            first: the first of these records, for the report.
        """
        self.records += count
        self.objects += whole_object
        for record in first:
            self._first.append(BadRecordLocation(*record.location, record.column, record.clause))
        del self._first[MAX_NAMED_BAD_RECORDS:]
        read = self._read.setdefault(planned_ms, [0, 0])
        read[1] += count
        return read[1]

    def result(self) -> BadInput:
        """Return the counts so far."""
        read = tuple(TriggerCounts(planned_ms, rows, bad) for planned_ms, (rows, bad) in self._read.items())
        return BadInput(self.records, self.objects, self.records, tuple(self._first), read)


def merge_bad_input(parts: Sequence[BadInput], before: BadInput | None) -> BadInput:
    """Merge the counts of an epoch's subtasks, in subtask order, and add the total of the epochs before it."""
    records = sum(part.records for part in parts)
    return BadInput(
        records=records,
        objects=sum(part.objects for part in parts),
        total=records + (before.total if before is not None else 0),
        first=tuple(place for part in parts for place in part.first)[:MAX_NAMED_BAD_RECORDS],
    )


def counts_by_trigger(parts: Iterable[BadInput]) -> tuple[TriggerCounts, ...]:
    """Sum the record counts of all subtasks by trigger."""
    sums: dict[int | None, list[int]] = {}
    for counts in (counts for part in parts for counts in part.read):
        of_trigger = sums.setdefault(counts.planned_ms, [0, 0])
        of_trigger[0] += counts.rows
        of_trigger[1] += counts.bad
    return tuple(TriggerCounts(planned_ms, rows, bad) for planned_ms, (rows, bad) in sums.items())


def too_many_bad_records(source: str, count: int, limit: int, bad: BadInput) -> str:
    """Return the message for a source that exceeds `max_bad_records`."""
    return f"source {source}: at least {count} records cannot be read, max_bad_records is {limit}{_named(bad)}"


def bad_ratio_too_high(source: str, read: TriggerCounts, ratio: float, bad: BadInput) -> str:
    """Return the message for a source that exceeds `max_bad_ratio`."""
    records = read.rows + read.bad
    share = f"{read.bad} of {records} records cannot be read ({read.bad / records:.2%})"
    return f"source {source}: {share}, max_bad_ratio is {ratio:g}{_named(bad)}"


def _named(bad: BadInput) -> str:
    return ", such as " + "; ".join(place.describe() for place in bad.first)
