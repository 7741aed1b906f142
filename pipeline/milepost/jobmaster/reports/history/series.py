"""Figures of a job's epochs over time, for charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from milepost.epoch import watermark_us
from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import read_post_commit_times
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, epoch_cost
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.reports.timings import phases_of, requests_of
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import CompletedCheckpoint, ManifestState
from milepost.storage import OBJECT_CACHE, StoreRequests
from milepost.storage.concurrency import parallel_map

_MEASURED_BYTES = 2 << 10
"""Approximate size of the cached measurements of an epoch."""


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """Figures of one completed epoch of the live lineage; None: unknown, or no longer known.

    Attributes:
        phases: milliseconds by phase, with the total; None once the checkpoint is not retained.
        unreadable: why the measurements of a retained checkpoint cannot be read; None: they can, or it is not retained.
        left_out: whether the measurements of a retained checkpoint were not read, to limit the number of reads.
        checkpointed_bytes: state that the epoch wrote. state_bytes: total size of its state.
        lag_ms: how far its watermark was behind its trigger.
        requests: to S3, and cost at the spec's prices; None once the checkpoint is not retained.
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


def series_of(context: JobContext, limit: int, most_read: int | None = None) -> list[EpochFigures]:
    """Return the figures of the newest completed epochs of the live lineage, oldest first; [] before the first.

    The series ends where the log is compacted. A damaged checkpoint has only the figures in the log, and `unreadable`.

    Args:
        most_read: maximum number of retained checkpoints whose measurements are read, newest first. Cached ones do not
            count. None: no limit.
    """
    state = context.head().state
    series = _Series(context, state, {checkpoint.checkpoint_id: checkpoint for checkpoint in state.checkpoints})
    reports = History(context).live(limit)
    unread = [report.checkpoint_id for report in reports if series.is_unread(report.checkpoint_id)]
    left_out = frozenset(unread[most_read:] if most_read is not None else ())
    return parallel_map(context.store, partial(_figures, series, left_out), reversed(reports))


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The measurements of a retained checkpoint."""

    phases: Mapping[str, int | None]
    requests: StoreRequests
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

    def measured(self, checkpoint_id: int) -> _Measurements | None:
        """Return the measurements of a checkpoint; None: not retained. Raises StateCorrupt.

        Measurements are final, and therefore cached, once all sinks have confirmed and another epoch has completed.
        """
        checkpoint = self.retained.get(checkpoint_id)
        if checkpoint is None:
            return None
        if checkpoint.unconfirmed or checkpoint_id == self.state.timeline().head:
            return self._read(checkpoint)
        return OBJECT_CACHE.read(
            self.context.store, self._cache_key(checkpoint), _MEASURED_BYTES, lambda: self._read(checkpoint)
        )

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
        return _Measurements(phases_of(metadata, after), sum(requests.values(), StoreRequests()), cost)


def _figures(series: _Series, left_out: Collection[int], report: CheckpointReport) -> EpochFigures:
    measured, unreadable = None, None
    try:
        measured = None if report.checkpoint_id in left_out else series.measured(report.checkpoint_id)
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
        left_out=report.checkpoint_id in left_out,
    )


def _lag_ms(report: CheckpointReport) -> int | None:
    if report.trigger_time is None or not isinstance(report.watermark, str):
        return None
    watermark = watermark_us(report.watermark)
    if watermark == END_OF_TIME_US:
        return None
    return round(datetime.fromisoformat(report.trigger_time).timestamp() * 1000) - watermark // 1000
