"""Merge epochs that are too close on an axis of time to draw separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from milepost.epoch import iso_ms
from milepost.jobmaster.figures.epoch_rows import EpochRow, late_share
from milepost.jobmaster.figures.timings import PHASE_GROUPS
from milepost.protocol.records import QUALITY_GATE_REASONS
from milepost.quality import VerdictStatus

AXIS_COLUMNS = 360
"""Columns of an axis. On a page of 1,500 pixels each has four."""

_VETOES = frozenset(reason.value for reason in QUALITY_GATE_REASONS)


class Outcome(StrEnum):
    """How an epoch ended, the worst first."""

    VETOED = "vetoed"
    ABORTED = "aborted"
    WARNED = "warned"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class AxisColumn:
    """The epochs of one timeline that began within one column. The bar is the longest of them.

    Attributes:
        column: its number, from 0. checkpoint_id, began, duration_ms, phases: of the longest epoch; of the worst one if
            one did not complete. phases: milliseconds by phase group; {}: not measured.
        epochs: how many. last: checkpoint of the newest one. outcome: the worst.
        reason: why the shown epoch was aborted. refused_by: rules that vetoed it.
        rows_in, late_rows, dropped_rows, bad_records: of all. live: whether the head continues one of them.
    """

    column: int
    checkpoint_id: int
    last: int
    epochs: int
    began: str
    duration_ms: int
    phases: Mapping[str, int]
    outcome: Outcome
    reason: str | None
    refused_by: tuple[str, ...]
    rows_in: int
    late_rows: int
    dropped_rows: int
    bad_records: int
    live: bool

    @property
    def late_share(self) -> float:
        """The share of late rows, 0 to 1."""
        return late_share(self.late_rows, self.rows_in, self.bad_records)


@dataclass(slots=True)
class _Merged:
    """The rows of a column so far. shown: the worst one, of equally bad ones the longest."""

    shown: EpochRow
    outcome: Outcome
    last: int
    rows: list[EpochRow] = field(default_factory=list)
    live: bool = False


@dataclass(frozen=True, slots=True)
class AxisSpan:
    """The time that an axis shows, in ms since the epoch."""

    start: int
    end: int

    def column(self, time: int) -> int:
        """Return the column of a time: of 0 to 720, 2 is in column 1 of 360."""
        return min(AXIS_COLUMNS - 1, max(0, (time - self.start) * AXIS_COLUMNS // max(1, self.end - self.start)))

    def share(self, time: int) -> float:
        """Return where a time is, from 0 for the start to 1 for the end."""
        return min(1.0, max(0.0, (time - self.start) / max(1, self.end - self.start)))


def merged_columns(rows: Iterable[EpochRow], span: AxisSpan, live: frozenset[int]) -> list[AxisColumn]:
    """Return the columns of one timeline, ascending.

    Args:
        rows: with a known begin. live: checkpoints that the live head continues.
    """
    columns: dict[int, _Merged] = {}
    for row in rows:
        number, outcome = span.column(row.trigger_time or 0), outcome_of(row)
        merged = columns.get(number)
        if merged is None:
            merged = columns[number] = _Merged(row, outcome, row.checkpoint_id)
        elif _rank(outcome, row) > _rank(merged.outcome, merged.shown):
            merged.shown, merged.outcome = row, outcome
        merged.rows.append(row)
        merged.last = max(merged.last, row.checkpoint_id)
        merged.live = merged.live or row.checkpoint_id in live
    return [_column(number, columns[number]) for number in sorted(columns)]


def outcome_of(row: EpochRow) -> Outcome:
    """Return how an epoch ended."""
    if not row.is_completed:
        return Outcome.VETOED if row.reason in _VETOES else Outcome.ABORTED
    return Outcome.WARNED if row.quality == VerdictStatus.WARNING.value else Outcome.COMPLETED


def _rank(outcome: Outcome, row: EpochRow) -> tuple[int, int]:
    return -_ORDER[outcome], row.duration_ms or 0


_ORDER = {outcome: at for at, outcome in enumerate(Outcome)}


def _column(number: int, merged: _Merged) -> AxisColumn:
    shown, rows = merged.shown, merged.rows
    return AxisColumn(
        column=number,
        checkpoint_id=shown.checkpoint_id,
        last=merged.last,
        epochs=len(rows),
        began=iso_ms(shown.trigger_time or 0),
        duration_ms=shown.duration_ms or 0,
        phases=dict(zip(PHASE_GROUPS, shown.groups, strict=True)) if shown.groups else {},
        outcome=merged.outcome,
        reason=shown.reason,
        refused_by=tuple(shown.refused_by or ()),
        rows_in=_total(row.rows_in for row in rows),
        late_rows=_total(row.late_rows for row in rows),
        dropped_rows=_total(row.dropped_rows for row in rows),
        bad_records=_total(row.bad_records for row in rows),
        live=merged.live,
    )


def _total(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)
