"""Checkpoint coordinator: trigger, rebind, complete and abort one checkpoint.

Each function takes the head's state, a request and the store's clock. It returns the transition to write, or that the
request is already done, or it raises and changes nothing. There is no I/O, clock or randomness, so the writer of the
manifest may apply a function again to a newer head after a lost race (I1). `decisions.py` maps requests to functions.

Checks always come in the same order: already done, then the session that owns the checkpoint, then the token (I3).
"""

from __future__ import annotations

from dataclasses import replace

from milepost.errors import Busy, CommitConflict, InvalidRequest
from milepost.protocol.failure.failures import printable_decision, record_success
from milepost.protocol.manifest.timelines.aborts import abort_pending, remember_session
from milepost.protocol.manifest.transaction.answers import (
    AlreadyDone,
    Answer,
    Outcome,
    Transition,
    advance,
    with_garbage,
    with_timeline,
)
from milepost.protocol.manifest.transaction.events import (
    CheckpointCompleted,
    CheckpointRebound,
    CheckpointTriggered,
    JobCreated,
)
from milepost.protocol.manifest.transaction.preconditions import (
    active_freeze,
    check_finished,
    check_importable,
    check_not_aborted,
    check_not_ended,
    check_not_frozen,
    check_pause,
    check_reconciled,
    check_request,
    check_runnable,
    check_sinks,
    check_token,
    find_completion,
    find_pending,
    open_timeline,
    own_pending,
    pending_checkpoint_hint,
)
from milepost.protocol.manifest.transaction.requests import (
    AbortRequest,
    CompleteRequest,
    CreateRequest,
    RebindRequest,
    TriggerRequest,
)
from milepost.protocol.manifest.transaction.runs import find_coverage, later_scheduled_date
from milepost.protocol.manifest.transaction.transitions import job_status_after
from milepost.protocol.manifest.upkeep.pins import live_pins
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Leader, PendingCheckpoint
from milepost.protocol.records.ids import JOB_NAME_PATTERN, MAIN_TIMELINE, CheckpointId, Epoch, FencingToken, TimelineId
from milepost.protocol.records.layout import heartbeat_key, token_prefix
from milepost.protocol.records.manifest_state import Failures, ManifestState, Timeline, TimelineRole
from milepost.protocol.records.reasons import CheckpointFailureReason


def create(state: ManifestState | None, request: CreateRequest, now_ms: int) -> Answer:
    """Create a job: version 1 with the empty state and one live timeline.

    Raises:
        InvalidRequest: the name is not a valid job name.
    """
    if state is not None:
        return AlreadyDone(Outcome.ALREADY_CREATED, f"job {state.job} exists at version {state.version}")
    if JOB_NAME_PATTERN.fullmatch(request.job) is None:
        raise InvalidRequest(f"job name {request.job!r} refused: expected {JOB_NAME_PATTERN.pattern}.")
    event = JobCreated(now_ms, request.job)
    created = ManifestState(
        job=request.job,
        version=1,
        next_checkpoint_id=CheckpointId(1),
        incarnation=1,
        status=job_status_after(None, event),
        live=MAIN_TIMELINE,
        timelines=(Timeline(MAIN_TIMELINE, parent=None, leader=None, pending=None, head=CheckpointId(0)),),
        checkpoints=(),
        failures=Failures(),
        garbage=(),
        key_hash_secret=request.key_hash_secret,
    )
    return Transition(event, created)


