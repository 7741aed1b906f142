"""A rollback plan is the text that a person approves. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.quantities import counted
from milepost.errors import (
    InvalidRequest,
    NotFound,
    PlanOutdated,
    StateCorrupt,
)
from milepost.jobmaster.compatibility.preflight import mismatches, preflight
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.table_previews import (
    SilentSink,
    SinkPreview,
    check_positions,
    fate_of_dropped,
    preview_sinks,
    undo_limits,
)
from milepost.jobmaster.rollback.inputs import InputSize, consumed_since, read_again
from milepost.jobmaster.rollback.other_tables import OtherTable, leaves, other_tables
from milepost.jobspec.values.times.timestamps import parse_timestamp
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import ENDED_STATUSES, ManifestState
from milepost.protocol.retention.ancestry import checkpoint_ancestry, timeline_ancestry
from milepost.storage.object_handles import stat_handle

_PARALLEL_STATS = 8

_CLOCK_SKEW_MS = 60_000
"""How far a person's clock may be ahead of the store's; a wrong offset from UTC is further."""


@dataclass(frozen=True, slots=True)
class ApprovedRollback:
    """What a plan took for granted when somebody looked at it; an approval may take days, so it is compared again.

    Attributes:
        head: the live head, 0 for the empty state. positions: where the table of each sink was that answered.
        sinks: of the spec, whose tables it said would follow; None: nobody has looked at a plan.
    """

    head: int
    positions: Mapping[str, str]
    sinks: Sequence[str] | None = None

    def require_current(self, context: JobContext, state: ManifestState, to: CheckpointId) -> None:
        """Raise PlanOutdated unless head, sinks and tables are those of the plan to go back to that checkpoint."""
        sinks = sorted(sink.name for sink in context.spec.sinks)
        if self.sinks is not None and list(self.sinks) != sinks:
            raise PlanOutdated(
                f"job {state.job}: the spec has sinks {', '.join(sinks) or 'none'}, and had "
                f"{', '.join(self.sinks) or 'none'} when the rollback was planned. Nothing was changed.",
                hint="look at a new plan",
            )
        now = state.timeline().head
        if now != self.head:
            raise PlanOutdated(
                f"job {state.job}: its head is checkpoint {now}, and was checkpoint {self.head} when the rollback was "
                "planned. Nothing was changed.",
                hint="look at a new plan",
            )
        if self.positions:
            check_positions(context, context.base_metadata(state, to), self.positions)


@dataclass(frozen=True, slots=True)
class EmptyState:
    """What a job has before its first checkpoint."""

    checkpoint_id: int = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class CheckpointBrief:
    """A checkpoint as a plan names it; figures that nobody has recorded are None."""

    checkpoint_id: int
    epoch: int
    timeline: str
    trigger_time: str
    rows_in: object
    watermark: object


@dataclass(frozen=True, slots=True)
class RunningEpoch:
    """A pending checkpoint, and who runs it."""

    checkpoint_id: int
    session_id: str


@dataclass(frozen=True, slots=True)
class StateRows:
    """Rows of an operator's state; of now, None when the head cannot be read."""

    state_rows_now: int | None
    state_rows_then: int


