"""Abort a pending checkpoint, within any transition that does so (I9)."""

from __future__ import annotations

from dataclasses import replace

from milepost.protocol.failure.failures import FailureVerdict, printable_detail, record_failure
from milepost.protocol.manifest.transaction.answers import with_garbage, with_timeline
from milepost.protocol.manifest.transaction.events import CheckpointAborted
from milepost.protocol.records.checkpoints import Leader, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, SessionDigest, SessionId, session_digest
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import ManifestState, Timeline, TimelineRole
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_SESSIONS = 32
"""How many completed sessions, and how many aborted ones, the manifest remembers.

Runs with a logical date are recognized by that date, however old they are. Only other runs need to be remembered.
"""

Sessions = tuple[tuple[SessionDigest, CheckpointId], ...]


def remember_session(sessions: Sessions, session_id: SessionId, checkpoint_id: CheckpointId) -> Sessions:
    """Return the newest `MAX_SESSIONS` sessions, ending with this one."""
    return (*sessions, (session_digest(session_id), checkpoint_id))[-MAX_SESSIONS:]


def abort_pending(
    state: ManifestState,
    owned: tuple[Timeline, PendingCheckpoint, Leader],
    session_id: SessionId,
    reason: CheckpointFailureReason,
    detail: str,
    tolerable: int | None,
    now_ms: int,
) -> tuple[CheckpointAborted, ManifestState]:
    """Return the abort event of a pending checkpoint, and the state without it; version and status stay the same.

    All its prefixes become garbage, its failure counts if the reason does, and its session is remembered. A failure on
    a fork is not a failure of the job: it changes no counter and is always tolerated.

    Args:
        owned: the checkpoint with its timeline and leader. session_id: the session that aborts it.
        tolerable: number of consecutive counted failures that are tolerated; None: any number.
    """
    timeline, pending, leader = owned
    verdict = FailureVerdict(state.failures, counted=False, tolerated=True)
    if timeline.role is TimelineRole.LIVE:
        verdict = record_failure(state.failures, pending.checkpoint_id, reason, detail, tolerable)
    event = CheckpointAborted(
        at_ms=now_ms,
        timeline=timeline.timeline_id,
        leader=leader,
        pending=pending,
        reason=reason,
        detail=printable_detail(detail),
        aborted_by=session_id,
        counted=verdict.counted,
        consecutive_failures=verdict.failures.consecutive,
        tolerated=verdict.tolerated,
    )
    prefixes = [token_prefix(pending.checkpoint_id, token) for token in pending.prefixes]
    after_abort = replace(
        state,
        timelines=with_timeline(state, replace(timeline, pending=None)),
        failures=verdict.failures,
        garbage=with_garbage(state, prefixes, now_ms),
        aborted_sessions=remember_session(state.aborted_sessions, leader.session_id, pending.checkpoint_id),
    )
    return event, after_abort
