"""Figures of a job's epochs over time, for charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from milepost.epoch import iso_ms, recorded_watermark_us
from milepost.errors import StateCorrupt
from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.figures.stored_rows import StoredRow, StoredRows, lineage
from milepost.jobmaster.figures.timings import measured_duration_ms, phases_of, requests_of
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import read_post_commit_times
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, cost_of, epoch_cost
from milepost.jobmaster.reports.history.history import History
from milepost.language.times import EPOCH, in_ms
from milepost.protocol.records import NO_CHECKPOINT, CompletedCheckpoint, ManifestState
from milepost.storage import OBJECT_CACHE, StoreRequests
from milepost.storage.concurrency import parallel_map

_MEASURED_BYTES = 2 << 10
"""Approximate size of the cached measurements of an epoch."""


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """Figures of one completed epoch of the live lineage; None: unknown, or no longer known.

    Attributes:
        phases: milliseconds by phase, with the total; None if they were not measured.
        unreadable: why the measurements of a retained checkpoint cannot be read; None: they can, or it is not retained.
        left_out: whether the measurements of a retained checkpoint were not read, to limit the number of reads.
        checkpointed_bytes: state that the epoch wrote. state_bytes: total size of its state.
        lag_ms: how far its watermark was behind its trigger.
        requests: to S3, and cost at the spec's prices.
    """

    checkpoint_id: int
    epoch: int | None
    trigger_time: str | None
    duration_ms: int | None
    phases: Mapping[str, int | None] | None
    rows_in: Any
    rows_out: Any
    late_rows: Any
    checkpointed_bytes: Any
    state_bytes: Any
    in_flight_bytes: Any
    lag_ms: int | None
    requests: StoreRequests | None
    cost: EpochCost | None
    unreadable: str | None = None
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class FiguresSeries:
    """Figures of epochs, oldest first.

    Attributes:
        unreadable: why stored figures of past epochs cannot be read, one line per object. Their epochs are left out.
    """

    epochs: list[EpochFigures] = field(default_factory=list)
    unreadable: tuple[str, ...] = ()


def series_of(
    context: JobContext, limit: int, most_read: int | None = None, since_ms: int | None = None
) -> FiguresSeries:
    """Return the figures of the newest completed epochs of the live lineage; none before the first.

    Retained epochs are read from their checkpoints, older ones from their permanent rows, day by day as far as they are
    needed. A damaged checkpoint has only the figures in the log, and `unreadable`.

    Args:
        limit: maximum number of epochs.
        most_read: maximum number of retained checkpoints whose measurements are read, newest first. Cached ones do not
            count. None: no limit. The others have the figures of their rows.
        since_ms: only epochs that were triggered at that time or later, in ms since the epoch; None: all.
    """
    state = context.head().state
    series = _Series(context, state, {checkpoint.checkpoint_id: checkpoint for checkpoint in state.checkpoints})
    live = History(context).live(limit)
    reports = [report for report in live if not _is_before(report.trigger_time, since_ms)]
    unread = [report.checkpoint_id for report in reports if series.is_unread(report.checkpoint_id)]
    left_out = frozenset(unread[most_read:] if most_read is not None else ())
    by_row = {report.checkpoint_id for report in reports if report.checkpoint_id not in series.retained} | left_out
    is_complete = len(live) == limit or len(reports) < len(live) or (bool(live) and live[-1].epoch == 1)
    stored = StoredRows(context.store)
    rows: dict[int, StoredRow] = {}
    if state.timeline().head != NO_CHECKPOINT and (by_row or not is_complete):
        days = stored.days("" if since_ms is None else day_of(max(0, since_ms)))
        shown = {report.checkpoint_id for report in reports}
        for row in lineage(days, state.timeline().head, state.live):
            is_older = row.checkpoint_id not in shown
            if is_older and (is_complete or len(shown) == limit or _is_before(row.trigger_time, since_ms)):
                break
            if is_older or row.checkpoint_id in by_row:
                rows[row.checkpoint_id] = row
            shown.add(row.checkpoint_id)
    epochs = parallel_map(context.store, partial(_figures, series, left_out, rows), reversed(reports))
    older = [row for row in rows.values() if row.checkpoint_id not in {report.checkpoint_id for report in reports}]
    return FiguresSeries([*(_stored_figures(series, row) for row in reversed(older)), *epochs], (*stored.unreadable,))


def _is_before(time: str | int | None, since_ms: int | None) -> bool:
    """Return whether a time, as text or in ms since the epoch, is known and before a limit."""
    if time is None or since_ms is None:
        return False
    return (in_ms(datetime.fromisoformat(time) - EPOCH) if isinstance(time, str) else time) < since_ms


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The measurements of an epoch; None: unknown."""

    phases: Mapping[str, int | None] | None
    requests: StoreRequests | None
    cost: EpochCost | None


