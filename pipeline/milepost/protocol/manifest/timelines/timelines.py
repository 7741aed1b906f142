"""Another timeline becomes the live one, or is worked on beside it; the sinks follow (DESIGN 6, I14).

A switch is one transition. It destroys nothing: what was live is abandoned, and one may go back to any checkpoint of it
that is still retained. It also says what every sink must show, and nothing is triggered on the new live timeline before
all of them have followed. Commits that the old one still owed are void: the way of each sink to its new head replaces
them, and a stalled one of them cannot land any more.
"""

from __future__ import annotations

from dataclasses import replace

from milepost.protocol.failure.failures import printable_detail
from milepost.protocol.manifest.timelines.aborts import given_up
from milepost.protocol.manifest.timelines.incarnation import check_clean
from milepost.protocol.manifest.transaction.answers import (
    AlreadyDone,
    Answer,
    Outcome,
    Transition,
    advance,
    with_timeline,
)
from milepost.protocol.manifest.transaction.events import (
    ForkDisposed,
    RealignmentDecided,
    SinkReconciled,
    SwitchKind,
    TimelineForked,
    TimelineFrozen,
    TimelineSwitched,
    TimelineThawed,
)
from milepost.protocol.manifest.transaction.preconditions import (
    check_not_ended,
    frozen_by,
    open_timeline,
    wait_or_give_up,
)
from milepost.protocol.manifest.transaction.requests import (
    DisposeForkRequest,
    FastForwardRequest,
    ForkRequest,
    FreezeRequest,
    RealignSinkRequest,
    ReconcileSinkRequest,
    RollbackRequest,
    ThawRequest,
)
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.errors import (
    Busy,
    CommitConflict,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
)
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, TimelineId
from milepost.protocol.records.manifest_state import (
    Failures,
    Freeze,
    JobStatus,
    ManifestState,
    Reconciliation,
    Timeline,
    TimelineRole,
)
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.ancestry import drop_empty_timelines, open_forks, owner_of, timeline_ancestry

MAX_FORKS = 8
"""How many forks may be open at once: all that is completed on an open one stays."""


def rollback(state: ManifestState, request: RollbackRequest, now_ms: int) -> Answer:
    """Start a new live timeline at an older checkpoint, and abandon the one that was live.

    A fork that owns the checkpoint is abandoned with it: what was built on it is what the job continues now. A job that
    was FAILED runs again, for a person has decided; one that has ended stays so until `start`.

    Returns:
        A transition, or AlreadyDone ALREADY_THERE: the checkpoint is the live head, and nothing was completed since.
    Raises:
        Busy: a checkpoint is pending on the live timeline, or on the fork that owns `to`.
        CommitConflict: the live head is another one by now. NotFound: `to` is not retained.
        JobNotRunnable: the clean-up of the last incarnation is not over. InvalidRequest: a sink is named twice.
    """
    live = state.timeline()
    _check_sinks(request.sinks)
    if live.pending is None and live.head == request.to:
        return AlreadyDone(
            Outcome.ALREADY_THERE,
            f"job {state.job} is at checkpoint {request.to}: nothing was completed since",
            request.to,
        )
    _check_retained(state, request.to, "rollback")
    check_clean(state, "rollback")
    owner = owner_of(state, request.to)
    taken = [one for one in state.timelines if one is live or (_is_fork(one) and one.timeline_id == owner)]
    for timeline in taken:
        _check_idle(state, timeline, "rollback")
    _check_head(state, live, request.expected_head, "rollback")
    timeline_id = _next_name(state)
    started = Timeline(timeline_id, (owner, request.to), leader=None, pending=None, head=request.to)
    left = tuple(_abandoned_by_rollback(one) if one in taken else one for one in state.timelines)
    return _switched(state, SwitchKind.ROLLBACK, (*left, started), started, request, now_ms)


