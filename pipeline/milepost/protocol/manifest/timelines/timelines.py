"""Switch the live timeline (rollback, fast-forward), and manage forks (DESIGN 6, I14).

A switch is one transition and destroys nothing. The previous live timeline is abandoned, and its retained checkpoints
remain valid rollback targets. The switch also states what every sink must show; nothing is triggered on the new live
timeline before all sinks have followed. Commits that the old timeline still owed are void: each sink's move to the new
head replaces them, and a stalled one can no longer land.

For example, a rollback to checkpoint 2 in version 9::

    before   main  live       1 - 2 - 3     head 3, sink `out` has not confirmed 3
    after    main  abandoned  1 - 2 - 3     3 is no longer due
             t9    live           2         head 2, parent (main, 2); `out` must show 2 with decision 9
"""

from __future__ import annotations

from dataclasses import replace

from milepost.errors import (
    Busy,
    CommitConflict,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
)
from milepost.protocol.failure.failures import printable_decision, printable_detail
from milepost.protocol.manifest.timelines.aborts import abort_pending
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
    active_freeze,
    check_not_ended,
    open_timeline,
    pending_checkpoint_hint,
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
"""How many forks may be open at a time. All checkpoints completed on an open fork are retained."""


def rollback(state: ManifestState, request: RollbackRequest, now_ms: int) -> Answer:
    """Start a new live timeline at an older checkpoint, and abandon the current one.

    A fork that owns the checkpoint is abandoned with it: its work is what the job continues now. A FAILED job runs
    again, because a person has decided; a job that has ended stays ended until `start`.

    Returns:
        A transition, or AlreadyDone ALREADY_THERE: the checkpoint is the live head and nothing is pending.
    Raises:
        Busy: a checkpoint is pending on the live timeline, or on the fork that owns `to`.
        CommitConflict: the live head has changed. NotFound: `to` is not retained.
        JobNotRunnable: the last incarnation's clean-up is not done. InvalidRequest: a sink is named twice.
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
    replaced = [line for line in state.timelines if line is live or (_is_fork(line) and line.timeline_id == owner)]
    for timeline in replaced:
        _check_idle(state, timeline, "rollback")
    _check_head(state, live, request.expected_head, "rollback")
    timeline_id = _next_name(state)
    started = Timeline(timeline_id, (owner, request.to), leader=None, pending=None, head=request.to)
    timelines = tuple(_abandon_for_rollback(line) if line in replaced else line for line in state.timelines)
    return _switch(state, SwitchKind.ROLLBACK, (*timelines, started), started, request, now_ms)


def fast_forward(state: ManifestState, request: FastForwardRequest, now_ms: int) -> Answer:
    """Make a fork the live timeline, and abandon the current one.

    Returns:
        A transition, or AlreadyDone ALREADY_LIVE.
    Raises:
        Fenced: the fork is no longer open. Busy: a checkpoint is pending on either timeline.
        CommitConflict: either head has changed: compare again what both have consumed.
        JobNotRunnable: the incarnation has ended and stays at its last checkpoint. InvalidRequest: a sink is named
            twice.
    """
    live = state.timeline()
    _check_sinks(request.sinks)
    if live.timeline_id == request.fork:
        return AlreadyDone(Outcome.ALREADY_LIVE, f"job {state.job}: timeline {request.fork} is the live one", live.head)
    open_fork = open_timeline(state, request.fork, "fast-forward")
    check_clean(state, "fast-forward")
    check_not_ended(state)
    for timeline in (live, open_fork):
        _check_idle(state, timeline, "fast-forward")
    _check_head(state, live, request.expected_main_head, "fast-forward")
    _check_head(state, open_fork, request.expected_fork_head, "fast-forward")
    started = replace(open_fork, leader=None, role=TimelineRole.LIVE, live_from=open_fork.head)
    timelines = tuple(
        _abandon(line) if line is live else started if line is open_fork else line for line in state.timelines
    )
    return _switch(state, SwitchKind.FAST_FORWARD, timelines, started, request, now_ms)


def fork(state: ManifestState, request: ForkRequest, now_ms: int) -> Answer:
    """Open a fork: a timeline alongside the live one, which it never affects.

    Raises:
        NotFound: the checkpoint is not retained. InvalidRequest: too many forks are open.
    """
    _check_retained(state, request.at, "fork")
    forks = [str(timeline.timeline_id) for timeline in open_forks(state)]
    if len(forks) >= MAX_FORKS:
        raise InvalidRequest(
            f"job {state.job}: fork refused: {len(forks)} forks are open, at most {MAX_FORKS} may: {forks}."
            " Nothing was written.",
            hint="Finish one of them or dispose of it.",
            forks=forks,
        )
    parent = (owner_of(state, request.at), request.at)
    opened = Timeline(
        _next_name(state), parent, leader=None, pending=None, head=request.at, role=TimelineRole.FORK, live_from=None
    )
    event = TimelineForked(now_ms, opened, request.session_id)
    return advance(state, event, timelines=(*state.timelines, opened))


def dispose_fork(state: ManifestState, request: DisposeForkRequest, now_ms: int) -> Answer:
    """Dispose of a fork: abort its pending checkpoint, fence its session, and stop retaining its checkpoints.

    Returns:
        A transition, or AlreadyDone NOT_OPEN.
    Raises:
        InvalidRequest: it is the live timeline.
    """
    if request.fork == state.live:
        raise InvalidRequest(
            f"job {state.job}: disposal of timeline {request.fork} refused: it is the live one. Nothing was written."
        )
    open_fork = next((timeline for timeline in open_forks(state) if timeline.timeline_id == request.fork), None)
    if open_fork is None:
        return AlreadyDone(Outcome.NOT_OPEN, f"job {state.job} has no open fork {request.fork}")
    after_abort, aborted = state, None
    if open_fork.pending is not None and open_fork.leader is not None:
        aborted, after_abort = abort_pending(
            state,
            (open_fork, open_fork.pending, open_fork.leader),
            request.session_id,
            CheckpointFailureReason.ABORTED_BY_USER,
            "its fork was disposed of",
            None,
            now_ms,
        )
    timelines = tuple(_abandon(line) if line.timeline_id == request.fork else line for line in after_abort.timelines)
    return advance(
        state,
        ForkDisposed(now_ms, request.fork, aborted, request.session_id),
        timelines=drop_empty_timelines(timelines, state.checkpoints),
        garbage=after_abort.garbage,
        aborted_sessions=after_abort.aborted_sessions,
    )


def freeze(state: ManifestState, request: FreezeRequest, now_ms: int) -> Answer:
    """Prevent other sessions from triggering on the live timeline for a while. A pending checkpoint may continue.

    Raises:
        Busy: another session's freeze is active. InvalidRequest: the duration is not positive.
    """
    if request.hold_ms <= 0:
        raise InvalidRequest(f"freeze of {request.hold_ms} ms refused: expected more than 0.")
    live = state.timeline()
    frozen = active_freeze(live, now_ms)
    if frozen is not None and frozen.session_id != request.session_id:
        raise Busy(
            f"job {state.job}: freeze refused: session {frozen.session_id} has frozen timeline {live.timeline_id} for"
            f" another {frozen.until_ms - now_ms} ms. Nothing was written.",
            hint="Wait for it. Only one fast-forward runs at a time.",
            session_id=frozen.session_id,
            until_ms=frozen.until_ms,
        )
    freeze_ = Freeze(request.session_id, now_ms + request.hold_ms)
    event = TimelineFrozen(now_ms, live.timeline_id, freeze_)
    return advance(state, event, timelines=with_timeline(state, replace(live, frozen=freeze_)))


def thaw(state: ManifestState, request: ThawRequest, now_ms: int) -> Answer:
    """Release the session's own freeze. A freeze that has ended, or that another session holds, is ignored."""
    live = state.timeline()
    if live.frozen is None or live.frozen.session_id != request.session_id:
        return AlreadyDone(Outcome.NOT_FROZEN, f"job {state.job}: nothing is frozen by session {request.session_id}")
    event = TimelineThawed(now_ms, live.timeline_id, request.session_id)
    return advance(state, event, timelines=with_timeline(state, replace(live, frozen=None)))


