"""A backfill plan says where it forks, what it replays, and what it would change.

The fork point is the newest retained checkpoint of the live lineage that had consumed no row of the range yet: for each
source with event time, its watermark plus its watermark delay lies before the range's start. The watermark alone does
not say so: rows up to a delay past it are consumed by then, and would keep what the old code made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from milepost.dataflow.quality.gate import resolve_suite
from milepost.epoch.iso_times import watermark_text, watermark_us
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.summary import watermark_of
from milepost.jobmaster.backfill.replay import Consumed, LiveRanges, RecordedRange, check_objects
from milepost.jobmaster.compatibility.preflight import check_compatible, preflight
from milepost.jobmaster.compatibility.rows_in_flight import check_continuable
from milepost.jobmaster.job.code import JobCode, LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.realignment import route
from milepost.jobmaster.rollback.plan import SINK_UNAVAILABLE
from milepost.protocol.manifest.transaction.preconditions import ended
from milepost.protocol.records.errors import InvalidRequest, NotFound
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import ENDED, ManifestState
from milepost.protocol.retention.lineage import lineage
from milepost.spec.graph.compatibility import UNCHANGED
from milepost.spec.load.load import from_text

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What a person asks for.

    Attributes:
        from_us: event time, microseconds since the epoch, UTC: rows from here on are processed again; None: it is the
            fork point that is given.
        to_us: epochs that begin at or after it are replayed, but neither shown in the plan's range nor judged by the
            quality gate; None: all are.
        from_checkpoint: fork there; None: where `from_us` asks for.
        ranges_per_epoch: how many recorded ranges one epoch replays, at least 1. More than one is faster, and is late
            about fewer rows: lateness is judged by the watermark at the start of an epoch.
        allow_non_restored_state: leave the state of operators behind that are gone from the spec.
    """

    from_us: int | None
    to_us: int | None
    from_checkpoint: int | None
    ranges_per_epoch: int = 1
    allow_non_restored_state: bool = False


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """A backfill that can begin: every object is there, and the spec continues the fork point.

    Attributes:
        state: the head that it was made from. fork_point: 0 for the empty state. base: its metadata.
        live: what was consumed since. ranges: that, up to the head of `state`, in order, empty ones included.
        code: what would run. loaded: with its process functions.
    """

    request: BackfillRequest
    state: ManifestState
    fork_point: CheckpointId
    base: CheckpointMetadata | None
    live: LiveRanges
    ranges: tuple[RecordedRange, ...]
    code: JobCode
    loaded: LoadedCode

    @property
    def to_replay(self) -> tuple[RecordedRange, ...]:
        """The ranges that have something to read."""
        return tuple(item for item in self.ranges if not item.is_empty)

    @property
    def base_consumed(self) -> Consumed:
        """What the fork point had consumed."""
        return self.live.base_consumed


def request_of(
    from_: str | None,
    to: str | None,
    from_checkpoint: int | None,
    *,
    ranges_per_epoch: int = 1,
    allow_non_restored_state: bool = False,
) -> BackfillRequest:
    """Return the checked request. Raises InvalidRequest: what is missing, no time, or an empty range."""
    if (from_ is None) == (from_checkpoint is None):
        raise InvalidRequest(
            "a backfill begins at an event time or at a checkpoint: expected exactly one of --from and "
            "--from-checkpoint. Nothing was changed."
        )
    if ranges_per_epoch < 1:
        raise InvalidRequest(f"ranges per epoch: expected 1 or more, got {ranges_per_epoch}. Nothing was changed.")
    from_us = None if from_ is None else event_time_us(from_, "--from")
    to_us = None if to is None else event_time_us(to, "--to")
    if from_us is not None and to_us is not None and to_us <= from_us:
        raise InvalidRequest(f"the range is empty: --from {from_} is not before --to {to}. Nothing was changed.")
    return BackfillRequest(from_us, to_us, from_checkpoint, ranges_per_epoch, allow_non_restored_state)