@dataclass(frozen=True, slots=True)
class SinkRollback:
    """What happens to a table; see `SinkChange` of the sinks' contract, `SinkPreview`."""

    rows_now: int | None
    rows_then: int
    objects_now: int
    objects_then: int
    position: str
    problem: None = None


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a rollback would do.

    Attributes:
        discarded: checkpoints that are not live any more, oldest first. pending: what runs now.
        runs_again: input of each source that the next epochs read once more. counts_as_read: what they pass over,
            though it is read again. Both are None when the head cannot be read.
        other_tables: of sinks that a migration took from one table to another, what their table is at the target.
        skipped_sinks: those that the spec has dropped. spec: where it does not fit the target. text: for people.
    """

    job: str
    manifest_version: int
    timeline: str
    head: CheckpointBrief | None
    target: CheckpointBrief | EmptyState
    discarded: tuple[CheckpointBrief, ...]
    pending: RunningEpoch | None
    runs_again: Mapping[str, InputSize] | None
    counts_as_read: Mapping[str, InputSize] | None
    operators: Mapping[str, StateRows]
    sinks: Mapping[str, SinkRollback | SilentSink]
    other_tables: Mapping[str, OtherTable]
    skipped_sinks: tuple[str, ...]
    not_undone: tuple[str, ...]
    spec: tuple[str, ...]
    job_status: str
    text: tuple[str, ...] = ()

    @property
    def approved(self) -> ApprovedRollback:
        """What the plan takes for granted."""
        positions = {name: sink.position for name, sink in self.sinks.items() if isinstance(sink, SinkRollback)}
        return ApprovedRollback(0 if self.head is None else self.head.checkpoint_id, positions, sorted(self.sinks))


def resolve_target(state: ManifestState, to: str | int, now_ms: int) -> CheckpointId:
    """Return the checkpoint that a person means: by its id, 0 for the empty state, or by a time.

    A time (ISO 8601, UTC when it has no offset) means the newest retained checkpoint of the live lineage that was
    triggered at or before it.

    Args:
        now_ms: the store's clock.
    Raises:
        InvalidRequest: neither an id nor a time, or one that is yet to come. NotFound: there is no such retained
            checkpoint.
    """
    text = str(to).strip()
    if text.isdecimal():
        return _by_id(state, int(text))
    try:
        moment = parse_timestamp(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither a checkpoint id nor a time: expected a number, or ISO 8601 as in 2026-07-14T06:00. "
            "Nothing was changed."
        ) from None
    at_ms = moment.timestamp() * 1000
    if at_ms > now_ms + _CLOCK_SKEW_MS:
        raise InvalidRequest(
            f"{moment.isoformat()} is yet to come: it is {iso_ms(now_ms)} now. Nothing was changed.",
            hint="give a time with its offset, as in 2026-07-14T08:00+02:00",
        )
    live = timeline_ancestry(state, state.timeline())
    fitting = [checkpoint for checkpoint in live if checkpoint.trigger_time_ms <= at_ms]
    if not fitting:
        oldest = (
            f"the oldest is {live[0].checkpoint_id} of {iso_ms(live[0].trigger_time_ms)}" if live else "it has none"
        )
        raise NotFound(
            f"job {state.job} retains no checkpoint of its live timeline that was triggered at or before {text}; "
            f"{oldest}. Nothing was changed.",
            hint="0 is the empty state",
        )
    return fitting[-1].checkpoint_id


def _by_id(state: ManifestState, wanted: int) -> CheckpointId:
    if wanted == NO_CHECKPOINT or state.checkpoint(CheckpointId(wanted)) is not None:
        return CheckpointId(wanted)
    retained = [int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints]
    nearest = min(retained, key=lambda one: (abs(one - wanted), one), default=None)
    raise NotFound(
        f"job {state.job} retains no completed checkpoint {wanted}; retained: "
        f"{', '.join(map(str, retained)) or 'none'}. Nothing was changed.",
        hint="0 is the empty state"
        if nearest is None
        else f"the nearest one is {nearest}; 0 is the empty state: milepost rollback {state.job} --to {nearest} "
        "--dry-run",
        checkpoint_id=wanted,
        retained=retained,
        nearest=nearest,
    )


def build_plan(context: JobContext, state: ManifestState, target: CheckpointId) -> RollbackPlan:
    """Return what a rollback to a retained checkpoint would do.

    Raises:
        StateCorrupt: the target cannot be read. InvalidRequest: a sink cannot show it.
    """
    head = state.head()
    then = readable_target(context, state, target)
    try:
        now = context.base_metadata(state, state.timeline().head)
    except StateCorrupt:  # the way back from a corrupt head must stay open
        now = None
    unreadable = now is None and head is not None
    goal = state.checkpoint(target)
    left = [one for one in timeline_ancestry(state, state.timeline()) if one not in checkpoint_ancestry(state, target)]
    previews = preview_sinks(context, then)
    tables = {name for metadata in (now, then) if metadata is not None for name in metadata.tables}
    skipped = tuple(sorted(tables - set(previews)))
    runs_again, lost = read_again(context, now, then)
    others = other_tables(context, now, then)
    plan = RollbackPlan(
        job=state.job,
        manifest_version=state.version,
        timeline=state.live,
        head=None if head is None else _brief(head),
        target=EmptyState() if goal is None else _brief(goal),
        discarded=tuple(_brief(one) for one in left),
        pending=_pending(state),
        runs_again=None if unreadable else runs_again,
        counts_as_read=None if unreadable else consumed_since(context, now, then),
        operators=state_rows(now, then, unknown=unreadable),
        sinks={name: _sink(preview, leaves(context, now, name, others)) for name, preview in previews.items()},
        other_tables=others,
        skipped_sinks=skipped,
        not_undone=(*_not_undone(previews, skipped), *lost),
        spec=tuple(mismatches(preflight(context, then, None))),
        job_status=state.status.value,
    )
    return replace(plan, text=tuple(_text(plan)))


def readable_target(context: JobContext, state: ManifestState, target: CheckpointId) -> CheckpointMetadata | None:
    """Return the target's metadata, None for the empty state, once all that it refers to is there with its size.

    Raises: StateCorrupt: something is not: the next epoch could not continue it.
    """
    metadata = context.base_metadata(state, target)
    if metadata is None:
        return None

    def fault(handle: ObjectHandle) -> str | None:
        try:
            stat_handle(context.store, handle)
        except StateCorrupt as error:
            return error.message
        return None

    handles = metadata.handles()
    with ThreadPoolExecutor(_PARALLEL_STATS) as pool:
        faults = [found for found in pool.map(fault, handles) if found is not None]
    if faults:
        raise StateCorrupt(
            f"job {state.job}: going back to checkpoint {target} refused: {len(faults)} of its {len(handles)} objects "
            f"are broken: {faults[0]}",
            hint=f"choose another checkpoint: milepost verify {state.job} says which are whole",
            checkpoint_id=int(target),
        )
    return metadata


def _brief(checkpoint: CompletedCheckpoint) -> CheckpointBrief:
    return CheckpointBrief(
        checkpoint_id=int(checkpoint.checkpoint_id),
        epoch=int(checkpoint.epoch),
        timeline=checkpoint.timeline,
        trigger_time=iso_ms(checkpoint.trigger_time_ms),
        rows_in=checkpoint.summary.get("rows_in"),
        watermark=checkpoint.summary.get("watermark"),
    )


def _pending(state: ManifestState) -> RunningEpoch | None:
    timeline = state.timeline()
    if timeline.pending is None or timeline.leader is None:
        return None
    return RunningEpoch(int(timeline.pending.checkpoint_id), timeline.leader.session_id)


def state_rows(
    now: CheckpointMetadata | None, then: CheckpointMetadata | None, *, unknown: bool
) -> dict[str, StateRows]:
    """Return the rows of each operator's state. Args: unknown: nobody knows those of now."""

    def rows(metadata: CheckpointMetadata | None, uid: str) -> int:
        snapshot = metadata.operators.get(uid) if metadata is not None else None
        return 0 if snapshot is None else sum(handle.live_rows for handle in snapshot.handles)

    uids = {uid for metadata in (now, then) if metadata is not None for uid in metadata.operators}
    return {uid: StateRows(None if unknown else rows(now, uid), rows(then, uid)) for uid in sorted(uids)}