def reconcile_sink(state: ManifestState, request: ReconcileSinkRequest, now_ms: int) -> Answer:
    """Record that a sink has followed a switch. This is a fact: accepted from any session, monotone (I11, I14).

    Returns:
        A transition, or AlreadyDone ALREADY_RECONCILED: recorded before, or replaced by a newer switch.
    Raises:
        ProtocolViolation: there was no such switch.
    """
    current = state.reconciliation
    newest = state.version if current is None else current.decision
    if not 0 < request.decision <= newest:
        raise ProtocolViolation(
            f"job {state.job}: reconciliation of sink {request.sink} refused: expected a switch up to version {newest},"
            f" got {request.decision}. Nothing was written."
        )
    if current is None or request.decision != current.decision or request.sink not in current.sinks:
        return AlreadyDone(
            Outcome.ALREADY_RECONCILED,
            f"job {state.job}: sink {request.sink} has nothing to follow for the switch of version {request.decision}",
        )
    sinks = tuple(sink for sink in current.sinks if sink != request.sink)
    realigned = tuple(sink for sink in current.realigned if sink != request.sink)
    return advance(
        state,
        SinkReconciled(now_ms, request.decision, request.sink, request.session_id),
        reconciliation=replace(current, sinks=sinks, realigned=realigned) if sinks else None,
    )