def fast_forward(state: ManifestState, request: FastForwardRequest, now_ms: int) -> Answer:
    """Make a fork the live timeline, and abandon the one that was.

    Returns:
        A transition, or AlreadyDone ALREADY_LIVE.
    Raises:
        Fenced: the fork is not open any more. Busy: a checkpoint is pending on either.
        CommitConflict: either head is another one by now: compare again what both have consumed.
        JobNotRunnable: the incarnation has ended: it stays at the checkpoint it ended at. InvalidRequest: a sink is
            named twice.
    """
    live = state.timeline()
    _check_sinks(request.sinks)
    if live.timeline_id == request.fork:
        return AlreadyDone(Outcome.ALREADY_LIVE, f"job {state.job}: timeline {request.fork} is the live one", live.head)
    fork_ = open_timeline(state, request.fork, "fast-forward")
    check_clean(state, "fast-forward")
    check_not_ended(state)
    for timeline in (live, fork_):
        _check_idle(state, timeline, "fast-forward")
    _check_head(state, live, request.expected_main_head, "fast-forward")
    _check_head(state, fork_, request.expected_fork_head, "fast-forward")
    started = replace(fork_, leader=None, role=TimelineRole.LIVE, live_from=fork_.head)
    left = tuple(_abandoned(one) if one is live else started if one is fork_ else one for one in state.timelines)
    return _switched(state, SwitchKind.FAST_FORWARD, left, started, request, now_ms)


def fork(state: ManifestState, request: ForkRequest, now_ms: int) -> Answer:
    """Open a timeline beside the live one; whatever happens on it, the live one does not notice.

    Raises:
        NotFound: the checkpoint is not retained. InvalidRequest: too many forks are open.
    """
    _check_retained(state, request.at, "fork")
    forks = [str(timeline.timeline_id) for timeline in open_forks(state)]
    if len(forks) >= MAX_FORKS:
        raise InvalidRequest(
            f"job {state.job}: fork refused: {len(forks)} forks are open, at most {MAX_FORKS} may: {forks}."
            " Nothing was written.",
            hint="Finish one of them, or dispose of it.",
            forks=forks,
        )
    parent = (owner_of(state, request.at), request.at)
    opened = Timeline(
        _next_name(state), parent, leader=None, pending=None, head=request.at, role=TimelineRole.FORK, live_from=None
    )
    event = TimelineForked(now_ms, opened, request.session_id)
    return advance(state, event, timelines=(*state.timelines, opened))


def dispose_fork(state: ManifestState, request: DisposeForkRequest, now_ms: int) -> Answer:
    """Give a fork up: what is pending on it is aborted, its session is fenced, its checkpoints are kept no more.

    Returns:
        A transition, or AlreadyDone NOT_OPEN.
    Raises:
        InvalidRequest: it is the live timeline.
    """
    if request.fork == state.live:
        raise InvalidRequest(
            f"job {state.job}: disposal of timeline {request.fork} refused: it is the live one. Nothing was written."
        )
    found = next((one for one in open_forks(state) if one.timeline_id == request.fork), None)
    if found is None:
        return AlreadyDone(Outcome.NOT_OPEN, f"job {state.job} has no open fork {request.fork}")
    left, aborted = state, None
    if found.pending is not None and found.leader is not None:
        aborted, left = given_up(
            state,
            (found, found.pending, found.leader),
            request.session_id,
            CheckpointFailureReason.ABORTED_BY_USER,
            "its fork was disposed of",
            None,
            now_ms,
        )
    timelines = tuple(_abandoned(one) if one.timeline_id == request.fork else one for one in left.timelines)
    return advance(
        state,
        ForkDisposed(now_ms, request.fork, aborted, request.session_id),
        timelines=drop_empty_timelines(timelines, state.checkpoints),
        garbage=left.garbage,
        aborted_sessions=left.aborted_sessions,
    )


