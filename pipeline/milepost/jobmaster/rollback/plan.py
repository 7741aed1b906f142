"""Compute what a rollback would change, as a plan that a person approves. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from milepost.epoch import CheckpointMetadata, counted, iso_ms, numbered
from milepost.errors import PlanOutdated, StateCorrupt
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.compatibility.spec_check import mismatches
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.table_previews import (
    SinkPreview,
    UnavailableSink,
    check_positions,
    fate_of_dropped,
    preview_sinks,
    undo_limits,
)
from milepost.jobmaster.rollback.inputs import InputSize, consumed_since, replayed_input
from milepost.jobmaster.rollback.switched_tables import SwitchedTable, abandoned_table_size, find_switched_tables
from milepost.jobmaster.rollback.target import require_retained
from milepost.protocol.records import (
    ENDED_STATUSES,
    NO_CHECKPOINT,
    CheckpointId,
    CompletedCheckpoint,
    ManifestState,
    ObjectHandle,
)
from milepost.protocol.retention import checkpoint_ancestry, timeline_ancestry
from milepost.storage import stat_handle

_PARALLEL_STATS = 8


@dataclass(frozen=True, slots=True)
class ApprovedRollback:
    """The target of an approved plan, and what the plan assumes.

    An approval may take days, so the rollback checks the assumptions again.

    Attributes:
        target: a retained checkpoint, 0 for the empty state.
        head: the live head, 0 for the empty state.
        positions: of the table of each sink that answered.
        sinks: of the spec when the plan was made; None if no plan was approved.
    """

    target: int
    head: int
    positions: Mapping[str, str]
    sinks: Sequence[str] | None = None

    def require_current(self, context: JobContext, state: ManifestState) -> None:
        """Raise PlanOutdated unless head, sinks and table positions are still those of the plan."""
        sinks = sorted(sink.name for sink in context.spec.sinks)
        if self.sinks is not None and list(self.sinks) != sinks:
            raise PlanOutdated(
                f"job {state.job}: the spec has sinks {', '.join(sinks) or 'none'}, and had "
                f"{', '.join(self.sinks) or 'none'} when the rollback was planned. Nothing was changed.",
                hint="review a new plan",
            )
        now = state.timeline().head
        if now != self.head:
            raise PlanOutdated(
                f"job {state.job}: its head is checkpoint {now}, and was checkpoint {self.head} when the rollback was "
                "planned. Nothing was changed.",
                hint="review a new plan",
            )
        if self.positions:
            target = require_retained(state, self.target)
            check_positions(context, context.base_metadata(state, target), self.positions)


@dataclass(frozen=True, slots=True)
class EmptyState:
    """The state of a job before its first checkpoint."""

    checkpoint_id: int = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class CheckpointBrief:
    """A checkpoint as a plan shows it. Figures that were not recorded are None."""

    checkpoint_id: int
    epoch: int
    timeline: str
    trigger_time: str
    rows_in: object
    watermark: object


@dataclass(frozen=True, slots=True)
class RunningEpoch:
    """A pending checkpoint, and the session that runs it."""

    checkpoint_id: int
    session_id: str


@dataclass(frozen=True, slots=True)
class StateRows:
    """Rows of an operator's state. state_rows_now: None if the head cannot be read."""

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
        discarded: checkpoints that will no longer be live, oldest first. pending: the epoch that runs now.
        runs_again: per source, input that the next epochs read again. counts_as_read: per source, input that the target
            has consumed and the head has not. Both are None if the head cannot be read.
        other_tables: the target's table of each sink that a migration has moved to another table.
        skipped_sinks: sinks that are no longer in the spec. spec: where the spec does not fit the target.
        text: the plan for people.
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
    sinks: Mapping[str, SinkRollback | UnavailableSink]
    other_tables: Mapping[str, SwitchedTable]
    skipped_sinks: tuple[str, ...]
    not_undone: tuple[str, ...]
    spec: tuple[str, ...]
    job_status: str
    text: tuple[str, ...] = ()

    @property
    def approved(self) -> ApprovedRollback:
        """What a rollback takes of the plan."""
        positions = {name: sink.position for name, sink in self.sinks.items() if isinstance(sink, SinkRollback)}
        head = 0 if self.head is None else self.head.checkpoint_id
        return ApprovedRollback(self.target.checkpoint_id, head, positions, sorted(self.sinks))


