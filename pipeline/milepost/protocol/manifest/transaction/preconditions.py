"""Preconditions of transitions. Each returns what it looked up, or raises a typed error."""

from __future__ import annotations

from milepost.errors import (
    NEWER_TRY,
    Busy,
    CommitConflict,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    ProtocolViolation,
    QualityGateFailed,
    SubtaskDeclined,
)
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome
from milepost.protocol.manifest.transaction.requests import CompleteRequest, TriggerRequest
from milepost.protocol.manifest.transaction.runs import parse_logical_date
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Leader, PendingCheckpoint
from milepost.protocol.records.ids import (
    MAX_CHECKPOINT_ID,
    NO_CHECKPOINT,
    CheckpointId,
    FencingToken,
    SessionId,
    TimelineId,
    session_digest,
)
from milepost.protocol.records.layout import (
    checkpoint_of_key,
    copy_pin_name,
    is_job_directory,
    key_fault,
    savepoint_root_of_key,
    token_prefix,
    token_prefix_of_key,
)
from milepost.protocol.records.log_positions import LogFloor, is_below_floor
from milepost.protocol.records.manifest_state import (
    ENDED_STATUSES,
    CleanUp,
    Freeze,
    JobStatus,
    ManifestState,
    Timeline,
    TimelineRole,
)
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import MAX_UNCONFIRMED, lowest_pending, root_in_job


def is_live_leader(state: ManifestState, session_id: SessionId) -> bool:
    """Return whether the session leads the live timeline."""
    leader = state.timeline().leader
    return leader is not None and leader.session_id == session_id


def pending_checkpoint_hint(state: ManifestState, timeline_id: TimelineId) -> str:
    """Return the hint for a session that finds a pending checkpoint. On a fork it belongs to a backfill."""
    if timeline_id != state.live:
        return "Wait for it."
    return (
        f"Wait for it, or abort it and fence its session: milepost abort {state.job}. For run and rollback,"
        " --take-over does that."
    )


def open_timeline(state: ManifestState, timeline_id: TimelineId | None, operation: str) -> Timeline:
    """Return the live timeline (None), or one that is live or a fork.

    Raises:
        Fenced: it is abandoned or not listed: the session that worked on it has lost it.
    """
    requested_id = state.live if timeline_id is None else timeline_id
    for timeline in state.timelines:
        if timeline.timeline_id == requested_id and timeline.role is not TimelineRole.ABANDONED:
            return timeline
    raise Fenced(
        f"job {state.job}: {operation} on timeline {requested_id} refused: it is not open, the live one is"
        f" {state.live}. It was disposed of, or abandoned by a rollback. Nothing was written. Do not retry.",
        timeline=requested_id,
        live=state.live,
    )


def active_freeze(timeline: Timeline, now_ms: int) -> Freeze | None:
    """Return the active freeze of a timeline; None if any session may trigger on it."""
    return timeline.frozen if timeline.frozen is not None and timeline.frozen.until_ms > now_ms else None


def find_pending(
    state: ManifestState, checkpoint_id: CheckpointId
) -> tuple[Timeline, PendingCheckpoint, Leader] | None:
    """Return a pending checkpoint by its id, with its timeline and leader; None if it is not pending."""
    for timeline in state.timelines:
        pending, leader = timeline.pending, timeline.leader
        if pending is not None and leader is not None and pending.checkpoint_id == checkpoint_id:
            return timeline, pending, leader
    return None


def own_pending(
    state: ManifestState, session_id: SessionId | None, checkpoint_id: CheckpointId, operation: str
) -> tuple[Timeline, PendingCheckpoint, Leader]:
    """Return the pending checkpoint of a session; `session_id` None: of any session (a sweep)."""
    owned = find_pending(state, checkpoint_id)
    if owned is None:
        if not 0 < checkpoint_id < state.next_checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {checkpoint_id}: {operation} refused: it was never triggered, the next id is"
                f" {state.next_checkpoint_id}. Nothing was written."
            )
        raise Fenced(
            f"checkpoint {checkpoint_id}: {operation} refused: it is no longer pending. Nothing was written."
            " Do not retry: trigger a new run.",
            checkpoint_id=checkpoint_id,
        )
    if session_id is not None and owned[2].session_id != session_id:
        raise Fenced(
            f"checkpoint {checkpoint_id}: {operation} by session {session_id} refused: it belongs to session"
            f" {owned[2].session_id}. Nothing was written. Do not retry: trigger a new run.",
            checkpoint_id=checkpoint_id,
        )
    return owned


