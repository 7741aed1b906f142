"""The epochs of a job on one axis of time: a lane per timeline, and flags for acts and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from milepost.epoch import iso_ms
from milepost.errors import StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.row import completed_row, day_of
from milepost.jobmaster.figures.stored_rows import StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.axis.columns import AxisColumn, AxisSpan, merged_columns
from milepost.jobmaster.reports.history.page import TimelineOrigin
from milepost.jobmaster.reports.history.timeline_origins import timeline_origins
from milepost.language.times import EPOCH, in_ms
from milepost.protocol.records import CompletedCheckpoint, ManifestState

MAX_LANES = 8
"""Timelines that are drawn, the newest ones."""

MAX_FLAGS = 200
"""Flags that are drawn, the newest ones."""


class Span(StrEnum):
    """How much time an axis shows."""

    DAY = "24h"
    WEEK = "7d"
    ALL = "all"


_SPAN_MS = {Span.DAY: 86_400_000, Span.WEEK: 7 * 86_400_000}


class FlagKind(StrEnum):
    """What a flag marks: the act that began a timeline, a savepoint, or a change of code or spec."""

    ROLLBACK = "rollback"
    BACKFILL = "backfill"
    START = "start"
    SAVEPOINT = "savepoint"
    CODE = "code"
    SPEC = "spec"


@dataclass(frozen=True, slots=True)
class AxisFlag:
    """Something that happened. share: where on the axis, 0 to 1. who: None if it is not known."""

    kind: FlagKind
    time: str
    share: float
    what: str
    who: str | None
    checkpoint_id: int | None


@dataclass(frozen=True, slots=True)
class AxisLane:
    """A timeline. branched_at: checkpoint that its first epoch here continues; 0 for none.

    Attributes:
        branched_from: the timeline of that checkpoint; None: it is not on this axis.
    """

    timeline: str
    live: bool
    branched_at: int
    branched_from: str | None
    columns: tuple[AxisColumn, ...]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Epochs by time.

    Attributes:
        start, end: of the axis; None: there are no epochs. epochs: how many it shows. lanes: oldest first.
        left_out: timelines that are older than the drawn ones. newest: when the newest epoch of the job began.
        running: checkpoint that is pending, and running_since when it began.
        origins: of timelines, for their names. unreadable: why stored figures cannot be read.
    """

    span: Span
    start: str | None
    end: str | None
    epochs: int
    lanes: tuple[AxisLane, ...]
    flags: tuple[AxisFlag, ...]
    left_out: int
    newest: str | None
    running: int | None
    running_since: str | None
    origins: tuple[TimelineOrigin, ...]
    unreadable: tuple[str, ...]


def time_axis(context: JobContext, span: Span) -> TimeAxis:
    """Return the epochs within a span that ends now. The axis begins with the first epoch if that is younger."""
    head = context.log.head()
    if head is None:
        return TimeAxis(span, None, None, 0, (), (), 0, None, None, None, (), ())
    state, now_ms = head.state, context.store.clock_ms()
    since_ms = now_ms - _SPAN_MS[span] if span in _SPAN_MS else 0
    stored = StoredRows(context.store)
    try:
        days = [*stored.epochs_by_phase(day_of(since_ms) if since_ms else "")]
    except StoreUnavailable as error:  # epochs keep merging these days: show the retained epochs
        days, stored.unreadable = [], [error.message]
    rows = sorted(_with_retained(days, state), key=lambda row: row.version)
    shown = [row for row in rows if row.trigger_time is not None and row.trigger_time >= since_ms]
    newest = max((row.trigger_time for row in rows if row.trigger_time is not None), default=None)
    running, running_since = _running(state)
    if not shown:
        newest_text = None if newest is None else iso_ms(newest)
        return TimeAxis(span, None, None, 0, (), (), 0, newest_text, running, running_since, (), (*stored.unreadable,))
    last = newest or 0
    start = min(row.trigger_time or last for row in shown)
    axis = AxisSpan(start, max(now_ms if span in _SPAN_MS or running is not None else last, last, start + 1))
    lineage = completed_lineage([rows[::-1]], int(state.timeline().head), state.live)
    live = frozenset(row.checkpoint_id for row in lineage)
    lanes, left_out = _lanes(shown, axis, live, state)
    origins = timeline_origins(context, {lane.timeline for lane in lanes} | {state.live}, {})
    flags = sorted(_flags(shown, axis, origins, state, since_ms), key=lambda flag: flag.time)[-MAX_FLAGS:]
    return TimeAxis(
        span=span,
        start=iso_ms(axis.start),
        end=iso_ms(axis.end),
        epochs=len(shown),
        lanes=lanes,
        flags=tuple(flags),
        left_out=left_out,
        newest=iso_ms(last),
        running=running,
        running_since=running_since,
        origins=origins,
        unreadable=tuple(stored.unreadable),
    )