@dataclass(frozen=True, slots=True)
class _Series:
    """The shared context of one series. retained: checkpoints by id."""

    context: JobContext
    state: ManifestState
    retained: Mapping[int, CompletedCheckpoint]

    def is_unread(self, checkpoint_id: int) -> bool:
        """Return whether the measurements of a checkpoint are not cached yet."""
        checkpoint = self.retained.get(checkpoint_id)
        return checkpoint is not None and not OBJECT_CACHE.has(self.context.store, self._cache_key(checkpoint))

    def measured(self, checkpoint_id: int, left_out: Collection[int]) -> _Measurements | None:
        """Return the measurements of a checkpoint; None: not retained, or left out. Raises StateCorrupt.

        Measurements are final, and therefore cached, once all sinks have confirmed and another epoch has completed.
        """
        checkpoint = self.retained.get(checkpoint_id)
        if checkpoint is None or checkpoint_id in left_out:
            return None
        if checkpoint.unconfirmed or checkpoint_id == self.state.timeline().head:
            return self._read(checkpoint)
        return OBJECT_CACHE.read(
            self.context.store, self._cache_key(checkpoint), _MEASURED_BYTES, lambda: self._read(checkpoint)
        )

    def stored(self, row: StoredRow) -> _Measurements:
        """Return the measurements in the row of an epoch, with its cost at the current prices."""
        requests = None if row.requests is None else StoreRequests(**row.requests)
        cost = None if requests is None else cost_of(self.context.spec.prices, requests, row.task_ms or 0)
        return _Measurements(row.phases, requests, cost)

    def _cache_key(self, checkpoint: CompletedCheckpoint) -> tuple[str, str, str]:
        prices = self.context.spec.prices
        what = f"measured {prices.model_dump_json() if prices is not None else ''}"
        return what, checkpoint.metadata.key, checkpoint.metadata.sha256

    def _read(self, checkpoint: CompletedCheckpoint) -> _Measurements:
        reads: list[Callable[[], Any]] = [
            partial(self.context.metadata, checkpoint),
            partial(read_post_commit_times, self.context, checkpoint.checkpoint_id, checkpoint.token),
        ]
        metadata, after = parallel_map(self.context.store, lambda read: read(), reads)
        requests = requests_of(metadata, after)
        cost = epoch_cost(self.context.spec.prices, requests, metadata.tasks)
        phases = phases_of(metadata, after, measured_duration_ms(checkpoint))
        return _Measurements(phases, sum(requests.values(), StoreRequests()), cost)


def _figures(
    series: _Series, left_out: Collection[int], rows: Mapping[int, StoredRow], report: CheckpointReport
) -> EpochFigures:
    """Return the figures of an epoch that is retained or in the log."""
    measured, unreadable, row = None, None, rows.get(report.checkpoint_id)
    try:
        measured = series.stored(row) if row is not None else series.measured(report.checkpoint_id, left_out)
    except StateCorrupt as error:
        unreadable = error.message
    return EpochFigures(
        checkpoint_id=report.checkpoint_id,
        epoch=report.epoch,
        trigger_time=report.trigger_time,
        duration_ms=report.duration_ms,
        phases=None if measured is None else measured.phases,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        late_rows=report.late_rows,
        checkpointed_bytes=report.checkpointed_bytes,
        state_bytes=report.full_bytes,
        in_flight_bytes=report.in_flight_bytes,
        lag_ms=_lag_ms(report),
        requests=None if measured is None else measured.requests,
        cost=None if measured is None else measured.cost,
        unreadable=unreadable,
        left_out=report.checkpoint_id in left_out and row is None,
    )


def _stored_figures(series: _Series, row: StoredRow) -> EpochFigures:
    """Return the figures of an epoch of which only the row is left."""
    measured = series.stored(row)
    return EpochFigures(
        checkpoint_id=row.checkpoint_id,
        epoch=row.epoch,
        trigger_time=None if row.trigger_time is None else iso_ms(row.trigger_time),
        duration_ms=row.duration_ms,
        phases=measured.phases,
        rows_in=row.rows_in,
        rows_out=row.rows_out,
        late_rows=row.late_rows,
        checkpointed_bytes=row.checkpointed_bytes,
        state_bytes=row.state_bytes,
        in_flight_bytes=row.in_flight_bytes,
        lag_ms=row.lag_ms,
        requests=measured.requests,
        cost=measured.cost,
    )


def _lag_ms(report: CheckpointReport) -> int | None:
    watermark = recorded_watermark_us(report.watermark)
    if report.trigger_time is None or watermark is None:
        return None
    return round(datetime.fromisoformat(report.trigger_time).timestamp() * 1000) - watermark // 1000