def freeze(state: ManifestState, request: FreezeRequest, now_ms: int) -> Answer:
    """Keep other sessions from triggering on the live timeline for a time; what is pending on it may go on.

    Raises:
        Busy: another session's freeze is not over. InvalidRequest: no time.
    """
    if request.hold_ms <= 0:
        raise InvalidRequest(f"freeze of {request.hold_ms} ms refused: expected more than 0.")
    live = state.timeline()
    frozen = frozen_by(live, now_ms)
    if frozen is not None and frozen.session_id != request.session_id:
        raise Busy(
            f"job {state.job}: freeze refused: session {frozen.session_id} has frozen timeline {live.timeline_id} for"
            f" another {frozen.until_ms - now_ms} ms. Nothing was written.",
            hint="Wait for it: one fast-forward at a time.",
            session_id=frozen.session_id,
            until_ms=frozen.until_ms,
        )
    held = Freeze(request.session_id, now_ms + request.hold_ms)
    event = TimelineFrozen(now_ms, live.timeline_id, held)
    return advance(state, event, timelines=with_timeline(state, replace(live, frozen=held)))


def thaw(state: ManifestState, request: ThawRequest, now_ms: int) -> Answer:
    """Let go of the session's freeze; one that is gone, or another session's by now, is nothing to let go of."""
    live = state.timeline()
    if live.frozen is None or live.frozen.session_id != request.session_id:
        return AlreadyDone(Outcome.NOT_FROZEN, f"job {state.job}: nothing is frozen by session {request.session_id}")
    event = TimelineThawed(now_ms, live.timeline_id, request.session_id)
    return advance(state, event, timelines=with_timeline(state, replace(live, frozen=None)))


def reconcile_sink(state: ManifestState, request: ReconcileSinkRequest, now_ms: int) -> Answer:
    """Record that a sink has followed a switch: a fact, accepted from any session, monotone (I11, I14).

    Returns:
        A transition, or AlreadyDone ALREADY_RECONCILED: recorded before, or a newer switch has replaced this one.
    Raises:
        ProtocolViolation: there was no such switch.
    """
    due = state.reconciliation
    newest = state.version if due is None else due.decision
    if not 0 < request.decision <= newest:
        raise ProtocolViolation(
            f"job {state.job}: reconciliation of sink {request.sink} refused: expected a switch up to version {newest},"
            f" got {request.decision}. Nothing was written."
        )
    if due is None or request.decision != due.decision or request.sink not in due.sinks:
        return AlreadyDone(
            Outcome.ALREADY_RECONCILED,
            f"job {state.job}: sink {request.sink} has nothing to follow for the switch of version {request.decision}",
        )
    left = tuple(sink for sink in due.sinks if sink != request.sink)
    realigned = tuple(sink for sink in due.realigned if sink != request.sink)
    return advance(
        state,
        SinkReconciled(now_ms, request.decision, request.sink, request.session_id),
        reconciliation=replace(due, sinks=left, realigned=realigned) if left else None,
    )


def realign_sink(state: ManifestState, request: RealignSinkRequest, now_ms: int) -> Answer:
    """Let one sink follow the live head under a new decision: its table was moved by somebody else.

    What it has yet to confirm is void: the head's contents have it. Nothing is triggered before it has followed. Sinks
    that have yet to follow an earlier decision follow this one: that table may be what has kept them from it.

    Raises:
        Busy: a checkpoint is pending on the live timeline. CommitConflict: the live head is another one by now.
    """
    live, due = state.timeline(), state.reconciliation
    _check_idle(state, live, "realign")
    _check_head(state, live, request.expected_head, "realign")
    sinks = {request.sink, *(() if due is None else due.sinks)}
    realigned = {request.sink, *(() if due is None else due.realigned)}
    owed = (
        replace(one, unconfirmed=tuple(sink for sink in one.unconfirmed if sink != request.sink))
        for one in state.checkpoints
    )
    return advance(
        state,
        RealignmentDecided(now_ms, request.sink, live.head, printable_detail(request.detail), request.session_id),
        checkpoints=tuple(owed),
        reconciliation=Reconciliation(
            state.version + 1, live.timeline_id, live.head, tuple(sorted(sinks)), tuple(sorted(realigned))
        ),
    )


