"""The newest epochs of a job in a few figures each, for a list of many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from milepost.errors import StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow, late_share
from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.figures.stored_rows import StoredRows, completed_lineage
from milepost.jobmaster.reports.history.percentiles import percentile
from milepost.protocol.records import ManifestState, ObjectStore

RECENT_EPOCHS = 30
"""How many epochs the list of jobs shows, and what a duration is compared with."""

_TWO_DAYS_MS = 2 * 86_400_000


@dataclass(frozen=True, slots=True)
class RecentEpoch:
    """A completed epoch; None: unknown. late_share: of the rows that it read, 0 to 1."""

    checkpoint_id: int
    rows_in: int | None
    duration_ms: int | None
    late_share: float | None


def recent_epochs(store: ObjectStore, state: ManifestState) -> tuple[RecentEpoch, ...]:
    """Return the newest `RECENT_EPOCHS` epochs of the live lineage that have stored figures, oldest first."""
    newest = state.head()
    if newest is None:
        return ()
    try:
        # Most jobs have so many epochs within two days, and a listing of two days is short.
        for first_day in (day_of(newest.completed_time_ms - _TWO_DAYS_MS), ""):
            days = StoredRows(store).epochs(first_day)
            rows = [*islice(completed_lineage(days, int(newest.checkpoint_id), state.live), RECENT_EPOCHS)]
            if len(rows) == RECENT_EPOCHS:
                break
    except StoreUnavailable:  # epochs merge these rows: the list is shown without them
        return ()
    return tuple(
        RecentEpoch(row.checkpoint_id, row.rows_in, row.duration_ms, _late_share(row)) for row in reversed(rows)
    )


def usual_duration_ms(epochs: Sequence[RecentEpoch]) -> int | None:
    """Return how long nine of ten epochs took at most; None: no duration is known."""
    took = sorted(epoch.duration_ms for epoch in epochs if epoch.duration_ms is not None)
    return round(percentile(took, 0.9)) if took else None


def _late_share(row: EpochRow) -> float | None:
    if row.late_rows is None or row.rows_in is None:
        return None
    return late_share(row.late_rows, row.rows_in, row.bad_records or 0)