def build_plan(context: JobContext, state: ManifestState, target: CheckpointId) -> RollbackPlan:
    """Return the plan of a rollback to a retained checkpoint.

    Raises:
        StateCorrupt: the target cannot be read. InvalidRequest: a sink cannot show it.
    """
    head = state.head()
    then = readable_target(context, state, target)
    try:
        now = context.base_metadata(state, state.timeline().head)
    except StateCorrupt:  # a job with a corrupt head must still be able to roll back
        now = None
    unreadable = now is None and head is not None
    goal = state.checkpoint(target)
    retained = checkpoint_ancestry(state, target)
    discarded = [item for item in timeline_ancestry(state, state.timeline()) if item not in retained]
    previews = preview_sinks(context, then)
    tables = {name for metadata in (now, then) if metadata is not None for name in metadata.tables}
    skipped = tuple(sorted(tables - set(previews)))
    runs_again, lost = replayed_input(context, now, then)
    switched = find_switched_tables(context, now, then)
    plan = RollbackPlan(
        job=state.job,
        manifest_version=state.version,
        timeline=state.live,
        head=None if head is None else _brief(head),
        target=EmptyState() if goal is None else _brief(goal),
        discarded=tuple(map(_brief, discarded)),
        pending=_pending(state),
        runs_again=None if unreadable else runs_again,
        counts_as_read=None if unreadable else consumed_since(context, now, then),
        operators=state_rows(now, then, unknown=unreadable),
        sinks={
            name: _sink(preview, abandoned_table_size(context, now, name, switched))
            for name, preview in previews.items()
        },
        other_tables=switched,
        skipped_sinks=skipped,
        not_undone=(*_not_undone(previews, skipped), *lost),
        spec=tuple(mismatches(preflight(context, then, None))),
        job_status=state.status.value,
    )
    return replace(plan, text=tuple(_text(plan)))


def readable_target(context: JobContext, state: ManifestState, target: CheckpointId) -> CheckpointMetadata | None:
    """Return the target's metadata, None for the empty state, after checking that all its objects have their size.

    Raises: StateCorrupt: an object is missing or has another size, so the next epoch could not continue the target.
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
        faults = [message for message in pool.map(fault, handles) if message is not None]
    if faults:
        raise StateCorrupt(
            f"job {state.job}: going back to checkpoint {target} refused: {len(faults)} of its {len(handles)} objects "
            f"are broken: {faults[0]}",
            hint=f"choose another checkpoint: milepost verify {state.job} shows which are intact",
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
    """Return the rows of each operator's state. Args: unknown: the head cannot be read."""

    def rows(metadata: CheckpointMetadata | None, uid: str) -> int:
        snapshot = metadata.operators.get(uid) if metadata is not None else None
        return 0 if snapshot is None else sum(handle.live_rows for handle in snapshot.handles)

    uids = {uid for metadata in (now, then) if metadata is not None for uid in metadata.operators}
    return {uid: StateRows(None if unknown else rows(now, uid), rows(then, uid)) for uid in sorted(uids)}


def _sink(
    preview: SinkPreview | UnavailableSink, abandoned: tuple[int | None, int] | None
) -> SinkRollback | UnavailableSink:
    """Args: abandoned: rows and files of the table that the sink leaves for another; None if it keeps its table."""
    if isinstance(preview, UnavailableSink):
        return preview
    change = preview.change
    rows, files = (change.rows_now, change.files_now) if abandoned is None else abandoned
    return SinkRollback(rows, change.rows_then, files, change.files_then, preview.position)


def _not_undone(previews: Mapping[str, SinkPreview | UnavailableSink], skipped: Sequence[str]) -> Iterator[str]:
    for name, preview in previews.items():
        if isinstance(preview, UnavailableSink):
            yield f"sink {name} does not answer now: it follows later, and no epoch runs until it has"
    yield from undo_limits({name: item.undo_limits for name, item in previews.items() if isinstance(item, SinkPreview)})
    yield from map(fate_of_dropped, skipped)


def _text(plan: RollbackPlan) -> Iterator[str]:
    if plan.target.checkpoint_id == (plan.head or EmptyState()).checkpoint_id:
        yield f"job {plan.job}: nothing to roll back: it is at {_checkpoint_text(plan.target)}"
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
    yield f"job {plan.job}: from {_checkpoint_text(plan.head)} back to {_checkpoint_text(plan.target)}"
    discarded, note = [brief.checkpoint_id for brief in plan.discarded], ""
    if discarded:
        remain = "they remain until retention deletes them"
        if len(discarded) == 1:
            remain = "it remains until retention deletes it"
        note = f" ({numbered('checkpoint', discarded)}); {remain}, so this rollback can be undone"
    yield f"epochs discarded: {len(discarded)}{note}"
    for uid, rows in plan.operators.items():
        yield f"state {uid}: {_count(rows.state_rows_now)} -> {_count(rows.state_rows_then)} rows"
    for name, sink in plan.sinks.items():
        if isinstance(sink, UnavailableSink):
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


def _checkpoint_text(brief: CheckpointBrief | EmptyState | None) -> str:
    if not isinstance(brief, CheckpointBrief):
        return "the empty state"
    return (
        f"checkpoint {brief.checkpoint_id} (epoch {brief.epoch} of timeline {brief.timeline}, triggered "
        f"{brief.trigger_time})"
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