def find_completion(
    state: ManifestState, session_id: SessionId | None, checkpoint_id: CheckpointId
) -> AlreadyDone | None:
    """Return the answer if this session (None: any) has completed the checkpoint, even if it has been subsumed."""
    completed = state.checkpoint(checkpoint_id)
    is_completed = completed is not None and session_id in (None, completed.session_id)
    if not is_completed:
        session = None if session_id is None else session_digest(session_id)
        is_completed = any(
            completed_id == checkpoint_id and session in (None, digest)
            for digest, completed_id in state.completed_sessions
        )
    if not is_completed:
        return None
    message = f"checkpoint {checkpoint_id} is already completed"
    return AlreadyDone(Outcome.ALREADY_COMPLETED, message, checkpoint_id, None, completed)


def check_token(pending: PendingCheckpoint, token: FencingToken, operation: str, swept: bool) -> None:
    """I3: the token is in force. Raises Fenced, ProtocolViolation, or CommitConflict for a sweep."""
    if token == pending.token:
        return
    prefix = f"checkpoint {pending.checkpoint_id}: {operation} refused: fencing token {token}, current {pending.token}."
    if token > pending.token:
        raise ProtocolViolation(f"{prefix} Such a token was never granted. Nothing was written.")
    if swept:
        raise CommitConflict(f"{prefix} Its holder is active again. Nothing was written. Check its lease again.")
    raise Fenced(
        f"{prefix} Nothing was written. Do not retry: a newer try of this run owns the checkpoint.",
        hint=NEWER_TRY,
        checkpoint_id=pending.checkpoint_id,
        token=token,
        current=pending.token,
    )


def check_finished(pending: PendingCheckpoint, request: CompleteRequest) -> None:
    """I7: the metadata belongs to the token, every expected subtask acknowledged, and the gate passed."""
    checkpoint_id = pending.checkpoint_id
    prefix = token_prefix(checkpoint_id, pending.token)
    if not request.metadata.key.startswith(prefix) or key_fault(request.metadata.key) is not None:
        raise ProtocolViolation(
            f"checkpoint {checkpoint_id}: complete refused: expected metadata below {prefix}, got"
            f" {request.metadata.key!r}. Nothing was written."
        )
    if len(set(request.sinks)) != len(request.sinks):
        raise ProtocolViolation(
            f"checkpoint {checkpoint_id}: complete refused: a sink is named twice: {request.sinks}."
        )
    missing = set(pending.expected) - set(request.acknowledged)
    if missing:
        names = sorted((key.level, key.subtask) for key in missing)
        raise SubtaskDeclined(
            f"checkpoint {checkpoint_id}: complete refused: {len(missing)} of {len(pending.expected)} expected subtasks"
            f" did not acknowledge: (level, subtask) {names[:8]}. Nothing was published.",
            reason=CheckpointFailureReason.ACKNOWLEDGEMENT_MISSING.value,
            checkpoint_id=checkpoint_id,
        )
    if not request.gate_passed:
        raise QualityGateFailed(
            f"checkpoint {checkpoint_id}: complete refused: the quality gate did not pass. Nothing was published.",
            reason=CheckpointFailureReason.QUALITY_GATE_FAILED.value,
            checkpoint_id=checkpoint_id,
        )


