"""Compact rows of epochs, for charts and verdicts over thousands of them."""

from __future__ import annotations

from typing import NamedTuple

ROW_BYTES = 600
"""Approximate size of a row in memory."""

TIMES = ("trigger_time", "end_time")


class EpochRow(NamedTuple):
    """An epoch that completed or was aborted. Times are in ms since the epoch; None: unknown.

    Attributes:
        refused_by: rules that vetoed it. groups: milliseconds by phase group, in the order of `PHASE_GROUPS`; ():
            not measured, or not read.
    """

    checkpoint_id: int
    epoch: int | None
    timeline: str
    parent: int
    token: int
    version: int
    status: str
    reason: str | None
    refused_by: list[str] | None
    trigger_time: int | None
    end_time: int | None
    duration_ms: int | None
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None
    dropped_rows: int | None
    bad_records: int | None
    lag_ms: int | None
    quality: str | None
    code_hash: str | None
    spec_hash: str | None
    judged_rows: int | None = None
    rejected_rows: int | None = None
    groups: tuple[int, ...] = ()

    @property
    def is_completed(self) -> bool:
        return self.status == "completed"


def late_share(late_rows: int, rows_in: int, bad_records: int) -> float:
    """Return the share of late rows among the rows read, 0 to 1. A row may be late at several operators."""
    read = rows_in + bad_records
    return min(1.0, late_rows / read) if read else 0.0


COLUMNS = EpochRow._fields[:-1]
"""Columns of all fields but `groups`, which are read from the column `PHASES`."""

PHASES = "phases"
