"""Plan a backfill: choose the fork point, collect the recorded ranges, and check them.

The fork point is the newest retained checkpoint of the live ancestry that had consumed no row of the requested range:
for each source with event time, the newest event time delivered is before the start of the range. The watermark is
lower than that: with a watermark of 11:50, rows up to 12:05 may be in the state, so the checkpoint does not fit a range
from 12:00.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from milepost.epoch import CheckpointMetadata, watermark_of, watermark_text
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.jobmaster.backfill.consumed_input import Consumed
from milepost.jobmaster.backfill.live_ranges import LiveRanges
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.backfill.replay_check import check_objects
from milepost.jobmaster.compatibility.rows_in_flight import check_continuable
from milepost.jobmaster.compatibility.spec_check import check_compatible
from milepost.jobmaster.compatibility.tables import check_new_tables, check_switched_tables
from milepost.jobmaster.job.code import JobCode, LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.false_rows import require_true_rows
from milepost.language.times import EPOCH, in_us, parse_timestamp
from milepost.protocol.manifest.transaction import job_ended_error
from milepost.protocol.records import ENDED_STATUSES, NO_CHECKPOINT, CheckpointId, ManifestState, checkpoint_name
from milepost.protocol.retention import timeline_ancestry
from milepost.quality import resolve_suite


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The request for a backfill.

    Attributes:
        from_us: event time, microseconds since the epoch, UTC. Rows from here on are processed again. None if the fork
            point is given instead.
        to_us: epochs that begin at or after it are replayed, but neither shown in the plan's range nor judged by the
            quality gate; None includes all.
        from_checkpoint: the fork point; None derives it from `from_us`.
        ranges_per_epoch: number of recorded ranges that one epoch replays, at least 1. More is faster, and fewer rows
            are late, because lateness is judged by the watermark at the start of an epoch.
        allow_non_restored_state: drop the state of operators that are no longer in the spec.
    """

    from_us: int | None
    to_us: int | None
    from_checkpoint: int | None
    ranges_per_epoch: int
    allow_non_restored_state: bool


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """A backfill that can start: every object is available, and the spec can continue the fork point.

    Attributes:
        state: the head that the plan was made from. fork_point: 0 for the empty state. base: its metadata.
        live: reads what was consumed since the fork point. ranges: up to the head of `state`, in order, including
            empty ones.
        code: the code that would run. loaded: with its process functions.
    """

    request: BackfillRequest
    state: ManifestState
    fork_point: CheckpointId
    base: CheckpointMetadata | None
    live: LiveRanges
    ranges: tuple[RecordedRange, ...]
    code: JobCode
    loaded: LoadedCode

    def taken_for_granted(self, context: JobContext) -> ApprovedBackfill:
        """Return what the plan assumes."""
        return assumptions(context, self.state, self.fork_point, self.request, self.code)

    @property
    def to_replay(self) -> tuple[RecordedRange, ...]:
        """The ranges that are not empty."""
        return tuple(item for item in self.ranges if not item.is_empty)

    @property
    def base_consumed(self) -> Consumed:
        """What the fork point had consumed."""
        return self.live.base_consumed


@dataclass(frozen=True, slots=True)
class ApprovedBackfill:
    """The span of an approved plan, and what the plan assumes. If one of the values changes, a new plan is needed.

    Attributes:
        fork_point: 0 for the empty state. to: end of the span in ISO 8601; None for the head.
        ranges_per_epoch, allow_non_restored_state: as in `BackfillRequest`.
    """

    timeline: str
    fork_point: int
    to: str | None
    ranges_per_epoch: int
    allow_non_restored_state: bool
    code_hash: str
    spec_hash: str

    def request(self) -> BackfillRequest:
        """Return the request for exactly this span."""
        return request_of(None, self.to, self.fork_point, self.ranges_per_epoch, self.allow_non_restored_state)

    def require_same(self, now: ApprovedBackfill) -> None:
        """Raise PlanOutdated unless a plan made now has the same assumptions."""
        changed = [
            f"{item.name}: {getattr(self, item.name)} then, {getattr(now, item.name)} now"
            for item in fields(self)
            if getattr(self, item.name) != getattr(now, item.name)
        ]
        if changed:
            raise PlanOutdated(
                f"what the plan is about has changed since it was made: {'; '.join(changed)}. Nothing was changed.",
                hint="review a new plan",
            )


def assumptions(
    context: JobContext, state: ManifestState, point: CheckpointId, request: BackfillRequest, code: JobCode
) -> ApprovedBackfill:
    """Return what a plan of this request assumes."""
    options = (request.ranges_per_epoch, request.allow_non_restored_state)
    to, spec_hash = watermark_text(request.to_us), context.job.spec_hash
    return ApprovedBackfill(state.live, int(point), to, *options, code.hash, spec_hash)