def check_request(request: TriggerRequest) -> None:
    """Check that the values of a trigger are within bounds. Raises InvalidRequest."""
    if request.timeout_ms <= 0 or request.min_pause_ms < 0:
        raise InvalidRequest(
            f"trigger refused: expected a timeout above 0 ms and a pause of at least 0 ms, got {request.timeout_ms} and"
            f" {request.min_pause_ms}."
        )
    if not request.expected or len(set(request.expected)) != len(request.expected):
        raise InvalidRequest(
            f"trigger refused: expected at least one subtask, each once, got {len(request.expected)},"
            f" {len(set(request.expected))} of them different."
        )
    fault = key_fault(request.plan.key)
    if fault is not None:
        raise InvalidRequest(f"trigger refused: plan key {request.plan.key!r}: {fault}.")
    if request.run.logical_date is not None:
        parse_logical_date(request.run.logical_date)


def check_runnable(state: ManifestState) -> None:
    """I4: the incarnation has neither failed nor ended. Raises JobNotRunnable."""
    if state.status is JobStatus.FAILED:
        failures = state.failures
        raise JobNotRunnable(
            f"job {state.job} is FAILED since checkpoint {failures.last_checkpoint}: {failures.last_reason}:"
            f" {str(failures.last_detail).removesuffix('.')}. Nothing was written.",
            hint=f"Fix the cause, then: milepost resume {state.job}",
            reason=failures.last_reason,
        )
    if state.status is not JobStatus.RUNNING:
        raise job_ended_error(state)


def check_not_ended(state: ManifestState) -> None:
    """I4: the incarnation has not ended. A fork continues in a FAILED job. Raises JobNotRunnable."""
    if state.status in ENDED_STATUSES:
        raise job_ended_error(state)


def check_importable(state: ManifestState, request: TriggerRequest, on_fork: bool) -> None:
    """Check that a checkpoint may be imported: no epoch runs. Raises InvalidRequest, JobNotRunnable."""
    if not on_fork or not NO_CHECKPOINT <= request.above < MAX_CHECKPOINT_ID:
        raise InvalidRequest(
            f"job {state.job}: trigger refused: a checkpoint is imported on a fork of its own, with an id above that"
            f" of the one that is copied, got {request.above}. Nothing was written."
        )
    if any(result.clean_up is CleanUp.DIRTY for result in state.results):
        raise job_ended_error(state)


def job_ended_error(state: ManifestState) -> JobNotRunnable:
    """Return the error for a job that has ended."""
    return JobNotRunnable(
        f"job {state.job} is {state.status.name}: incarnation {state.incarnation} has ended and is never run again."
        " Nothing was written.",
        hint=f"milepost start {state.job} opens the next one, which continues from checkpoint {state.timeline().head}",
        status=state.status.value,
        incarnation=state.incarnation,
    )


def check_not_aborted(state: ManifestState, session_id: SessionId) -> None:
    """Check that this run's checkpoint was not aborted: only a new run gets a new id (DESIGN 4). Raises Fenced."""
    for aborted_session, checkpoint_id in reversed(state.aborted_sessions):
        if aborted_session == session_digest(session_id):
            raise Fenced(
                f"job {state.job}: trigger refused: checkpoint {checkpoint_id} of this run was aborted, and a run has"
                " one checkpoint. Nothing was written. Do not retry: trigger a new run.",
                checkpoint_id=checkpoint_id,
            )


def check_sinks(state: ManifestState) -> None:
    """I8: not too many completed checkpoints wait for a sink. Raises JobNotRunnable."""
    waiting = state.unconfirmed()
    if len(waiting) > MAX_UNCONFIRMED:
        sinks = sorted({sink for checkpoint in waiting for sink in checkpoint.unconfirmed})
        raise JobNotRunnable(
            f"job {state.job}: trigger refused: {len(waiting)} completed checkpoints wait for sinks {sinks}, at most"
            f" {MAX_UNCONFIRMED} may. Nothing is lost: they are published once the sinks answer.",
            hint="Make the sinks available, then run again.",
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            unconfirmed=[checkpoint.checkpoint_id for checkpoint in waiting],
            sinks=sinks,
        )


