"""The lease rule says when a pending checkpoint may be taken from its session (I10).

Taking over too early is always safe: fencing protects the data. The lease only avoids wasted work.
All times are the store's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.protocol.manifest.transaction.preconditions import wait_or_give_up
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.errors import NEW_RUN, NEWER_TRY, Busy
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason

HEARTBEAT_INTERVAL_MS = 10_000
"""How often the driver of `run_epoch` rewrites its heartbeat object."""

HEARTBEAT_TIMEOUT_MS = 60_000
"""A heartbeat that has begun and is this old proves nothing, but is enough to take over."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What the newcomer could find out about the holder of the pending checkpoint.

    Attributes:
        take_over: a person insists.
        heartbeat_ms: last-modified time of the heartbeat object of the pending token; None: never begun.
        holder_dead: proved: a CLI run of this machine whose pid and creation time are gone.
        gate_passed: the verdict in `_metadata` of the pending token; None: no such object, or no verdict in it.
    """

    take_over: bool = False
    heartbeat_ms: int | None = None
    holder_dead: bool = False
    gate_passed: bool | None = None


class LeaseStatus(Enum):
    """HELD is the only one that protects the holder."""

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
"""A holder that is gone did not fail (not counted); one that is too slow did (counted, as in Flink)."""


@dataclass(frozen=True, slots=True)
class NothingToSweep:
    """No checkpoint is pending, or the session's own one is."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The pending checkpoint was finished but not completed: complete it for its session (`CompleteRequest.swept`)."""

    checkpoint_id: CheckpointId
    token: FencingToken


@dataclass(frozen=True, slots=True)
class Abandon:
    """The pending checkpoint is to be aborted with this reason (`AbortRequest.swept`)."""

    checkpoint_id: CheckpointId
    token: FencingToken
    reason: CheckpointFailureReason
    detail: str


SweepDecision = NothingToSweep | Adopt | Abandon


def lease_status(pending: PendingCheckpoint, facts: LeaseFacts, now_ms: int) -> LeaseStatus:
    """Judge the lease. What is known of the holder outranks the wish to take over, so that the reason is the true one.

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
    """Decide what a session does about a timeline's pending checkpoint before it may trigger there.

    Args:
        timeline: None: the live one. One that is not listed (any more) has nothing pending.
    Returns:
        NothingToSweep, or Adopt when it is finished with a passed verdict, else Abandon.
    Raises:
        Busy: another session's lease is alive.
    """
    wanted = state.live if timeline is None else timeline
    found = next((one for one in state.timelines if one.timeline_id == wanted), None)
    pending, leader = (None, None) if found is None else (found.pending, found.leader)
    if pending is None or leader is None or leader.session_id == session_id:
        return NothingToSweep()
    status = lease_status(pending, facts, now_ms)
    if status is LeaseStatus.HELD:
        left_s = -(-(pending.deadline_ms - now_ms) // 1000)
        raise Busy(
            f"job {state.job}: checkpoint {pending.checkpoint_id} is running: {leader.holder.kind} run"
            f" {leader.session_id} on {leader.holder.host} (pid {leader.holder.pid}) holds its lease for another"
            f" {left_s} s. Nothing was changed.",
            hint=wait_or_give_up(state, wanted),
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
    """Why a try does not lead its checkpoint any more, and what is to be done about it, both in words."""

    why: str
    hint: str = NEW_RUN


def revocation(state: ManifestState, mine: PendingCheckpoint) -> Revocation | None:
    """Return why a try that was granted this checkpoint does not lead any more; None while it does (I4).

    A checkpoint that is completed is nothing to stop for: a sweep may have adopted what this try finished.
    """
    for timeline in state.timelines:
        pending = timeline.pending
        if pending is not None and pending.checkpoint_id == mine.checkpoint_id:
            if pending.token == mine.token:
                return None
            return Revocation(
                f"a newer try took it over: fencing token {mine.token}, current {pending.token}", NEWER_TRY
            )
    if any(done == mine.checkpoint_id for _, done in state.completed_sessions):
        return None
    failures = state.failures
    known = failures.last_checkpoint == mine.checkpoint_id
    aborted = f"it was aborted: {failures.last_reason}: {failures.last_detail}"
    return Revocation(aborted if known else "it is not pending any more")
