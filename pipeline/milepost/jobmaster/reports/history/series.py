"""The series of a job: figures of its epochs over time, as a chart needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from milepost.epoch.iso_times import watermark_us
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import kept
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, epoch_cost
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.reports.timings import phases_of, requests_of
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.storage.concurrency.at_once import at_once
from milepost.storage.requests import StoreRequests


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """Figures of one completed epoch of the live lineage; None for what is not known, or not any more.

    Attributes:
        phases: milliseconds by phase, with the total; None once the checkpoint is not retained.
        unreadable: why the measurements of one that is retained cannot be read; None: they can be, or it is not.
        checkpointed_bytes: what it wrote for state. state_bytes: what its state refers to in all.
        lag_ms: how far its watermark was behind its trigger.
        requests: to S3, and cost by the prices of the spec; None once the checkpoint is not retained.
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


def series_of(context: JobContext, limit: int) -> list[EpochFigures]:
    """Return the figures of the newest completed epochs of the live lineage, oldest first; [] before the first.

    A checkpoint that is damaged has the figures of the log, and says why there are no more: none hides the others.
    """
    state = context.head().state
    return at_once(context.store, partial(_figures, context, state), reversed(History(context).live(limit)))


def _figures(context: JobContext, state: ManifestState, report: CheckpointReport) -> EpochFigures:
    measured, unreadable = None, None
    try:
        measured = _measured(context, state.checkpoint(CheckpointId(report.checkpoint_id)))
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
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """What is measured of a retained checkpoint."""

    phases: Mapping[str, int | None]
    requests: StoreRequests
    cost: EpochCost | None


def _measured(context: JobContext, checkpoint: CompletedCheckpoint | None) -> _Measured | None:
    if checkpoint is None:
        return None
    metadata, after = context.metadata(checkpoint), kept(context, checkpoint.checkpoint_id, checkpoint.token)
    requests = requests_of(metadata, after)
    cost = epoch_cost(context.spec.prices, requests, metadata.tasks)
    return _Measured(phases_of(metadata, after), sum(requests.values(), StoreRequests()), cost)


def _lag_ms(report: CheckpointReport) -> int | None:
    if report.trigger_time is None or not isinstance(report.watermark, str):
        return None
    watermark = watermark_us(report.watermark)
    if watermark == END_OF_TIME_US:
        return None
    return round(datetime.fromisoformat(report.trigger_time).timestamp() * 1000) - watermark // 1000
