"""Build the full report of a retained checkpoint from its metadata, for `show`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import SINK, CheckpointMetadata, SourceSnapshot, iso_ms, watermark_text
from milepost.epoch.timing import TaskTimes
from milepost.jobmaster.figures.timings import (
    StepTimes,
    measured_duration_ms,
    notify_times_by_sink,
    phases_of,
    requests_of,
    steps_of,
)
from milepost.jobmaster.job.code import code_differences
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extend_record import extend_record
from milepost.jobmaster.job.measurements import PostCommitTimes, read_post_commit_times
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.checkpoint.input_read import InputRead, input_read
from milepost.jobmaster.reports.checkpoint.sinks import SinkDetails, sink_confirmation_times, sink_details
from milepost.jobmaster.reports.checkpoint.static_sources import StaticSourceDetails, static_source_details
from milepost.jobmaster.reports.checkpoint.subtasks import Spread, SubtaskDetails, Subtasks, spreads, uploaded_bytes
from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, epoch_cost
from milepost.protocol.exchange import find_recreated_subtasks
from milepost.protocol.records import CheckpointId, CompletedCheckpoint, SubtaskKey
from milepost.quality import GateVerdict
from milepost.sources import BadRecordLocation
from milepost.storage import StoreRequests
from milepost.storage.concurrency import parallel_map


@dataclass(frozen=True, slots=True)
class AheadObject:
    """An object with rows further ahead than `max_event_time_ahead`."""

    object: str
    rows: int
    newest_event_time: str | None


@dataclass(frozen=True, slots=True)
class RowsAheadReport:
    """Rows of a source that were too far ahead to move its watermark, and the first objects with such rows."""

    rows: int
    objects: tuple[AheadObject, ...]


@dataclass(frozen=True, slots=True)
class BadInputReport:
    """Unreadable input of a source, which is in its dead letters; see `BadInput`. first: without row values."""

    records: int
    objects: int
    total: int
    first: tuple[BadRecordLocation, ...]


@dataclass(frozen=True, slots=True)
class SourceDetails:
    """Input that an epoch read from a source; see `SourceSnapshot`.

    Attributes:
        read: the object versions; omitted from the output of `run`, and if their record is unreadable.
    """

    rows: int
    objects: int
    missing: tuple[str, ...]
    skipped: Mapping[str, int]
    bad_names: tuple[str, ...]
    empty: tuple[str, ...]
    newest_event_time: str | None
    ahead: RowsAheadReport
    bad: BadInputReport
    overdue: bool
    idle: bool
    horizon: str | None
    watermark_us: int | None
    watermark: str | None
    finished: bool
    subtasks: tuple[SubtaskDetails, ...]
    spread: Mapping[str, Spread]
    read: OmitNone[InputRead] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDetails:
    """Input, output and state of an operator; see `OperatorSnapshot`.

    Attributes:
        kind: as in the spec. rows_in, rows_out: None for SQL that only other SQL reads.
        late_rows and the following fields: None for stateless operators. uploaded_bytes: state that this epoch wrote.
        unaligned: whether a subtask stopped before the end of its input. alignment_ms: maximum over its subtasks.
    """

    kind: str
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None = None
    dropped_rows: int | None = None
    state_rows: int | None = None
    full_bytes: int | None = None
    uploaded_bytes: int | None = None
    runs: int | None = None
    firing_watermark_us: int | None = None
    firing_watermark: str | None = None
    in_flight_bytes: int | None = None
    alignment_ms: int | None = None
    unaligned: bool = False
    subtasks: tuple[SubtaskDetails, ...]
    spread: Mapping[str, Spread]


@dataclass(frozen=True, slots=True)
class AcknowledgementReport:
    """A subtask and the digest of its acknowledged attempt."""

    level: int
    subtask: int
    attempt_digest: str


@dataclass(frozen=True, slots=True)
class RecreationReport:
    """A subtask that Spark ran more than once. Each attempt started from the base.

    Attributes:
        nodes: the sources and operators that it executes.
    """

    level: int
    subtask: int
    nodes: tuple[str, ...]
    attempts: int
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDetails(CheckpointReport):
    """A retained checkpoint in full; see `CheckpointMetadata`.

    Attributes:
        operators: in topological order. published: by sink; omitted from the output of `run`.
        phases: milliseconds; None if not measured. notified_ms: by sink. steps: when each ran, in order.
        requests: to S3, by phase, `timings.REQUEST_PHASES`; {} if none was made.
        cost: of the epoch, at the current prices of the spec.
        code_differs: differences between its code and the current code; None if its code was not recorded.
    """

    base: int
    final: bool
    held_back: str | None
    sources: Mapping[str, SourceDetails]
    static_sources: Mapping[str, StaticSourceDetails]
    operators: Mapping[str, OperatorDetails]
    sink_rows: Mapping[str, int]
    published: OmitNone[Mapping[str, SinkDetails]] = None
    verdict: GateVerdict
    acknowledged: tuple[AcknowledgementReport, ...]
    tasks: tuple[TaskTimes, ...]
    recreated: tuple[RecreationReport, ...]
    phases: Mapping[str, int | None]
    notified_ms: Mapping[str, int]
    steps: tuple[StepTimes, ...]
    requests: Mapping[str, StoreRequests]
    cost: OmitNone[EpochCost] = None
    code: Mapping[str, str]
    code_differs: tuple[str, ...] | None
    spec: str


def checkpoint_details(
    context: JobContext,
    report: CheckpointReport,
    checkpoint: CompletedCheckpoint,
    after: Sequence[PostCommitTimes] | None,
    newest: int,
) -> CheckpointDetails:
    """Extend a checkpoint's report with its metadata and the times after its commit.

    Args:
        after: times after the commit, from the process that has just run the epoch; None: read them, and also the
            input record and when each sink confirmed the checkpoint.
        newest: version of the head.
    """
    reads: list[Callable[[], Any]] = [partial(context.metadata, checkpoint)]
    if after is None:
        reads += [
            partial(read_post_commit_times, context, checkpoint.checkpoint_id, checkpoint.token),
            partial(input_read, context, checkpoint.plan),
            partial(sink_confirmation_times, context.log, newest, checkpoint),
        ]
    metadata, *others = parallel_map(context.store, lambda read: read(), reads)
    measured, inputs, confirmed = others or (after or (), None, {})
    inputs = inputs or {}
    subtasks = Subtasks(metadata)
    differences = code_differences(context, metadata)
    requests = requests_of(metadata, measured)
    phases = phases_of(metadata, measured, measured_duration_ms(checkpoint))
    if phases["total_ms"] is not None:
        report = replace(report, duration_ms=phases["total_ms"])
    return extend_record(
        CheckpointDetails,
        report,
        base=metadata.base,
        final=metadata.final,
        held_back=metadata.held_back,
        sources={
            name: _source(source, subtasks.of_source(name), inputs.get(name))
            for name, source in metadata.sources.items()
        },
        static_sources={name: static_source_details(item) for name, item in metadata.dimensions.items()},
        operators={uid: _operator(metadata, subtasks, uid, kind) for uid, kind in subtasks.operators().items()},
        sink_rows={name: item.rows for name, item in metadata.sinks.items()},
        published=sink_details(checkpoint, metadata, subtasks, confirmed) if after is None else None,
        verdict=metadata.verdict,
        acknowledged=tuple(
            AcknowledgementReport(item.level, item.subtask, item.attempt_digest) for item in metadata.acknowledged
        ),
        tasks=metadata.tasks,
        recreated=_recreated(metadata),
        phases=phases,
        notified_ms=notify_times_by_sink(measured),
        steps=steps_of(metadata, measured),
        requests=requests,
        cost=epoch_cost(context.spec.prices, requests, metadata.tasks),
        code=metadata.code,
        code_differs=None if differences is None else tuple(differences),
        spec=metadata.spec_text,
    )


def _source(source: SourceSnapshot, subtasks: tuple[SubtaskDetails, ...], read: InputRead | None) -> SourceDetails:
    ahead = tuple(AheadObject(item.key, item.rows, watermark_text(item.newest_us)) for item in source.ahead)
    return SourceDetails(
        rows=source.rows,
        objects=source.objects,
        missing=tuple(source.missing),
        skipped=source.skipped,
        bad_names=tuple(source.bad_names),
        empty=tuple(source.empty),
        newest_event_time=watermark_text(source.newest_event_us),
        ahead=RowsAheadReport(source.ahead_rows, ahead),
        bad=BadInputReport(source.bad.records, source.bad.objects, source.bad.total, source.bad.first),
        overdue=source.overdue,
        idle=source.idle,
        horizon=None if source.horizon_ms is None else iso_ms(source.horizon_ms),
        watermark_us=source.watermark_us,
        watermark=watermark_text(source.watermark_us),
        finished=source.finished,
        subtasks=subtasks,
        spread=spreads(subtasks),
        read=read,
    )


def _operator(metadata: CheckpointMetadata, subtasks: Subtasks, uid: str, kind: str) -> OperatorDetails:
    own = subtasks.of_operator(uid)
    if uid not in metadata.operators:
        return OperatorDetails(
            kind=kind,
            rows_in=_sum(subtask.rows_in for subtask in own),
            rows_out=_sum(subtask.rows_out for subtask in own),
            subtasks=own,
            spread=spreads(own),
        )
    item = metadata.operators[uid]
    return OperatorDetails(
        kind=kind,
        rows_in=item.rows_in,
        rows_out=item.rows_out,
        late_rows=item.late_rows,
        dropped_rows=item.dropped_rows,
        state_rows=sum(handle.live_rows for handle in item.handles),
        full_bytes=sum({run.key: run.size for handle in item.handles for run in handle.runs}.values()),
        uploaded_bytes=uploaded_bytes(metadata, item.handles),
        runs=sum(len(handle.runs) for handle in item.handles),
        firing_watermark_us=item.firing_us,
        firing_watermark=watermark_text(item.firing_us),
        in_flight_bytes=item.in_flight_bytes,
        alignment_ms=max((subtask.times.get("alignment_ms", 0) for subtask in own), default=None),
        unaligned=any(subtask.unaligned for subtask in own),
        subtasks=own,
        spread=spreads(own),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if any of the counts is unknown."""
    parts = list(counts)
    return None if None in parts else sum(part or 0 for part in parts)


def _recreated(metadata: CheckpointMetadata) -> tuple[RecreationReport, ...]:
    measured = [(SubtaskKey(task.level, task.subtask), task.attempt) for task in metadata.tasks]
    return tuple(
        RecreationReport(
            item.subtask.level, item.subtask.subtask, _nodes_of(metadata, item.subtask), item.attempts, int(item.base)
        )
        for item in find_recreated_subtasks(measured, CheckpointId(metadata.base))
    )


def _nodes_of(metadata: CheckpointMetadata, task: SubtaskKey) -> tuple[str, ...]:
    own = (share for share in metadata.shares if SubtaskKey(share.level, share.subtask) == task and share.kind != SINK)
    return tuple(dict.fromkeys(share.node for share in own))