def trigger(state: ManifestState, request: TriggerRequest, now_ms: int) -> Answer:
    """Claim a timeline and start its next checkpoint. The new version is the session's fencing token.

    Another session's pending checkpoint must have been swept before (`lease.sweep_decision`). On a fork only the
    fork's pending checkpoint and head are checked: schedule, sinks and failures of the live timeline do not matter.

    With the head at version 40, checkpoint 7, and `next_checkpoint_id` 9 (checkpoint 8 was aborted), a trigger writes
    version 41 with the pending checkpoint 9: base 7, token 41, files below ``chk-…9/t…41/``.

    Returns:
        A transition, or AlreadyDone: COVERED (a completed checkpoint covers the run) or ALREADY_TRIGGERED (the
        session's own checkpoint is pending: continue it).
    Raises:
        JobNotRunnable: the job is FAILED or has ended (I4; an import only requires that the end is clean), more than
            three checkpoints wait for a sink (I8), or a sink has not followed a switch of the live timeline (I14).
        Fenced: this Airflow run's checkpoint was aborted, and only a new run gets a new id; or the timeline is not
            open.
        Busy: another session's checkpoint is pending or has frozen the timeline, or `min_pause` has not passed.
        CommitConflict: the plan was made from another head, or while other objects were quarantined.
        InvalidRequest: a value is out of bounds.
    """
    check_request(request)
    on_fork = _on_fork(state, request.timeline)
    coverage = None if on_fork else find_coverage(state, request.session_id, request.run)
    if coverage is not None:
        return AlreadyDone(
            Outcome.COVERED, coverage.message, coverage.checkpoint_id, None, state.checkpoint(coverage.checkpoint_id)
        )
    timeline = open_timeline(state, request.timeline, "trigger")
    pending, previous_leader = timeline.pending, timeline.leader
    if pending is not None and previous_leader is not None and previous_leader.session_id == request.session_id:
        return AlreadyDone(
            Outcome.ALREADY_TRIGGERED,
            f"checkpoint {pending.checkpoint_id} of this session is pending: continuing it",
            pending.checkpoint_id,
            pending,
        )
    if request.imports:
        check_importable(state, request, on_fork)
    elif on_fork:
        check_not_ended(state)
    else:
        check_runnable(state)
        if request.run.run_id is not None:
            check_not_aborted(state, request.session_id)
    if pending is not None:
        raise Busy(
            f"job {state.job}: trigger refused: checkpoint {pending.checkpoint_id} of another session is pending."
            " Nothing was written.",
            hint=pending_checkpoint_hint(state, timeline.timeline_id),
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            checkpoint_id=pending.checkpoint_id,
        )
    if not on_fork:
        check_reconciled(state, "trigger")
        check_not_frozen(state, request.session_id, now_ms)
        check_sinks(state)
        check_pause(state, request.min_pause_ms, now_ms)
    if timeline.head != request.base:
        raise CommitConflict(
            f"job {state.job}: trigger refused: the plan continues checkpoint {request.base}, the head is"
            f" {timeline.head}. Nothing was written.",
            hint="Another run was faster. Run again: it continues from the new head.",
            base=request.base,
            head=timeline.head,
        )
    if not on_fork and state.quarantined != request.quarantined:
        raise CommitConflict(
            f"job {state.job}: trigger refused: objects were quarantined or released since the plan was made. Nothing"
            " was written.",
            hint="Run again: it plans without the objects that are quarantined now.",
        )
    token = FencingToken(state.version + 1)
    head = state.checkpoint(timeline.head)
    checkpoint_id = max(state.next_checkpoint_id, CheckpointId(request.above + 1))
    checkpoint = PendingCheckpoint(
        checkpoint_id=checkpoint_id,
        epoch=Epoch(1 if head is None else head.epoch + 1),
        token=token,
        base=timeline.head,
        plan=request.plan,
        expected=request.expected,
        trigger_time_ms=now_ms,
        deadline_ms=now_ms + request.timeout_ms,
        run=request.run,
        code_hash=request.code_hash,
        spec_hash=request.spec_hash,
        prefixes=(token,),
    )
    leader = Leader(request.session_id, token, request.holder)
    return advance(
        state,
        CheckpointTriggered(now_ms, timeline.timeline_id, leader, checkpoint),
        next_checkpoint_id=CheckpointId(checkpoint_id + 1),
        timelines=with_timeline(
            state, replace(timeline, leader=leader, pending=checkpoint, frozen=active_freeze(timeline, now_ms))
        ),
        pins=live_pins(state, now_ms),
    )


def _on_fork(state: ManifestState, timeline_id: TimelineId | None) -> bool:
    return timeline_id is not None and any(
        timeline.timeline_id == timeline_id and timeline.role is TimelineRole.FORK for timeline in state.timelines
    )


def rebind(state: ManifestState, request: RebindRequest, now_ms: int) -> Answer:
    """Grant a new token for the session's own pending checkpoint, fencing all earlier tries (I3).

    The lease is renewed: each try gets the whole timeout, even if the deadline has passed without a sweep.

    Returns:
        A transition, or AlreadyDone ALREADY_COMPLETED.
    Raises:
        Fenced: the checkpoint is no longer pending, or belongs to another session.
        ProtocolViolation: no such checkpoint was ever triggered.
        InvalidRequest: the timeout is not positive.
    """
    if request.timeout_ms <= 0:
        raise InvalidRequest(f"timeout of {request.timeout_ms} ms refused: expected more than 0.")
    already_done = find_completion(state, request.session_id, request.checkpoint_id)
    if already_done is not None:
        return already_done
    timeline, pending, leader = own_pending(state, request.session_id, request.checkpoint_id, "rebind")
    token = FencingToken(state.version + 1)
    deadline_ms = max(pending.deadline_ms, now_ms + request.timeout_ms)
    rebound = replace(pending, token=token, deadline_ms=deadline_ms, prefixes=(*pending.prefixes, token))
    leader_with_token = replace(leader, token=token, holder=request.holder)
    return advance(
        state,
        CheckpointRebound(
            now_ms,
            timeline.timeline_id,
            pending.checkpoint_id,
            pending.epoch,
            request.session_id,
            request.holder,
            token,
            deadline_ms,
        ),
        timelines=with_timeline(state, replace(timeline, leader=leader_with_token, pending=rebound)),
    )


