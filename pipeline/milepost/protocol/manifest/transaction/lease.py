"""Lease: when another session may take over a pending checkpoint (I10).

Taking over too early is always safe, because fencing protects the data. The lease only avoids wasted work. All times
are by the store's clock. With a deadline at 12:30 and a heartbeat timeout of 60 s::

    now 12:10, heartbeat 12:09:50       HELD
    now 12:10, heartbeat 12:08:00       HEARTBEAT_LOST
    now 12:10, no heartbeat             HELD
    now 12:31, no heartbeat             NEVER_STARTED
    now 12:31, heartbeat 12:30:50       EXPIRED
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.errors import NEW_RUN, NEWER_TRY, Busy
from milepost.protocol.manifest.transaction.preconditions import pending_checkpoint_hint
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason

HEARTBEAT_INTERVAL_MS = 10_000
"""How often the driver of `run_epoch` rewrites its heartbeat object."""

HEARTBEAT_TIMEOUT_MS = 60_000
"""A heartbeat this old does not prove that the holder is dead, but suffices to take over."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What a new session could learn about the holder of the pending checkpoint.

    Attributes:
        take_over: a person requested the takeover.
        heartbeat_ms: last-modified time of the pending token's heartbeat object; None: none was written.
        holder_dead: proved: a CLI run on this machine whose process no longer exists.
        gate_passed: the verdict in the pending token's `_metadata`; None: no such object, or no verdict in it.
    """

    take_over: bool = False
    heartbeat_ms: int | None = None
    holder_dead: bool = False
    gate_passed: bool | None = None


class LeaseStatus(Enum):
    """State of a lease. Only HELD protects the holder."""

    HELD = "held"
    HOLDER_DEAD = "holder dead"
    HEARTBEAT_LOST = "heartbeat lost"
    NEVER_STARTED = "deadline past, never started"
    EXPIRED = "deadline past, still running"
    TAKEN_OVER = "taken over"


SWEEP_REASONS: dict[LeaseStatus, CheckpointFailureReason] = {
    LeaseStatus.HOLDER_DEAD: CheckpointFailureReason.LEADER_LOST,
    LeaseStatus.HEARTBEAT_LOST: CheckpointFailureReason.LEADER_LOST,
    LeaseStatus.NEVER_STARTED: CheckpointFailureReason.LEADER_LOST,
    LeaseStatus.EXPIRED: CheckpointFailureReason.CHECKPOINT_EXPIRED,
    LeaseStatus.TAKEN_OVER: CheckpointFailureReason.LEADER_TAKEN_OVER,
}
"""A holder that died did not fail (not counted); one that is too slow did (counted, as in Flink)."""


@dataclass(frozen=True, slots=True)
class NothingToSweep:
    """No checkpoint is pending, or only the session's own."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The pending checkpoint is finished but not completed: complete it for its session (`CompleteRequest.swept`)."""

    checkpoint_id: CheckpointId
    token: FencingToken


@dataclass(frozen=True, slots=True)
class Abandon:
    """The pending checkpoint must be aborted for this reason (`AbortRequest.swept`)."""

    checkpoint_id: CheckpointId
    token: FencingToken
    reason: CheckpointFailureReason
    detail: str


SweepDecision = NothingToSweep | Adopt | Abandon


def lease_status(pending: PendingCheckpoint, facts: LeaseFacts, now_ms: int) -> LeaseStatus:
    """Judge the lease. Facts about the holder outrank a requested takeover, so that the reason is the true one.

    Args:
        pending: the checkpoint that is the lease.
        facts: about its holder.
        now_ms: the store's clock.
    """
    if facts.holder_dead:
        return LeaseStatus.HOLDER_DEAD
    if facts.heartbeat_ms is not None and now_ms - facts.heartbeat_ms >= HEARTBEAT_TIMEOUT_MS:
        return LeaseStatus.HEARTBEAT_LOST
    if now_ms >= pending.deadline_ms:
        return LeaseStatus.NEVER_STARTED if facts.heartbeat_ms is None else LeaseStatus.EXPIRED
    if facts.take_over:
        return LeaseStatus.TAKEN_OVER
    return LeaseStatus.HELD


def sweep_decision(
    state: ManifestState,
    session_id: SessionId,
    facts: LeaseFacts,
    now_ms: int,
    timeline: TimelineId | None = None,
) -> SweepDecision:
    """Decide what a session must do about a timeline's pending checkpoint before it may trigger there.

    Args:
        timeline: None: the live one. A timeline that is not listed has nothing pending.
    Returns:
        NothingToSweep; Adopt if the checkpoint is finished with a passed verdict; otherwise Abandon.
    Raises:
        Busy: another session's lease is held.
    """
    timeline_id = state.live if timeline is None else timeline
    listed = next((line for line in state.timelines if line.timeline_id == timeline_id), None)
    pending, leader = (None, None) if listed is None else (listed.pending, listed.leader)
    if pending is None or leader is None or leader.session_id == session_id:
        return NothingToSweep()
    status = lease_status(pending, facts, now_ms)
    if status is LeaseStatus.HELD:
        remaining_s = -(-(pending.deadline_ms - now_ms) // 1000)
        raise Busy(
            f"job {state.job}: checkpoint {pending.checkpoint_id} is running: {leader.holder.kind} run"
            f" {leader.session_id} on {leader.holder.host} (pid {leader.holder.pid}) holds its lease for another"
            f" {remaining_s} s. Nothing was changed.",
            hint=pending_checkpoint_hint(state, timeline_id),
            reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.value,
            checkpoint_id=pending.checkpoint_id,
            session_id=leader.session_id,
            deadline_ms=pending.deadline_ms,
        )
    if facts.gate_passed:
        return Adopt(pending.checkpoint_id, pending.token)
    detail = f"session {leader.session_id} on {leader.holder.host}: {status.value}"
    reason = SWEEP_REASONS[status]
    if facts.gate_passed is False:
        reason, detail = CheckpointFailureReason.QUALITY_GATE_FAILED, f"the gate had failed; {detail}"
    return Abandon(pending.checkpoint_id, pending.token, reason, detail)


@dataclass(frozen=True, slots=True)
class Revocation:
    """Why a try no longer leads its checkpoint, and what to do about it, both as text."""

    reason: str
    hint: str = NEW_RUN


def revocation(state: ManifestState, own: PendingCheckpoint) -> Revocation | None:
    """Return why a try no longer leads the checkpoint it was granted; None while it leads it (I4).

    A completed checkpoint is no reason to stop: a sweep may have adopted what this try finished.
    """
    for timeline in state.timelines:
        pending = timeline.pending
        if pending is not None and pending.checkpoint_id == own.checkpoint_id:
            if pending.token == own.token:
                return None
            return Revocation(f"a newer try owns it: fencing token {own.token}, current {pending.token}", NEWER_TRY)
    if any(completed_id == own.checkpoint_id for _, completed_id in state.completed_sessions):
        return None
    failures = state.failures
    is_last_failure = failures.last_checkpoint == own.checkpoint_id
    aborted = f"it was aborted: {failures.last_reason}: {failures.last_detail}"
    return Revocation(aborted if is_last_failure else "it is no longer pending")
