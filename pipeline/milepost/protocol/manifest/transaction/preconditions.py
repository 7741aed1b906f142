"""The preconditions of the coordinator's transitions: each returns what it looked up, or raises its typed error."""

from __future__ import annotations

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome
from milepost.protocol.manifest.transaction.requests import CompleteRequest, TriggerRequest
from milepost.protocol.manifest.transaction.runs import instant
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Leader, PendingCheckpoint
from milepost.protocol.records.errors import (
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


def leads(state: ManifestState, session_id: SessionId) -> bool:
    """Return whether the session leads the live timeline."""
    leader = state.timeline().leader
    return leader is not None and leader.session_id == session_id


def wait_or_give_up(state: ManifestState, timeline_id: TimelineId) -> str:
    """Return the hint for who meets a checkpoint that is pending on a timeline; on a fork it is a backfill's."""
    if timeline_id != state.live:
        return "Wait for it."
    return (
        f"Wait for it, or let it be aborted and its session be fenced: milepost abort {state.job}; of run and "
        "rollback, --take-over does so."
    )


def open_timeline(state: ManifestState, timeline_id: TimelineId | None, what: str) -> Timeline:
    """Return the live timeline (None), or one that is live or a fork.

    Raises:
        Fenced: it is abandoned, or not listed: whoever worked on it has lost it.
    """
    wanted = state.live if timeline_id is None else timeline_id
    for timeline in state.timelines:
        if timeline.timeline_id == wanted and timeline.role is not TimelineRole.ABANDONED:
            return timeline
    raise Fenced(
        f"job {state.job}: {what} on timeline {wanted} refused: it is not open, the live one is {state.live}. It was"
        " disposed of, or left behind by a rollback. Nothing was written. Do not retry.",
        timeline=wanted,
        live=state.live,
    )


def frozen_by(timeline: Timeline, now_ms: int) -> Freeze | None:
    """Return the freeze of a timeline that is not over; None when it takes triggers of anybody."""
    return timeline.frozen if timeline.frozen is not None and timeline.frozen.until_ms > now_ms else None


def find_pending(
    state: ManifestState, checkpoint_id: CheckpointId
) -> tuple[Timeline, PendingCheckpoint, Leader] | None:
    """Return a pending checkpoint by its id, with its timeline and leader; None when it is not pending."""
    for timeline in state.timelines:
        pending, leader = timeline.pending, timeline.leader
        if pending is not None and leader is not None and pending.checkpoint_id == checkpoint_id:
            return timeline, pending, leader
    return None


def own_pending(
    state: ManifestState, session_id: SessionId | None, checkpoint_id: CheckpointId, what: str
) -> tuple[Timeline, PendingCheckpoint, Leader]:
    """Return the pending checkpoint if it is the session's; `session_id` None: whoever's it is (a sweep)."""
    found = find_pending(state, checkpoint_id)
    if found is None:
        if not 0 < checkpoint_id < state.next_checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {checkpoint_id}: {what} refused: it was never triggered, the next id is"
                f" {state.next_checkpoint_id}. Nothing was written."
            )
        raise Fenced(
            f"checkpoint {checkpoint_id}: {what} refused: it is not pending any more. Nothing was written."
            " Do not retry: trigger a new run.",
            checkpoint_id=checkpoint_id,
        )
    if session_id is not None and found[2].session_id != session_id:
        raise Fenced(
            f"checkpoint {checkpoint_id}: {what} by session {session_id} refused: it belongs to session"
            f" {found[2].session_id}. Nothing was written. Do not retry: trigger a new run.",
            checkpoint_id=checkpoint_id,
        )
    return found


def completed_by(state: ManifestState, session_id: SessionId | None, checkpoint_id: CheckpointId) -> AlreadyDone | None:
    """Answer for a checkpoint that this session (None: anybody) has completed, also when it is subsumed by now."""
    completed = state.checkpoint(checkpoint_id)
    known = completed is not None and session_id in (None, completed.session_id)
    if not known:
        wanted = None if session_id is None else session_digest(session_id)
        known = any(done == checkpoint_id and wanted in (None, digest) for digest, done in state.completed_sessions)
    if not known:
        return None
    message = f"checkpoint {checkpoint_id} is already completed"
    return AlreadyDone(Outcome.ALREADY_COMPLETED, message, checkpoint_id, None, completed)


def check_token(pending: PendingCheckpoint, token: FencingToken, what: str, swept: bool) -> None:
    """I3: the token is the one in force. Raises Fenced, ProtocolViolation, or CommitConflict for a sweep."""
    if token == pending.token:
        return
    where = f"checkpoint {pending.checkpoint_id}: {what} refused: fencing token {token}, current {pending.token}."
    if token > pending.token:
        raise ProtocolViolation(f"{where} Such a token was never granted. Nothing was written.")
    if swept:
        raise CommitConflict(f"{where} Its holder came back. Nothing was written. Judge its lease again.")
    raise Fenced(
        f"{where} Nothing was written. Do not retry: a newer try of this run owns the checkpoint.",
        hint=NEWER_TRY,
        checkpoint_id=pending.checkpoint_id,
        token=token,
        current=pending.token,
    )