def realign_sink(state: ManifestState, request: RealignSinkRequest, now_ms: int) -> Answer:
    """Make one sink follow the live head under a new decision, after an external writer moved its table.

    Its unconfirmed commits are void, because the head's contents include them. Nothing is triggered before it has
    followed. Sinks that still have to follow an earlier decision follow this one instead: the moved table may be the
    reason why they have not followed.

    Raises:
        Busy: a checkpoint is pending on the live timeline. CommitConflict: the live head has changed.
    """
    live, current = state.timeline(), state.reconciliation
    _check_idle(state, live, "realign")
    _check_head(state, live, request.expected_head, "realign")
    sinks = {request.sink, *(() if current is None else current.sinks)}
    realigned = {request.sink, *(() if current is None else current.realigned)}
    checkpoints = tuple(
        replace(checkpoint, unconfirmed=tuple(sink for sink in checkpoint.unconfirmed if sink != request.sink))
        for checkpoint in state.checkpoints
    )
    detail, decided_by = printable_detail(request.decided_by.text), printable_decision(request.decided_by)
    return advance(
        state,
        RealignmentDecided(now_ms, request.sink, live.head, detail, request.session_id, decided_by),
        checkpoints=checkpoints,
        reconciliation=Reconciliation(
            state.version + 1, live.timeline_id, live.head, tuple(sorted(sinks)), tuple(sorted(realigned))
        ),
    )


