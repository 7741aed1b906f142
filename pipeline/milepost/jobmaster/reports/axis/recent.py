"""The newest epochs of a job in a few figures each, for a list of many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from milepost.errors import StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow, late_share
from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.figures.stored_rows import StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext

_TWO_DAYS_MS = 2 * 86_400_000


@dataclass(frozen=True, slots=True)
class RecentEpoch:
    """A completed epoch; None: unknown. late_share: of the rows that it read, 0 to 1."""

    checkpoint_id: int
    rows_in: int | None
    duration_ms: int | None
    late_share: float | None


def recent_epochs(context: JobContext, limit: int) -> tuple[RecentEpoch, ...]:
    """Return the newest epochs of the live lineage that have stored figures, oldest first."""
    head = context.log.head()
    newest = None if head is None else head.state.head()
    if head is None or newest is None:
        return ()
    try:
        # Most jobs have so many epochs within two days, and a listing of two days is short.
        for first_day in (day_of(newest.completed_time_ms - _TWO_DAYS_MS), ""):
            days = StoredRows(context.store).epochs(first_day)
            rows = [*islice(completed_lineage(days, int(newest.checkpoint_id), head.state.live), limit)]
            if len(rows) == limit:
                break
    except StoreUnavailable:  # epochs merge these rows: the list is shown without them
        return ()
    return tuple(
        RecentEpoch(row.checkpoint_id, row.rows_in, row.duration_ms, _late_share(row)) for row in reversed(rows)
    )


def _late_share(row: EpochRow) -> float | None:
    if row.late_rows is None or row.rows_in is None:
        return None
    return late_share(row.late_rows, row.rows_in, row.bad_records or 0)