def check_finished(pending: PendingCheckpoint, request: CompleteRequest) -> None:
    """I7: the metadata is the token's own, every expected subtask acknowledged, and the gate passed."""
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
    """The values of a trigger are within bounds. Raises InvalidRequest."""
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
        instant(request.run.logical_date)


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
        raise ended(state)


def check_not_ended(state: ManifestState) -> None:
    """I4: the incarnation has not ended; a fork goes on when it has FAILED. Raises JobNotRunnable."""
    if state.status in ENDED_STATUSES:
        raise ended(state)


def check_importable(state: ManifestState, request: TriggerRequest, on_fork: bool) -> None:
    """A checkpoint may be copied in: no epoch of any incarnation runs. Raises InvalidRequest, JobNotRunnable."""
    if not on_fork or not NO_CHECKPOINT <= request.above < MAX_CHECKPOINT_ID:
        raise InvalidRequest(
            f"job {state.job}: trigger refused: a checkpoint is imported on a fork of its own, with an id above that"
            f" of the one that is copied, got {request.above}. Nothing was written."
        )
    if any(result.clean_up is CleanUp.DIRTY for result in state.results):
        raise ended(state)


def ended(state: ManifestState) -> JobNotRunnable:
    """Return the error of a job that has ended."""
    return JobNotRunnable(
        f"job {state.job} is {state.status.name}: incarnation {state.incarnation} has ended and is never run again."
        " Nothing was written.",
        hint=f"milepost start {state.job} opens the next one, which continues checkpoint {state.timeline().head}",
        status=state.status.value,
        incarnation=state.incarnation,
    )


def check_not_aborted(state: ManifestState, session_id: SessionId) -> None:
    """A new checkpoint id comes only from a new run (DESIGN 4). Raises Fenced."""
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
            hint="Bring the sinks back, then run again.",
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            unconfirmed=[checkpoint.checkpoint_id for checkpoint in waiting],
            sinks=sinks,
        )


def check_reconciled(state: ManifestState, what: str) -> None:
    """I14: every sink has followed the newest switch of the live timeline. Raises JobNotRunnable."""
    due = state.reconciliation
    if due is not None:
        raise JobNotRunnable(
            f"job {state.job}: {what} refused: sinks {list(due.sinks)} have yet to follow timeline {due.timeline} to"
            f" checkpoint {due.checkpoint_id}. Nothing was written, and nothing is lost.",
            hint="Bring the sinks back: the next run lets them follow before anything else.",
            sinks=list(due.sinks),
            decision=due.decision,
            checkpoint_id=due.checkpoint_id,
        )


def check_not_frozen(state: ManifestState, session_id: SessionId, now_ms: int) -> None:
    """No other session has frozen the live timeline. Raises Busy."""
    frozen = frozen_by(state.timeline(), now_ms)
    if frozen is not None and frozen.session_id != session_id:
        wait_ms = frozen.until_ms - now_ms
        raise Busy(
            f"job {state.job}: trigger refused: session {frozen.session_id} has frozen timeline {state.live} for"
            f" another {wait_ms} ms, to put its fork in its place. Nothing was written.",
            hint=f"The freeze ends by itself: run it again in {-(-wait_ms // 1000)} s at the latest.",
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            session_id=frozen.session_id,
            until_ms=frozen.until_ms,
            wait_ms=wait_ms,
        )


def check_pause(state: ManifestState, min_pause_ms: int, now_ms: int) -> None:
    """`min_pause` is over. Raises Busy."""
    head = state.head()
    if head is None:
        return
    # A clock behind the completion says nothing about the pause: it must not stop the job until it has caught up.
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


def check_garbage(state: ManifestState, kept: tuple[CompletedCheckpoint, ...], garbage: tuple[str, ...]) -> None:
    """I8: what is listed lies below a checkpoint older than every pending one, and nothing retained names it.

    An entry is one key, or the directory of a token or of its metrics. Or the root of a savepoint that is not listed
    and that nobody copies to.
    """
    roots = {root for root in map(root_in_job, state.savepoints) if root is not None}
    copied_to = {pin.name for pin in state.pins}
    lowest = lowest_pending(state)
    named = {handle.key for checkpoint in kept for handle in (checkpoint.metadata, checkpoint.plan)}
    for key in garbage:
        if savepoint_root_of_key(key) == key and key not in roots and copy_pin_name(key) not in copied_to:
            continue
        checkpoint_id = checkpoint_of_key(key)
        live = lowest is not None and checkpoint_id is not None and checkpoint_id >= lowest
        directory = key.endswith("/")
        live = live or (any(one.startswith(key) for one in named) if directory else key in named)
        fits = token_prefix_of_key(key) is not None and is_job_directory(key) if directory else key_fault(key) is None
        if checkpoint_id is None or live or not fits:
            raise ProtocolViolation(
                f"job {state.job}: garbage {key!r} refused: expected one object, or a token's directory, below a"
                " checkpoint that is neither pending nor newer than a pending one, and that nothing retained names; or"
                " the root of a savepoint that is neither listed nor being copied. Nothing was written."
            )