def _sink(preview: SinkPreview | SilentSink, left: tuple[int | None, int] | None) -> SinkRollback | SilentSink:
    """Args: left: rows and files of the table that the sink leaves for another; None: it stays with its own."""
    if isinstance(preview, SilentSink):
        return preview
    change = preview.change
    rows, files = (change.rows_now, change.files_now) if left is None else left
    return SinkRollback(rows, change.rows_then, files, change.files_then, preview.position)


def _not_undone(previews: Mapping[str, SinkPreview | SilentSink], skipped: Sequence[str]) -> Iterator[str]:
    for name, preview in previews.items():
        if isinstance(preview, SilentSink):
            yield f"sink {name} does not answer now: it follows later, and no epoch runs until it has"
    yield from undo_limits({name: one.undo_limits for name, one in previews.items() if isinstance(one, SinkPreview)})
    yield from map(fate_of_dropped, skipped)


def _text(plan: RollbackPlan) -> Iterator[str]:
    if plan.target.checkpoint_id == (plan.head or EmptyState()).checkpoint_id:
        yield f"job {plan.job}: nothing to roll back: it is at {_named(plan.target)}"
    else:
        yield from _changes(plan)
    if plan.pending is not None:
        yield (
            f"checkpoint {plan.pending.checkpoint_id} of session {plan.pending.session_id} is pending: while its lease "
            "lives nothing is rolled back, unless --take-over aborts it"
        )
    if plan.job_status in {status.value for status in ENDED_STATUSES}:
        yield f"the job is {plan.job_status.upper()} and stays so: milepost start {plan.job} opens it again"


def _changes(plan: RollbackPlan) -> Iterator[str]:
    yield f"job {plan.job}: from {_named(plan.head)} back to {_named(plan.target)}"
    left = ", ".join(str(one.checkpoint_id) for one in plan.discarded)
    noun = "checkpoint" if len(plan.discarded) == 1 else "checkpoints"
    kept = f" ({noun} {left}); they stay until retention takes them, so this can be rolled back too"
    yield f"epochs discarded: {len(plan.discarded)}{kept if left else ''}"
    for uid, rows in plan.operators.items():
        yield f"state {uid}: {_count(rows.state_rows_now)} -> {_count(rows.state_rows_then)} rows"
    for name, sink in plan.sinks.items():
        if isinstance(sink, SilentSink):
            yield f"sink {name}: does not answer: {sink.problem}"
            continue
        rows_text = f"{_count(sink.rows_now)} -> {_count(sink.rows_then)} rows"
        objects = f"{_count(sink.objects_now)} -> {_count(sink.objects_then)} objects"
        yield f"sink {name}: {rows_text}, {objects}"
    for name, table in plan.other_tables.items():
        yield f"sink {name}: {table}"
    for title, sources in (("runs again", plan.runs_again), ("counts as read", plan.counts_as_read)):
        for name, size in (sources or {}).items():
            yield f"{title}: source {name}: {counted(size.objects, 'object')}, {counted(size.bytes, 'byte')}"
    if plan.runs_again is None:
        yield "runs again: unknown, the head cannot be read; whatever the target has not consumed"
    for line in plan.spec:
        yield f"the spec does not fit the target: {line}"
    for line in plan.not_undone or ["nothing: state, positions, rows in flight and every table go back"]:
        yield f"cannot be undone: {line}"


def _named(brief: CheckpointBrief | EmptyState | None) -> str:
    if not isinstance(brief, CheckpointBrief):
        return "the empty state"
    return (
        f"checkpoint {brief.checkpoint_id} (epoch {brief.epoch} of timeline {brief.timeline}, triggered "
        f"{brief.trigger_time})"
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