def event_time_us(text: str, what: str) -> int:
    """Return an ISO 8601 time in microseconds since the epoch; without an offset it is UTC. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequest(
            f"{what} {text!r} is no time: expected ISO 8601, as in 2013-03-01 or 2013-03-01T06:00Z. Nothing was "
            "changed."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * _MICROSECONDS)


def prepare(context: JobContext, request: BackfillRequest) -> BackfillPlan:
    """Choose the fork point, collect the ranges, and check all that can be checked before anything is changed.

    Raises:
        NotFound: no such retained checkpoint of the live lineage, or the job has never run.
        SourceChanged: recorded objects are gone or differ; the list is in its `details`.
        InvalidRequest: the spec does not continue the fork point, or the records do not lead to the head.
        JobNotRunnable: the job has ended. StateCorrupt: what is recorded cannot be read.
    """
    state = context.head().state
    if state.status in ENDED:
        raise ended(state)
    point = _fork_point(context, state, request)
    base = context.base_metadata(state, point)
    code = read_code(context)
    for suite in context.spec.quality:
        resolve_suite(suite)
    loaded = code.load(context)
    check_compatible(context, base, code, loaded, allow_non_restored_state=request.allow_non_restored_state)
    _check_continuable(context, state, base, loaded)
    live = LiveRanges(context, state.live, point, base)
    plan = BackfillPlan(request, state, point, base, live, live.up_to_head(state), code, loaded)
    if not plan.to_replay:
        raise InvalidRequest(
            f"job {state.job}: nothing was read since {_named(point)}: there is nothing to replay. Nothing was changed."
        )
    check_objects(context, plan.to_replay)
    return plan


def _check_continuable(
    context: JobContext, state: ManifestState, base: CheckpointMetadata | None, loaded: LoadedCode
) -> None:
    """As `check_continuable`, with what to do about a fork point: nobody can work its rows off any more."""
    try:
        check_continuable(context, base, loaded)
    except InvalidRequest as error:
        if base is None or base.final:
            raise
        before = [one for one in lineage(state, state.timeline()) if one.checkpoint_id < base.checkpoint_id]
        fits = next((one for one in reversed(before) if not context.metadata(one).in_flight_bytes), None)
        at = NO_CHECKPOINT if fits is None else fits.checkpoint_id
        error.hint = f"fork where nothing was in flight: --from-checkpoint {at} ({_named(at)})"
        raise


def is_judged(request: BackfillRequest, base: CheckpointMetadata | None) -> bool:
    """Whether the gate judges the epoch that continues this checkpoint: it may bring rows from before `--to`."""
    if request.to_us is None or base is None:
        return True
    reached_us = watermark_of(base)
    return reached_us is None or reached_us < request.to_us


def _fork_point(context: JobContext, state: ManifestState, request: BackfillRequest) -> CheckpointId:
    live = lineage(state, state.timeline())
    if request.from_checkpoint is not None:
        wanted = CheckpointId(request.from_checkpoint)
        if wanted == NO_CHECKPOINT or any(one.checkpoint_id == wanted for one in live):
            return wanted
        raise NotFound(
            f"job {state.job}: checkpoint {wanted} is no retained checkpoint of the live timeline; those are: "
            f"{', '.join(str(one.checkpoint_id) for one in live) or 'none'}. Nothing was changed.",
            hint="0 is the empty state: a backfill from there replays everything",
            checkpoint_id=int(wanted),
        )
    assert request.from_us is not None
    for checkpoint in reversed(live):
        if _is_before(context, context.metadata(checkpoint), request.from_us):
            return checkpoint.checkpoint_id
    return NO_CHECKPOINT


def _is_before(context: JobContext, metadata: CheckpointMetadata, from_us: int) -> bool:
    """Whether the checkpoint has consumed no row of event time `from_us` or later that counts for the watermark."""
    if metadata.final:
        return False
    try:
        recorded = from_text(metadata.spec_text, context.job.path).spec.sources
    except InvalidRequest:  # a spec of another version: how far ahead of its watermark it read is not known
        return False
    for name, source in metadata.sources.items():
        delays = [spec[name].watermark_delay for spec in (recorded, context.spec.sources) if name in spec]
        ahead_us = max((round(delay.total_seconds() * _MICROSECONDS) for delay in delays), default=0)
        if source.watermark_us is not None and source.watermark_us + ahead_us >= from_us:
            return False
    return True


def _kept_ahead(plan: BackfillPlan) -> list[dict[str, Any]]:
    """The sources of which the fork point has rows of the range: too far ahead to move the watermark it is chosen by.

    One date in 9999 would else let every backfill begin before it.
    """
    from_us = plan.request.from_us
    if from_us is None or plan.base is None:
        return []
    live = lineage(plan.state, plan.state.timeline())
    found = []
    for name, source in sorted(plan.base.sources.items()):
        if source.furthest_us is not None and source.ahead_since is not None and source.furthest_us >= from_us:
            older = [int(one.checkpoint_id) for one in live if one.checkpoint_id < source.ahead_since]
            found.append(
                {
                    "source": name,
                    "furthest": watermark_text(source.furthest_us),
                    "since_checkpoint": source.ahead_since,
                    "from_checkpoint": max(older, default=0),
                }
            )
    return found


def document_of(
    context: JobContext, plan: BackfillPlan, fork: str | None, replayed: int, gives_up: Sequence[str]
) -> dict[str, Any]:
    """The plan as a document, with its `text` for people, one line each.

    Args:
        fork: an interrupted backfill of the same request, code and spec, which would be continued; None: a new one.
        replayed: ranges that it has behind it.
        gives_up: forks of other backfills that nobody works on any more: they are disposed of.
    """
    ranges = plan.to_replay
    in_range = [item for item in ranges if _begins_before(item, plan.request.to_us)]
    per_epoch = plan.request.ranges_per_epoch
    left = len(ranges) - replayed
    document: dict[str, Any] = {
        "job": plan.state.job,
        "timeline": plan.state.live,
        "head": int(plan.state.timeline().head),
        "fork_point": int(plan.fork_point),
        "fork_point_watermark": watermark_text(watermark_of(plan.base)) if plan.base is not None else None,
        "kept_ahead": _kept_ahead(plan),
        "from": watermark_text(plan.request.from_us),
        "to": watermark_text(plan.request.to_us),
        "continues": fork,
        "replayed_ranges": replayed,
        "gives_up": list(gives_up),
        "ranges": [
            {
                "checkpoint_id": int(item.checkpoint_id),
                "epoch": item.epoch,
                "starts": item.starts,
                "objects": item.count,
                "bytes": item.size,
                "in_range": _begins_before(item, plan.request.to_us),
            }
            for item in ranges
        ],
        "epochs": -(-left // per_epoch),
        "epochs_judged": len(in_range),
        "objects": sum(item.count for item in ranges),
        "bytes": sum(item.size for item in ranges),
        "preflight": preflight(
            context,
            plan.base,
            plan.loaded,
            allow_non_restored_state=plan.request.allow_non_restored_state,
        ),
        "sinks": _sinks(context, plan),
        "skipped_sinks": _skipped(context, plan),
        "code_hash": plan.code.hash,
        "spec_hash": context.job.spec_hash,
    }
    return document | {"text": list(_text(document))}


def _begins_before(item: RecordedRange, to_us: int | None) -> bool:
    return to_us is None or item.starts is None or watermark_us(item.starts) < to_us


def _sinks(context: JobContext, plan: BackfillPlan) -> dict[str, dict[str, Any]]:
    """What each table holds now and at the fork point: the rows between them are made again."""
    sinks: dict[str, dict[str, Any]] = {}
    for spec in context.spec.sinks:
        sink = context.sink(spec.name)
        try:
            way = route(context, plan.state, plan.base, spec.name, sink)
            change = sink.compare(way.base, way.missing)
        except SINK_UNAVAILABLE as error:
            sinks[spec.name] = {"problem": error.message}
            continue
        sinks[spec.name] = {
            "rows_now": change.rows_now,
            "rows_at_fork_point": change.rows_then,
            "objects_now": change.files_now,
            "objects_at_fork_point": change.files_then,
            "cannot_undo": list(sink.undo_limits()),
            "problem": None,
        }
    return sinks


def _skipped(context: JobContext, plan: BackfillPlan) -> list[str]:
    """Sinks of the live head that the spec does not have any more."""
    head = context.base_metadata(plan.state, plan.state.timeline().head)
    return sorted(set(head.marks if head is not None else ()) - {sink.name for sink in context.spec.sinks})


def _text(document: dict[str, Any]) -> Iterator[str]:
    span = f"from {document['from']}" if document["from"] else f"from checkpoint {document['fork_point']}"
    until = f" to {document['to']}" if document["to"] else ""
    yield f"job {document['job']}: backfill {span}{until}, with the code and spec of now"
    mark = f" (watermark {document['fork_point_watermark']})" if document["fork_point_watermark"] else ""
    yield f"forks at {_named(document['fork_point'])}{mark}; the live head is checkpoint {document['head']}"
    for kept in document["kept_ahead"]:
        yield (
            f"source {kept['source']}: rows further ahead than max_event_time_ahead, up to {kept['furthest']}, were "
            f"read by checkpoint {kept['since_checkpoint']} or later; what the fork point has of them stays as it is: "
            f"--from-checkpoint {kept['from_checkpoint']} replays them all"
        )
    ranges = document["ranges"]
    first, last = ranges[0]["checkpoint_id"], ranges[-1]["checkpoint_id"]
    yield (
        f"replays what checkpoints {first} to {last} read: {len(ranges)} ranges, {document['objects']:,} objects, "
        f"{document['bytes']:,} bytes, in {document['epochs']} epochs"
    )
    if document["continues"]:
        behind = f"{document['replayed_ranges']} of {len(ranges)}"
        yield f"continues fork {document['continues']}, which has replayed {behind}"
    for fork in document["gives_up"]:
        yield f"gives up fork {fork}, left by a backfill of another range, code or spec: what it replayed is lost"
    if document["to"]:
        judged = [item for item in ranges if item["in_range"]]
        yield (
            f"up to {document['to']}: {len(judged)} ranges, {sum(item['objects'] for item in judged):,} objects; the "
            f"quality gate judges those, and not the {len(ranges) - len(judged)} after them"
        )
    for row in document["preflight"]:
        if row["detail"] != UNCHANGED:
            yield f"{row['uid']}: {row['outcome']}: {row['detail']}"
    for name, sink in document["sinks"].items():
        if sink["problem"] is not None:
            yield f"sink {name}: does not answer now: it follows later"
            continue
        now = "damaged" if sink["rows_now"] is None else f"{sink['rows_now']:,} rows"
        yield (
            f"sink {name}: {now} now, {sink['rows_at_fork_point']:,} at the fork point; what was published since is "
            "made again"
        )
        yield from (f"cannot be undone: sink {name}: {limit}" for limit in sink["cannot_undo"])
    for name in document["skipped_sinks"]:
        yield f"sink {name} is not in the spec any more: its table stays as it is; it follows when the sink comes back"
    yield "until the last step the live timeline goes on; what it completes meanwhile is replayed too"


def _named(checkpoint_id: int) -> str:
    return f"checkpoint {checkpoint_id}" if checkpoint_id else "the empty state"