def request_of(
    from_: str | None,
    to: str | None,
    from_checkpoint: int | None,
    ranges_per_epoch: int = 1,
    allow_non_restored_state: bool = False,
) -> BackfillRequest:
    """Return the checked request. Raises InvalidRequest: an argument is missing or no time, or the range is empty."""
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
        return in_us(parse_timestamp(text) - EPOCH)
    except ValueError:
        raise InvalidRequest(
            f"{what} {text!r} is not a time: expected ISO 8601, as in 2013-03-01 or 2013-03-01T06:00Z. Nothing was "
            "changed."
        ) from None


def prepare(context: JobContext, request: BackfillRequest) -> BackfillPlan:
    """Choose the fork point, collect the ranges, and make all checks that are possible in advance.

    Raises:
        NotFound: no such retained checkpoint of the live ancestry, or the job has never run.
        SourceChanged: recorded objects were deleted or have changed; `details` lists them.
        InvalidRequest: the spec cannot continue the fork point, or the records do not lead to the head.
        InputVoided: the live head has read landed rows that proved false.
        JobNotRunnable: the job has ended. StateCorrupt: a record cannot be read.
    """
    state = context.head().state
    if state.status in ENDED_STATUSES:
        raise job_ended_error(state)
    if request.from_us is not None and all(one.event_time is None for one in context.spec.streams.values()):
        raise InvalidRequest(
            f"job {state.job}: no source has event time, so a backfill cannot begin at one. Nothing was changed.",
            hint=_everything(state),
        )
    point = fork_point(context, state, request)
    base, head = context.base_metadata(state, point), context.base_metadata(state, state.timeline().head)
    for log in map(context.source_log, context.spec.landed):
        require_true_rows(context, head, log, log.newest())
    context.job.spark_server()
    code = read_code(context)
    for suite in context.spec.quality:
        resolve_suite(suite)
    loaded = code.load(context)
    command = f"milepost backfill {state.job} --from-checkpoint {point}"
    check_compatible(
        context,
        base,
        code,
        loaded,
        allow_non_restored_state=request.allow_non_restored_state,
        retry_command=command,
    )
    _check_continuable(context, state, base, loaded)
    check_switched_tables(context, head, loaded.graph, command)
    check_new_tables(context, None)
    live = LiveRanges(context, state, point, base)
    plan = BackfillPlan(request, state, point, base, live, live.up_to_head(state), code, loaded)
    if not plan.to_replay:
        raise _all_quarantined(state, point) if live.has_left_out(head) else _nothing_read(state, point)
    check_objects(context, plan.to_replay)
    return plan


def _all_quarantined(state: ManifestState, point: CheckpointId) -> InvalidRequest:
    return InvalidRequest(
        f"job {state.job}: all that was read since {checkpoint_name(point)} is quarantined: there is nothing to "
        "replay. Nothing was changed.",
        hint=f"a rollback removes its rows: milepost rollback {state.job} --to {point}",
    )


def _nothing_read(state: ManifestState, point: CheckpointId) -> InvalidRequest:
    return InvalidRequest(
        f"job {state.job}: nothing was read since {checkpoint_name(point)}: there is nothing to replay. "
        "Nothing was changed.",
        hint=_everything(state) if point != NO_CHECKPOINT else f"milepost run {state.job}",
    )


def _everything(state: ManifestState) -> str:
    return f"all that was read is replayed by: milepost backfill {state.job} --from-checkpoint 0 --dry-run"


def _check_continuable(
    context: JobContext, state: ManifestState, base: CheckpointMetadata | None, loaded: LoadedCode
) -> None:
    """Check as `check_continuable`, with a hint for fork points, whose rows in flight cannot be processed first."""
    try:
        check_continuable(context, base, loaded)
    except InvalidRequest as error:
        if base is None or base.final:
            raise
        before = [one for one in timeline_ancestry(state, state.timeline()) if one.checkpoint_id < base.checkpoint_id]
        fits = next((one for one in reversed(before) if not context.metadata(one).in_flight_bytes), None)
        at = NO_CHECKPOINT if fits is None else fits.checkpoint_id
        error.hint = f"fork where nothing was in flight: --from-checkpoint {at} ({checkpoint_name(at)})"
        raise


def is_judged(request: BackfillRequest, base: CheckpointMetadata | None) -> bool:
    """Return whether the gate judges the epoch that continues this checkpoint: it may have rows before `--to`."""
    if request.to_us is None or base is None:
        return True
    reached_us = watermark_of(base)
    return reached_us is None or reached_us < request.to_us


def fork_point(context: JobContext, state: ManifestState, request: BackfillRequest) -> CheckpointId:
    """Return the checkpoint that a backfill forks at. Raises NotFound: no such retained checkpoint."""
    live = timeline_ancestry(state, state.timeline())
    if request.from_checkpoint is not None:
        wanted = CheckpointId(request.from_checkpoint)
        if wanted == NO_CHECKPOINT or any(one.checkpoint_id == wanted for one in live):
            return wanted
        raise NotFound(
            f"job {state.job}: checkpoint {wanted} is not a retained checkpoint of the live timeline; those are: "
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
    """Return whether the checkpoint has consumed no row at or after `from_us` that counts for the watermark."""
    return not metadata.final and all(
        source.newest_event_us < from_us if source.newest_event_us is not None else source.watermark_us is None
        for source in metadata.sources.values()
    )