def _switched(
    state: ManifestState,
    kind: SwitchKind,
    timelines: tuple[Timeline, ...],
    started: Timeline,
    request: RollbackRequest | FastForwardRequest,
    now_ms: int,
) -> Transition:
    """Return the one transition of both ways to change the live timeline."""
    old = state.timeline()
    sinks = tuple(sorted(request.sinks))
    before = () if state.reconciliation is None else state.reconciliation.realigned
    realigned = tuple(sink for sink in before if sink in sinks)  # a person's decision stands until it is carried out
    due = Reconciliation(state.version + 1, started.timeline_id, started.head, sinks, realigned)
    after = replace(state, timelines=timelines, live=started.timeline_id)
    stays = {checkpoint.checkpoint_id for checkpoint in timeline_ancestry(after, started)}
    event = TimelineSwitched(
        at_ms=now_ms,
        kind=kind,
        from_timeline=old.timeline_id,
        from_head=old.head,
        timeline=started.timeline_id,
        to=started.head,
        discarded=tuple(one.checkpoint_id for one in timeline_ancestry(state, old) if one.checkpoint_id not in stays),
        sinks=sinks,
        detail=printable_detail(request.detail),
        session_id=request.session_id,
    )
    failures = state.failures
    if state.status is JobStatus.FAILED:
        failures = Failures(last_success=failures.last_success)
    return advance(
        state,
        event,
        live=started.timeline_id,
        timelines=drop_empty_timelines(timelines, state.checkpoints),
        checkpoints=tuple(_owing_nothing(checkpoint) for checkpoint in state.checkpoints),
        failures=failures,
        reconciliation=due if sinks else None,
    )


def _owing_nothing(checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
    return replace(checkpoint, unconfirmed=()) if checkpoint.unconfirmed else checkpoint


def _abandoned(timeline: Timeline) -> Timeline:
    return replace(timeline, leader=None, pending=None, role=TimelineRole.ABANDONED, frozen=None)


def _abandoned_by_rollback(timeline: Timeline) -> Timeline:
    """The live timeline, or the fork whose checkpoints a rollback takes, after it: a line that it can be undone to.

    All that the fork has completed is a replay, so it counts as live from its head on.
    """
    live_from = timeline.head if _is_fork(timeline) else timeline.live_from
    return replace(_abandoned(timeline), live_from=live_from)


def _is_fork(timeline: Timeline) -> bool:
    return timeline.role is TimelineRole.FORK


def _next_name(state: ManifestState) -> TimelineId:
    return TimelineId(f"t{state.version + 1}")


def _check_sinks(sinks: tuple[str, ...]) -> None:
    if len(set(sinks)) != len(sinks):
        raise InvalidRequest(f"switch of the live timeline refused: a sink is named twice: {sinks}.")


def _check_retained(state: ManifestState, checkpoint_id: CheckpointId, what: str) -> None:
    if checkpoint_id != NO_CHECKPOINT and state.checkpoint(checkpoint_id) is None:
        retained = [int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints]
        raise NotFound(
            f"job {state.job}: {what} to checkpoint {checkpoint_id} refused: it is not retained; retained: {retained},"
            " and 0, the empty state. Nothing was written.",
            checkpoint_id=checkpoint_id,
            retained=retained,
        )


def _check_idle(state: ManifestState, timeline: Timeline, what: str) -> None:
    if timeline.pending is not None:
        session_id = None if timeline.leader is None else timeline.leader.session_id
        raise Busy(
            f"job {state.job}: {what} refused: checkpoint {timeline.pending.checkpoint_id} of session {session_id} is"
            f" pending on timeline {timeline.timeline_id}. Nothing was written.",
            hint=wait_or_give_up(state, timeline.timeline_id),
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            checkpoint_id=timeline.pending.checkpoint_id,
            session_id=session_id,
        )


def _check_head(state: ManifestState, timeline: Timeline, expected: CheckpointId, what: str) -> None:
    if timeline.head != expected:
        raise CommitConflict(
            f"job {state.job}: {what} refused: it was decided with timeline {timeline.timeline_id} at checkpoint"
            f" {expected}, which is at {timeline.head} by now. Nothing was written. Look at the plan again.",
            timeline=timeline.timeline_id,
            expected=expected,
            head=timeline.head,
        )
