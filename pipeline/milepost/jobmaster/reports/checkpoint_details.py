"""Checkpoint details are what `show` adds from the metadata of a retained checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milepost.dataflow.quality.verdict import GateVerdict
from milepost.dataflow.sources.bad_input import BadPlace
from milepost.epoch.iso_times import iso_ms, watermark_text
from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot, SourceSnapshot
from milepost.epoch.task_times import TaskTimes
from milepost.jobmaster.job.code import code_differences
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extended import extended
from milepost.jobmaster.reports.checkpoint_document import CheckpointReport
from milepost.jobmaster.reports.static_sources import StaticSourceDetails, static_source_details
from milepost.jobmaster.reports.timings import AfterCommit, kept, notified_of, phases_of, requests_of
from milepost.protocol.exchange.declines import recreated
from milepost.protocol.records.checkpoints import CompletedCheckpoint, SubtaskKey
from milepost.protocol.records.ids import CheckpointId
from milepost.storage.requests import StoreRequests


@dataclass(frozen=True, slots=True)
class AheadObject:
    """An object with rows further ahead than `max_event_time_ahead`."""

    object: str
    rows: int
    newest_event_time: str | None


@dataclass(frozen=True, slots=True)
class RowsAheadReport:
    """How many rows of a source were too far ahead to move its watermark, and the first objects with such."""

    rows: int
    objects: tuple[AheadObject, ...]


@dataclass(frozen=True, slots=True)
class BadInputReport:
    """What of a source could not be read and is in its dead letters; see `BadInput`. first: without their values."""

    records: int
    objects: int
    total: int
    first: tuple[BadPlace, ...]


@dataclass(frozen=True, slots=True)
class SourceDetails:
    """What an epoch read of a source; see `SourceSnapshot`."""

    rows: int
    objects: int
    missing: tuple[str, ...]
    skipped: Mapping[str, int]
    bad_names: tuple[str, ...]
    newest_event_time: str | None
    ahead: RowsAheadReport
    bad: BadInputReport
    overdue: bool
    idle: bool
    horizon: str | None
    watermark_us: int | None
    finished: bool


@dataclass(frozen=True, slots=True)
class OperatorDetails:
    """What a stateful operator took, gave and keeps; see `OperatorSnapshot`."""

    rows_in: int
    rows_out: int
    late_rows: int
    state_rows: int
    full_bytes: int
    runs: int
    firing_watermark_us: int | None
    firing_watermark: str | None
    in_flight_bytes: int


@dataclass(frozen=True, slots=True)
class AcknowledgementReport:
    """A subtask, and the digest of the attempt that counts."""

    level: int
    subtask: int
    attempt_digest: str


@dataclass(frozen=True, slots=True)
class RecreationReport:
    """A subtask that Spark had to run more than once; each attempt began at the base."""

    level: int
    subtask: int
    attempts: int
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDetails(CheckpointReport):
    """A retained checkpoint in full; see `CheckpointMetadata`.

    Attributes:
        phases: milliseconds, None for what was not measured. notified_ms: by sink.
        requests: to S3, by phase, `timings.REQUEST_PHASES`; {} when none was made.
        code_differs: what of the code that ran is not what would run now; None when that was not recorded.
    """

    base: int
    final: bool
    held_back: str | None
    sources: Mapping[str, SourceDetails]
    static_sources: Mapping[str, StaticSourceDetails]
    operators: Mapping[str, OperatorDetails]
    sink_rows: Mapping[str, int]
    verdict: GateVerdict
    acknowledged: tuple[AcknowledgementReport, ...]
    tasks: tuple[TaskTimes, ...]
    recreated: tuple[RecreationReport, ...]
    phases: Mapping[str, int | None]
    notified_ms: Mapping[str, int]
    requests: Mapping[str, StoreRequests]
    code: Mapping[str, str]
    code_differs: tuple[str, ...] | None
    spec: str


def detailed(
    context: JobContext,
    report: CheckpointReport,
    checkpoint: CompletedCheckpoint,
    after: Sequence[AfterCommit] | None = None,
) -> CheckpointDetails:
    """Return a checkpoint's report with what its metadata tells, and what was measured after its commit.

    Args:
        after: when it is known; None: it is read.
    """
    metadata = context.metadata(checkpoint)
    measured = kept(context, checkpoint.checkpoint_id, checkpoint.token) if after is None else after
    differences = code_differences(context, metadata)
    return extended(
        CheckpointDetails,
        report,
        base=metadata.base,
        final=metadata.final,
        held_back=metadata.held_back,
        sources={name: _source(source) for name, source in metadata.sources.items()},
        static_sources={name: static_source_details(item) for name, item in metadata.dimensions.items()},
        operators={uid: _operator(item) for uid, item in metadata.operators.items()},
        sink_rows={name: item.rows for name, item in metadata.sinks.items()},
        verdict=metadata.verdict,
        acknowledged=tuple(
            AcknowledgementReport(item.level, item.subtask, item.attempt_digest) for item in metadata.acknowledged
        ),
        tasks=metadata.tasks,
        recreated=_recreated(metadata),
        phases=phases_of(metadata, measured),
        notified_ms=notified_of(measured),
        requests=requests_of(metadata, measured),
        code=metadata.code,
        code_differs=None if differences is None else tuple(differences),
        spec=metadata.spec_text,
    )


def _source(source: SourceSnapshot) -> SourceDetails:
    ahead = tuple(AheadObject(one.key, one.rows, watermark_text(one.newest_us)) for one in source.ahead)
    return SourceDetails(
        rows=source.rows,
        objects=source.objects,
        missing=tuple(source.missing),
        skipped=source.skipped,
        bad_names=tuple(source.bad_names),
        newest_event_time=watermark_text(source.newest_event_us),
        ahead=RowsAheadReport(source.ahead_rows, ahead),
        bad=BadInputReport(source.bad.records, source.bad.objects, source.bad.total, source.bad.first),
        overdue=source.overdue,
        idle=source.idle,
        horizon=None if source.horizon_ms is None else iso_ms(source.horizon_ms),
        watermark_us=source.watermark_us,
        finished=source.finished,
    )


def _operator(item: OperatorSnapshot) -> OperatorDetails:
    return OperatorDetails(
        rows_in=item.rows_in,
        rows_out=item.rows_out,
        late_rows=item.late_rows,
        state_rows=sum(handle.live_rows for handle in item.handles),
        full_bytes=sum(handle.full_bytes for handle in item.handles),
        runs=sum(len(handle.runs) for handle in item.handles),
        firing_watermark_us=item.firing_us,
        firing_watermark=watermark_text(item.firing_us),
        in_flight_bytes=item.in_flight_bytes,
    )


def _recreated(metadata: CheckpointMetadata) -> tuple[RecreationReport, ...]:
    measured = [(SubtaskKey(task.level, task.subtask), task.attempt) for task in metadata.tasks]
    return tuple(
        RecreationReport(one.subtask.level, one.subtask.subtask, one.attempts, int(one.base))
        for one in recreated(measured, CheckpointId(metadata.base))
    )