def check_reconciled(state: ManifestState, operation: str) -> None:
    """I14: every sink has followed the newest switch of the live timeline. Raises JobNotRunnable."""
    reconciliation = state.reconciliation
    if reconciliation is not None:
        raise JobNotRunnable(
            f"job {state.job}: {operation} refused: sinks {list(reconciliation.sinks)} must still follow timeline"
            f" {reconciliation.timeline} to checkpoint {reconciliation.checkpoint_id}. Nothing was written, and"
            " nothing is lost.",
            hint="Make the sinks available: the next run makes them follow before anything else.",
            sinks=list(reconciliation.sinks),
            decision=reconciliation.decision,
            checkpoint_id=reconciliation.checkpoint_id,
        )


def check_not_frozen(state: ManifestState, session_id: SessionId, now_ms: int) -> None:
    """Check that no other session has frozen the live timeline. Raises Busy."""
    frozen = active_freeze(state.timeline(), now_ms)
    if frozen is not None and frozen.session_id != session_id:
        wait_ms = frozen.until_ms - now_ms
        raise Busy(
            f"job {state.job}: trigger refused: session {frozen.session_id} has frozen timeline {state.live} for"
            f" another {wait_ms} ms, to make its fork live. Nothing was written.",
            hint=f"The freeze ends by itself. Run again in at most {-(-wait_ms // 1000)} s. If it is of a backfill "
            f"that was killed, end it now: milepost backfill {state.job} --dispose",
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            session_id=frozen.session_id,
            until_ms=frozen.until_ms,
            wait_ms=wait_ms,
        )


def check_pause(state: ManifestState, min_pause_ms: int, now_ms: int) -> None:
    """Check that `min_pause` has passed. Raises Busy."""
    head = state.head()
    if head is None:
        return
    # A clock behind the completion time proves nothing, and must not stop the job until it has caught up.
    since_ms = now_ms - head.completed_time_ms
    if 0 <= since_ms < min_pause_ms:
        wait_ms = min_pause_ms - since_ms
        raise Busy(
            f"job {state.job}: trigger refused: {since_ms} ms since checkpoint {head.checkpoint_id} completed, the"
            f" minimum pause is {min_pause_ms} ms. Nothing was written.",
            hint=f"run it again in {-(-wait_ms // 1000)} s; `milepost run JOB --until-caught-up` waits by itself",
            reason=CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS.value,
            wait_ms=wait_ms,
        )


def check_garbage(
    state: ManifestState,
    retained: tuple[CompletedCheckpoint, ...],
    garbage: tuple[str, ...],
    floors: tuple[LogFloor, ...],
) -> None:
    """I8: garbage entries are below checkpoints older than every pending one, and no retained checkpoint names them.

    An entry is one key, or the directory of a token or of its metrics, or the root of a savepoint that is neither
    listed nor being copied, or a record below the floor of its log, or the directory of its objects (L5).
    """
    roots = {root for root in map(root_in_job, state.savepoints) if root is not None}
    copied_to = {pin.name for pin in state.pins}
    lowest = lowest_pending(state)
    referenced = {handle.key for checkpoint in retained for handle in (checkpoint.metadata, checkpoint.plan)}
    for key in garbage:
        if savepoint_root_of_key(key) == key and key not in roots and copy_pin_name(key) not in copied_to:
            continue
        if is_below_floor(key, floors):
            continue
        checkpoint_id = checkpoint_of_key(key)
        is_live = lowest is not None and checkpoint_id is not None and checkpoint_id >= lowest
        is_directory = key.endswith("/")
        is_live = is_live or (any(name.startswith(key) for name in referenced) if is_directory else key in referenced)
        if is_directory:
            is_valid = token_prefix_of_key(key) is not None and is_job_directory(key)
        else:
            is_valid = key_fault(key) is None
        if checkpoint_id is None or is_live or not is_valid:
            raise ProtocolViolation(
                f"job {state.job}: garbage {key!r} refused: expected one object, or a token's directory, below a"
                " checkpoint that is neither pending nor newer than a pending one, and that nothing retained names; or"
                " the root of a savepoint that is neither listed nor being copied; or of a record below a floor."
                " Nothing was written."
            )
