"""Present a backfill plan as a document for programs, with a `text` for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from milepost.codec import StoredName
from milepost.epoch import counted, watermark_of, watermark_text, watermark_us
from milepost.jobmaster.backfill.plan import ApprovedBackfill, BackfillPlan
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.table_previews import (
    SinkPreview,
    UnavailableSink,
    fate_of_dropped,
    preview_sinks,
    undo_limits,
)
from milepost.jobspec.graph import UNCHANGED
from milepost.protocol.records import checkpoint_name
from milepost.protocol.retention import timeline_ancestry


@dataclass(frozen=True, slots=True)
class KeptAhead:
    """A source whose rows of the range are partly in the fork point, because they were too far ahead of the watermark.

    Such rows do not move the watermark that determines the fork point. Otherwise one date in 9999 would move the fork
    point of every backfill before it.

    Attributes:
        furthest: their newest event time. since_checkpoint: the checkpoint that read the first of them.
        from_checkpoint: a fork point that has none of them.
    """

    source: str
    furthest: str | None
    since_checkpoint: int
    from_checkpoint: int


@dataclass(frozen=True, slots=True)
class ReplayedRange:
    """What one recorded epoch read. in_range: it begins before the requested end."""

    checkpoint_id: int
    epoch: int
    starts: str | None
    objects: int
    bytes: int
    in_range: bool


@dataclass(frozen=True, slots=True)
class SinkReplay:
    """Rows of a table now, None if it is damaged, and at the fork point. The rows in between are replayed."""

    rows_now: int | None
    rows_at_fork_point: int
    objects_now: int
    objects_at_fork_point: int
    cannot_undo: tuple[str, ...]
    problem: None = None


@dataclass(frozen=True, slots=True)
class BackfillDocument:
    """What a backfill would do.

    Attributes:
        continues: the interrupted backfill of the same request, code and spec that is continued; None for a new one.
        replayed_ranges: ranges that it has replayed already.
        gives_up: abandoned forks of other backfills, which are disposed of.
        epochs: number of epochs left to run. epochs_judged: ranges that the quality gate judges.
        preflight: the pre-flight report. skipped_sinks: sinks that are no longer in the spec. text: for people.
    """

    job: str
    timeline: str
    head: int
    fork_point: int
    fork_point_watermark: str | None
    kept_ahead: tuple[KeptAhead, ...]
    from_: Annotated[str | None, StoredName("from")]
    to: str | None
    ranges_per_epoch: int
    allow_non_restored_state: bool
    continues: str | None
    replayed_ranges: int
    gives_up: tuple[str, ...]
    ranges: tuple[ReplayedRange, ...]
    epochs: int
    epochs_judged: int
    objects: int
    bytes: int
    preflight: Sequence[Mapping[str, str]]
    sinks: Mapping[str, SinkReplay | UnavailableSink]
    skipped_sinks: tuple[str, ...]
    code_hash: str
    spec_hash: str
    text: tuple[str, ...] = ()

    @property
    def approved(self) -> ApprovedBackfill:
        """What a backfill takes of the plan."""
        options = (self.ranges_per_epoch, self.allow_non_restored_state)
        return ApprovedBackfill(self.timeline, self.fork_point, self.to, *options, self.code_hash, self.spec_hash)


def document_of(
    context: JobContext, plan: BackfillPlan, fork: str | None, replayed: int, gives_up: Sequence[str]
) -> BackfillDocument:
    """Return the document of a plan.

    Args:
        fork, replayed, gives_up: `continues`, `replayed_ranges`, `gives_up` of the document.
    """
    ranges = [_range(item, plan.request.to_us) for item in plan.to_replay]
    document = BackfillDocument(
        job=plan.state.job,
        timeline=plan.state.live,
        head=int(plan.state.timeline().head),
        fork_point=int(plan.fork_point),
        fork_point_watermark=watermark_text(watermark_of(plan.base)) if plan.base is not None else None,
        kept_ahead=_kept_ahead(plan),
        from_=watermark_text(plan.request.from_us),
        to=watermark_text(plan.request.to_us),
        ranges_per_epoch=plan.request.ranges_per_epoch,
        allow_non_restored_state=plan.request.allow_non_restored_state,
        continues=fork,
        replayed_ranges=replayed,
        gives_up=tuple(gives_up),
        ranges=tuple(ranges),
        epochs=-(-(len(ranges) - replayed) // plan.request.ranges_per_epoch),
        epochs_judged=sum(item.in_range for item in ranges),
        objects=sum(item.objects for item in ranges),
        bytes=sum(item.bytes for item in ranges),
        preflight=preflight(
            context, plan.base, plan.loaded, allow_non_restored_state=plan.request.allow_non_restored_state
        ),
        sinks={name: _sink(preview) for name, preview in preview_sinks(context, plan.base).items()},
        skipped_sinks=_skipped(context, plan),
        code_hash=plan.code.hash,
        spec_hash=context.job.spec_hash,
    )
    return replace(document, text=tuple(_text(document)))


def _kept_ahead(plan: BackfillPlan) -> tuple[KeptAhead, ...]:
    from_us = plan.request.from_us
    if from_us is None or plan.base is None:
        return ()
    live = timeline_ancestry(plan.state, plan.state.timeline())
    found = []
    for name, source in sorted(plan.base.sources.items()):
        if source.furthest_us is not None and source.ahead_since is not None and source.furthest_us >= from_us:
            older = max((int(one.checkpoint_id) for one in live if one.checkpoint_id < source.ahead_since), default=0)
            found.append(KeptAhead(name, watermark_text(source.furthest_us), source.ahead_since, older))
    return tuple(found)


def _range(item: RecordedRange, to_us: int | None) -> ReplayedRange:
    in_range = to_us is None or item.starts is None or watermark_us(item.starts) < to_us
    return ReplayedRange(int(item.checkpoint_id), item.epoch, item.starts, item.count, item.size, in_range)


def _sink(preview: SinkPreview | UnavailableSink) -> SinkReplay | UnavailableSink:
    if isinstance(preview, UnavailableSink):
        return preview
    change = preview.change
    return SinkReplay(
        change.rows_now, change.rows_then, change.files_now, change.files_then, cannot_undo=preview.undo_limits
    )


def _skipped(context: JobContext, plan: BackfillPlan) -> tuple[str, ...]:
    """Return the sinks of the live head that are no longer in the spec."""
    head = context.base_metadata(plan.state, plan.state.timeline().head)
    return tuple(sorted(set(head.tables if head is not None else ()) - {sink.name for sink in context.spec.sinks}))


def _checkpoints(ids: Sequence[int]) -> str:
    """Return ascending ids as text, with consecutive ids as a span: "checkpoints 1, 3 to 5"."""
    spans: list[list[int]] = []
    for one in ids:
        if spans and one == spans[-1][-1] + 1:
            spans[-1].append(one)
        else:
            spans.append([one])
    texts = [str(span[0]) if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in spans]
    return f"checkpoint{'' if len(ids) == 1 else 's'} {', '.join(texts)}"


def _text(document: BackfillDocument) -> Iterator[str]:
    span = f"from {document.from_}" if document.from_ else f"from checkpoint {document.fork_point}"
    until = f" to {document.to}" if document.to else ""
    yield f"job {document.job}: backfill {span}{until}, with the current code and spec"
    mark = f" (watermark {document.fork_point_watermark})" if document.fork_point_watermark else ""
    yield f"forks at {checkpoint_name(document.fork_point)}{mark}; the live head is checkpoint {document.head}"
    for kept in document.kept_ahead:
        yield (
            f"source {kept.source}: rows further ahead than max_event_time_ahead, up to {kept.furthest}, were "
            f"read by checkpoint {kept.since_checkpoint} or later; those in the state of the fork point stay: "
            f"--from-checkpoint {kept.from_checkpoint} replays them all"
        )
    ranges = document.ranges
    yield (
        f"replays what {_checkpoints([one.checkpoint_id for one in ranges])} read: {counted(len(ranges), 'range')}, "
        f"{counted(document.objects, 'object')}, {counted(document.bytes, 'byte')}, "
        f"in {counted(document.epochs, 'epoch')}"
    )
    if document.continues:
        behind = f"{document.replayed_ranges} of {len(ranges)}"
        yield f"continues fork {document.continues}, which has replayed {behind}"
    for fork in document.gives_up:
        yield f"disposes of fork {fork} of an abandoned backfill with another range, code or spec: its epochs are lost"
    if document.to:
        judged = [item for item in ranges if item.in_range]
        yield (
            f"up to {document.to}: {counted(len(judged), 'range')}, "
            f"{counted(sum(item.objects for item in judged), 'object')}; the "
            f"quality gate judges those, and not the {len(ranges) - len(judged)} after them"
        )
    for row in document.preflight:
        if row["detail"] != UNCHANGED:
            yield f"{row['uid']}: {row['outcome']}: {row['detail']}"
    for name, sink in document.sinks.items():
        if isinstance(sink, UnavailableSink):
            yield f"sink {name}: does not answer now: it follows later"
            continue
        now = "damaged" if sink.rows_now is None else f"{sink.rows_now:,} rows"
        yield (
            f"sink {name}: {now} now, {sink.rows_at_fork_point:,} at the fork point; what was published since is "
            "made again"
        )
    limits = {name: sink.cannot_undo for name, sink in document.sinks.items() if isinstance(sink, SinkReplay)}
    yield from (f"cannot be undone: {line}" for line in undo_limits(limits))
    yield from map(fate_of_dropped, document.skipped_sinks)
    yield "until the last step the live timeline continues; epochs that it completes by then are replayed too"