def _switch(
    state: ManifestState,
    kind: SwitchKind,
    timelines: tuple[Timeline, ...],
    started: Timeline,
    request: RollbackRequest | FastForwardRequest,
    now_ms: int,
) -> Transition:
    """Return the transition that rollback and fast-forward have in common."""
    old = state.timeline()
    sinks = tuple(sorted(request.sinks))
    earlier_realigned = () if state.reconciliation is None else state.reconciliation.realigned
    realigned = tuple(sink for sink in earlier_realigned if sink in sinks)  # a person's decision holds until it is done
    reconciliation = Reconciliation(state.version + 1, started.timeline_id, started.head, sinks, realigned)
    after = replace(state, timelines=timelines, live=started.timeline_id)
    remaining = {checkpoint.checkpoint_id for checkpoint in timeline_ancestry(after, started)}
    ids = (checkpoint.checkpoint_id for checkpoint in timeline_ancestry(state, old))
    event = TimelineSwitched(
        at_ms=now_ms,
        kind=kind,
        from_timeline=old.timeline_id,
        from_head=old.head,
        timeline=started.timeline_id,
        to=started.head,
        discarded=tuple(checkpoint_id for checkpoint_id in ids if checkpoint_id not in remaining),
        sinks=sinks,
        detail=printable_detail(request.decided_by.text),
        session_id=request.session_id,
        decided_by=printable_decision(request.decided_by),
    )
    failures = state.failures
    if state.status is JobStatus.FAILED:
        failures = Failures(last_success=failures.last_success)
    return advance(
        state,
        event,
        live=started.timeline_id,
        timelines=drop_empty_timelines(timelines, state.checkpoints),
        checkpoints=tuple(_without_due_commits(checkpoint) for checkpoint in state.checkpoints),
        failures=failures,
        reconciliation=reconciliation if sinks else None,
    )


def _without_due_commits(checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
    return replace(checkpoint, unconfirmed=()) if checkpoint.unconfirmed else checkpoint


def _abandon(timeline: Timeline) -> Timeline:
    return replace(timeline, leader=None, pending=None, role=TimelineRole.ABANDONED, frozen=None)


def _abandon_for_rollback(timeline: Timeline) -> Timeline:
    """Return the live timeline, or the fork that owns the target, as a line to which the rollback can be undone.

    Everything that the fork has completed is a replay, so it counts as live from its head on.
    """
    live_from = timeline.head if _is_fork(timeline) else timeline.live_from
    return replace(_abandon(timeline), live_from=live_from)


def _is_fork(timeline: Timeline) -> bool:
    return timeline.role is TimelineRole.FORK


def _next_name(state: ManifestState) -> TimelineId:
    return TimelineId(f"t{state.version + 1}")


def _check_sinks(sinks: tuple[str, ...]) -> None:
    if len(set(sinks)) != len(sinks):
        raise InvalidRequest(f"switch of the live timeline refused: a sink is named twice: {sinks}.")


def _check_retained(state: ManifestState, checkpoint_id: CheckpointId, operation: str) -> None:
    if checkpoint_id != NO_CHECKPOINT and state.checkpoint(checkpoint_id) is None:
        retained = [int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints]
        raise NotFound(
            f"job {state.job}: {operation} to checkpoint {checkpoint_id} refused: it is not retained; retained:"
            f" {retained}, and 0, the empty state. Nothing was written.",
            checkpoint_id=checkpoint_id,
            retained=retained,
        )


def _check_idle(state: ManifestState, timeline: Timeline, operation: str) -> None:
    if timeline.pending is not None:
        session_id = None if timeline.leader is None else timeline.leader.session_id
        raise Busy(
            f"job {state.job}: {operation} refused: checkpoint {timeline.pending.checkpoint_id} of session {session_id}"
            f" is pending on timeline {timeline.timeline_id}. Nothing was written.",
            hint=pending_checkpoint_hint(state, timeline.timeline_id),
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            checkpoint_id=timeline.pending.checkpoint_id,
            session_id=session_id,
        )


def _check_head(state: ManifestState, timeline: Timeline, expected: CheckpointId, operation: str) -> None:
    if timeline.head != expected:
        raise CommitConflict(
            f"job {state.job}: {operation} refused: it was decided with timeline {timeline.timeline_id} at checkpoint"
            f" {expected}, which is at {timeline.head} now. Nothing was written. Review the plan again.",
            timeline=timeline.timeline_id,
            expected=expected,
            head=timeline.head,
        )
