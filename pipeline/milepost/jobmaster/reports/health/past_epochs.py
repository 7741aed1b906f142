"""Collect the past epochs with which a verdict compares the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from milepost.errors import StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.stored_rows import StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.verdict import EpochCounts, epoch_counts
from milepost.protocol.records import NO_CHECKPOINT, ManifestState
from milepost.protocol.retention import timeline_ancestry

MAX_DAYS = 3
"""Days of stored figures that are read, newest first. An hourly job has 72 epochs in them."""


def past_epochs(context: JobContext, state: ManifestState) -> list[EpochCounts]:
    """Return the completed epochs of the live lineage, oldest first: the retained ones, and those of the last days.

    An unreadable day is left out: what is usual then comes from the others. A chart names it.
    """
    retained = timeline_ancestry(state, state.timeline())
    known = {checkpoint.checkpoint_id for checkpoint in retained}
    epochs = [epoch_counts(checkpoint) for checkpoint in retained]
    epochs += [_counts(row) for row in _stored(context, state) if row.checkpoint_id not in known]
    return sorted(epochs, key=lambda epoch: epoch.completed_ms)


def _stored(context: JobContext, state: ManifestState) -> Sequence[EpochRow]:
    head = state.timeline().head
    if head == NO_CHECKPOINT:
        return ()
    try:
        days = list(islice(StoredRows(context.store).epochs(), MAX_DAYS))
    except StoreUnavailable:  # also while epochs merge these days; the retained epochs are known
        return ()
    return [row for row in completed_lineage(days, head, state.live) if row.end_time is not None]


def _counts(row: EpochRow) -> EpochCounts:
    watermark_ms = None if row.trigger_time is None or row.lag_ms is None else row.trigger_time - row.lag_ms
    return EpochCounts(
        completed_ms=row.end_time or 0,
        rows=(row.rows_in or 0) + (row.bad_records or 0),
        late=row.late_rows,
        dropped=row.dropped_rows,
        bad=row.bad_records,
        judged=row.judged_rows,
        rejected=row.rejected_rows,
        watermark_us=None if watermark_ms is None else watermark_ms * 1000,
        quality=row.quality,
    )
