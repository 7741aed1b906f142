"""Bad input counts what of a source could not be read, and says where, without a value of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from milepost.sources.contract import BadRecord

MAX_NAMED_BAD_RECORDS = 5
"""So many bad records are named; all are counted."""


@dataclass(frozen=True, slots=True)
class BadRecordLocation:
    """Where a record lies that cannot be read, and why not. line: of a Parquet object, the row."""

    object: str
    line: int | None
    column: str | None
    reason: str

    def describe(self) -> str:
        """Return it in words."""
        line = f", line {self.line}" if self.line is not None else ""
        column = f", column {self.column}" if self.column is not None else ""
        return f"{self.object}{line}{column}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TriggerCounts:
    """How many records of a source one trigger had planned could be read, and how many could not.

    Attributes:
        planned_ms: of the trigger: a replay of several epochs in one tells them apart by it.
    """

    stored_as_row: ClassVar[bool] = True

    planned_ms: int | None
    rows: int
    bad: int


@dataclass(frozen=True, slots=True)
class BadInput:
    """What of a source could not be read in an epoch.

    Attributes:
        records: that went to the dead letters, one for each bad object. objects: that could not be read at all.
        total: records of the lineage so far. first: the first of this epoch, in plan order.
        read: by trigger, of one subtask; () once an epoch's limits are judged.
    """

    records: int = 0
    objects: int = 0
    total: int = 0
    first: tuple[BadRecordLocation, ...] = ()
    read: tuple[TriggerCounts, ...] = ()


class BadInputCounter:
    """Counts the records of one subtask's objects, in plan order."""

    def __init__(self) -> None:
        self.records = self.objects = 0
        self._first: list[BadRecordLocation] = []
        self._read: dict[int | None, list[int]] = {}

    def add_rows(self, planned_ms: int | None, count: int) -> None:
        """Take rows in that could be read."""
        self._read.setdefault(planned_ms, [0, 0])[0] += count

    def add_bad(
        self, planned_ms: int | None, count: int, first: Iterable[BadRecord], *, whole_object: bool = False
    ) -> int:
        """Take bad records in, or a whole object; return how many of that trigger there are by now.

        Args:
            first: as many of them as may be named.
        """
        self.records += count
        self.objects += whole_object
        for record in first:
            line = record.line if record.row is None else record.row
            self._first.append(BadRecordLocation(record.key, line, record.column, record.clause))
        del self._first[MAX_NAMED_BAD_RECORDS:]
        read = self._read.setdefault(planned_ms, [0, 0])
        read[1] += count
        return read[1]

    def result(self) -> BadInput:
        """Return what was counted."""
        read = tuple(TriggerCounts(planned_ms, rows, bad) for planned_ms, (rows, bad) in self._read.items())
        return BadInput(self.records, self.objects, self.records, tuple(self._first), read)


def merge_bad_input(parts: Sequence[BadInput], before: BadInput | None) -> BadInput:
    """Return what the subtasks of an epoch counted, in their order, on top of the lineage's total before it."""
    records = sum(part.records for part in parts)
    return BadInput(
        records=records,
        objects=sum(part.objects for part in parts),
        total=records + (before.total if before is not None else 0),
        first=tuple(place for part in parts for place in part.first)[:MAX_NAMED_BAD_RECORDS],
    )


def counts_by_trigger(parts: Iterable[BadInput]) -> tuple[TriggerCounts, ...]:
    """Return the records by trigger, over all subtasks."""
    found: dict[int | None, list[int]] = {}
    for one in (one for part in parts for one in part.read):
        counts = found.setdefault(one.planned_ms, [0, 0])
        counts[0] += one.rows
        counts[1] += one.bad
    return tuple(TriggerCounts(planned_ms, rows, bad) for planned_ms, (rows, bad) in found.items())


def too_many_bad_records(source: str, count: int, limit: int, bad: BadInput) -> str:
    """Return that too many records of a source cannot be read."""
    return f"source {source}: at least {count} records cannot be read, max_bad_records is {limit}{_named(bad)}"


def bad_ratio_too_high(source: str, read: TriggerCounts, ratio: float, bad: BadInput) -> str:
    """Return that too large a share of a source's records cannot be read."""
    records = read.rows + read.bad
    share = f"{read.bad} of {records} records cannot be read ({read.bad / records:.2%})"
    return f"source {source}: {share}, max_bad_ratio is {ratio:g}{_named(bad)}"


def _named(bad: BadInput) -> str:
    return ", such as " + "; ".join(place.describe() for place in bad.first)
