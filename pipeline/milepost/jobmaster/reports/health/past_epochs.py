"""Collect the past epochs that are the baseline of a health verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from milepost.errors import StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.stored_rows import StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.verdict import EpochCounts, epoch_counts
from milepost.protocol.records import NO_CHECKPOINT, ManifestState
from milepost.protocol.retention import timeline_ancestry

MAX_DAYS, MIN_DAYS, ENOUGH = 3, 2, 288
"""Days of stored figures to read, newest first: three, or two if they have `ENOUGH` epochs.

An hourly job has 72 epochs in three days, one of every five minutes 288 in a day. Two days include a whole one, because
only the newest is incomplete.
"""


@dataclass(frozen=True, slots=True)
class PastEpochs:
    """The completed epochs of the live lineage, oldest first, and the stored rows of aborted ones."""

    completed: tuple[EpochCounts, ...] = ()
    aborted: tuple[EpochRow, ...] = ()


def past_epochs(context: JobContext, state: ManifestState) -> PastEpochs:
    """Return the retained epochs, and those of the last days that have stored figures.

    A day that cannot be read is omitted, so the baseline comes from the other days. Charts name the omitted day.
    """
    retained = timeline_ancestry(state, state.timeline())
    known = {checkpoint.checkpoint_id for checkpoint in retained}
    epochs = [epoch_counts(checkpoint) for checkpoint in retained]
    days = _days(context, state)
    head = int(state.timeline().head)
    lineage = completed_lineage(days, head, state.live) if head else ()
    epochs += [_counts(row) for row in lineage if row.end_time is not None and row.checkpoint_id not in known]
    aborted = (row for rows in days for row in rows if not row.is_completed and row.version <= state.version)
    return PastEpochs(tuple(sorted(epochs, key=lambda epoch: epoch.completed_ms)), tuple(aborted))


def _days(context: JobContext, state: ManifestState) -> Sequence[Sequence[EpochRow]]:
    if state.timeline().head == NO_CHECKPOINT and not state.failures.last_checkpoint:
        return ()
    days: list[Sequence[EpochRow]] = []
    try:
        for rows in islice(StoredRows(context.store).epochs(), MAX_DAYS):
            days.append(rows)
            if len(days) >= MIN_DAYS and sum(map(len, days)) >= ENOUGH:
                break
        return days
    except StoreUnavailable:  # also raised while an epoch merges these days; the retained epochs suffice
        return ()


def _counts(row: EpochRow) -> EpochCounts:
    watermark_ms = None if row.trigger_time is None or row.lag_ms is None else row.trigger_time - row.lag_ms
    return EpochCounts(
        checkpoint_id=row.checkpoint_id,
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