def _running(state: ManifestState) -> tuple[int | None, str | None]:
    pending = state.timeline().pending
    return (None, None) if pending is None else (int(pending.checkpoint_id), iso_ms(pending.trigger_time_ms))


def _with_retained(days: Sequence[Sequence[EpochRow]], state: ManifestState) -> Iterator[EpochRow]:
    """Yield the stored rows, and those of retained checkpoints that have none.

    A row of a version that the manifest does not have yet is of an earlier life of the job.
    """
    known = set()
    for rows in days:
        for row in rows:
            if row.version <= state.version:
                known.add((row.checkpoint_id, row.timeline))
                yield row
    for checkpoint in state.checkpoints:
        if (int(checkpoint.checkpoint_id), checkpoint.timeline) not in known:
            yield _retained_row(checkpoint)


def _retained_row(checkpoint: CompletedCheckpoint) -> EpochRow:
    row = completed_row(checkpoint, None, ())
    return EpochRow._make([*(row.get(name) for name in EpochRow._fields[:-1]), ()])


def _lanes(
    rows: Sequence[EpochRow], axis: AxisSpan, live: frozenset[int], state: ManifestState
) -> tuple[tuple[AxisLane, ...], int]:
    """Return the newest timelines in the order in which they began, and how many are left out."""
    by_timeline: dict[str, list[EpochRow]] = {}
    for row in rows:
        by_timeline.setdefault(row.timeline, []).append(row)
    timeline_of = {row.checkpoint_id: row.timeline for row in rows if row.is_completed}
    names = list(by_timeline)
    lanes = [
        AxisLane(
            timeline=name,
            live=name == state.live,
            branched_at=own[0].parent,
            branched_from=timeline_of.get(own[0].parent) if timeline_of.get(own[0].parent) != name else None,
            columns=tuple(merged_columns(own, axis, live)),
        )
        for name in names[-MAX_LANES:]
        for own in (by_timeline[name],)
    ]
    return tuple(lanes), max(0, len(names) - MAX_LANES)


_ACTS: Mapping[str, tuple[FlagKind, str]] = {
    "rollback": (FlagKind.ROLLBACK, "rolled back"),
    "backfill": (FlagKind.BACKFILL, "began a backfill"),
    "start": (FlagKind.START, "started at an older checkpoint"),
    "restore": (FlagKind.START, "restored a savepoint"),
    "bootstrap": (FlagKind.START, "built the first state from tables"),
    "migration": (FlagKind.START, "moved a table"),
    "import": (FlagKind.START, "imported a checkpoint"),
}
"""Act that began a timeline -> its kind, and what it did."""


def _flags(
    rows: Sequence[EpochRow],
    axis: AxisSpan,
    origins: Sequence[TimelineOrigin],
    state: ManifestState,
    since_ms: int,
) -> Iterator[AxisFlag]:
    for origin in origins:
        time_ms = in_ms(datetime.fromisoformat(origin.time) - EPOCH)
        kind, what = _ACTS.get(origin.act, (FlagKind.START, origin.act))
        if time_ms >= since_ms:
            yield AxisFlag(kind, origin.time, axis.share(time_ms), what, origin.who, None)
    for savepoint in state.savepoints:
        if savepoint.created_ms >= since_ms:
            what = f"savepoint {savepoint.name} of checkpoint {savepoint.checkpoint_id}"
            time, number = iso_ms(savepoint.created_ms), int(savepoint.checkpoint_id)
            yield AxisFlag(FlagKind.SAVEPOINT, time, axis.share(savepoint.created_ms), what, None, number)
    for before, after in pairwise(rows):
        time_ms = after.trigger_time or axis.start
        for kind, old, new in (
            (FlagKind.CODE, before.code_hash, after.code_hash),
            (FlagKind.SPEC, before.spec_hash, after.spec_hash),
        ):
            if old is not None and new is not None and old != new:
                what = f"checkpoint {after.checkpoint_id} has another {kind.value}"
                yield AxisFlag(kind, iso_ms(time_ms), axis.share(time_ms), what, None, after.checkpoint_id)