def complete(state: ManifestState, request: CompleteRequest, now_ms: int) -> Answer:
    """Make the pending checkpoint the head: the commit point (I7, I9).

    Completing after the deadline is allowed. The deadline ends the lease, not the work, and a sweep would adopt the
    same `_metadata`.

    Returns:
        A transition, or AlreadyDone ALREADY_COMPLETED for any token.
    Raises:
        Fenced: the checkpoint is no longer pending or belongs to another session, or `_metadata` has an older token.
        CommitConflict: swept, but the holder took a new token in the meantime: judge the lease again.
        SubtaskDeclined: an expected subtask did not acknowledge. QualityGateFailed: the verdict is not "passed".
        ProtocolViolation: never triggered, a token never granted, or metadata outside the token's prefix.
    """
    already_done = find_completion(state, None if request.swept else request.session_id, request.checkpoint_id)
    if already_done is not None:
        return already_done
    session_id = None if request.swept else request.session_id
    timeline, pending, leader = own_pending(state, session_id, request.checkpoint_id, "complete")
    check_token(pending, request.token, "complete", request.swept)
    check_finished(pending, request)
    live = timeline.role is TimelineRole.LIVE
    completed = CompletedCheckpoint(
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=timeline.timeline_id,
        parent=pending.base,
        token=pending.token,
        session_id=leader.session_id,
        holder=leader.holder,
        metadata=request.metadata,
        plan=pending.plan,
        trigger_time_ms=pending.trigger_time_ms,
        completed_time_ms=max(now_ms, pending.trigger_time_ms),
        version=state.version + 1,
        run=pending.run,
        code_hash=pending.code_hash,
        spec_hash=pending.spec_hash,
        sinks=request.sinks,
        unconfirmed=request.sinks if live else (),
        summary=request.summary,
    )
    losing_tokens = [token for token in pending.prefixes if token != pending.token]
    losing_prefixes = [token_prefix(pending.checkpoint_id, token) for token in losing_tokens]
    return advance(
        state,
        CheckpointCompleted(now_ms, completed, request.session_id if request.swept else None),
        timelines=with_timeline(state, replace(timeline, pending=None, head=pending.checkpoint_id)),
        # A fork may complete a later id than the live timeline's pending one, and earlier in time.
        checkpoints=tuple(sorted((*state.checkpoints, completed), key=lambda checkpoint: checkpoint.checkpoint_id)),
        failures=record_success(state.failures, pending.checkpoint_id) if live else state.failures,
        garbage=with_garbage(state, [*losing_prefixes, heartbeat_key(pending.checkpoint_id, pending.token)], now_ms),
        completed_sessions=remember_session(state.completed_sessions, leader.session_id, pending.checkpoint_id),
        last_scheduled_logical_date=(
            later_scheduled_date(state.last_scheduled_logical_date, pending.run)
            if live
            else state.last_scheduled_logical_date
        ),
    )


def abort(state: ManifestState, request: AbortRequest, now_ms: int) -> Answer:
    """Abort a pending checkpoint. All its prefixes become garbage, and its failure counts if its reason does (I9).

    Returns:
        A transition whose event states whether the failure was tolerated, or AlreadyDone: ALREADY_COMPLETED (nothing
        is deleted) or NOT_PENDING (aborted before).
    Raises:
        Fenced: it belongs to another session, or a later try of this session owns it.
        CommitConflict: swept, but the holder took a new token in the meantime: judge the lease again.
        ProtocolViolation: never triggered. InvalidRequest: a sweep without the judged token, or a negative limit.
    """
    if request.swept and request.token is None:
        raise InvalidRequest(f"checkpoint {request.checkpoint_id}: sweep refused: expected the token that was judged.")
    if request.tolerable_failures is not None and request.tolerable_failures < 0:
        raise InvalidRequest(f"tolerable_failures {request.tolerable_failures} refused: expected 0 or more.")
    already_done = find_completion(state, None, request.checkpoint_id)
    if already_done is not None:
        return already_done
    if find_pending(state, request.checkpoint_id) is None and request.checkpoint_id < state.next_checkpoint_id:
        return AlreadyDone(
            Outcome.NOT_PENDING,
            f"checkpoint {request.checkpoint_id} is no longer pending: there is nothing to abort",
            request.checkpoint_id,
        )
    session_id = None if request.swept else request.session_id
    owned = own_pending(state, session_id, request.checkpoint_id, "abort")
    if request.token is not None:
        check_token(owned[1], request.token, "abort", request.swept)
    decided_by = None if request.decided_by is None else printable_decision(request.decided_by)
    event, after_abort = abort_pending(
        state, owned, request.session_id, request.reason, request.detail, request.tolerable_failures, now_ms
    )
    return advance(
        state,
        replace(event, veto=request.veto, decided_by=decided_by),
        timelines=after_abort.timelines,
        failures=after_abort.failures,
        garbage=after_abort.garbage,
        aborted_sessions=after_abort.aborted_sessions,
    )
