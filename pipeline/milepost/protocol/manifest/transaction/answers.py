"""Answers to requests, and the steps that all transitions have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from milepost.protocol.manifest.transaction.events import Event
from milepost.protocol.manifest.transaction.transitions import checkpoint_status_after, checkpoints_of, job_status_after
from milepost.protocol.records.checkpoints import CheckpointStatus, CompletedCheckpoint, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.manifest_state import Garbage, ManifestState, Timeline


@dataclass(frozen=True, slots=True)
class Transition:
    """One new manifest version: the event and the resulting state."""

    event: Event
    state: ManifestState

    @property
    def token(self) -> FencingToken:
        """The fencing token that a trigger or a rebind grants: the version of this entry (I3)."""
        return FencingToken(self.state.version)


class Outcome(Enum):
    """Why a request needs no transition."""

    ALREADY_CREATED = "already_created"
    ALREADY_TRIGGERED = "already_triggered"
    COVERED = "covered"
    ALREADY_COMPLETED = "already_completed"
    NOT_PENDING = "nothing_pending"
    ALREADY_CONFIRMED = "already_confirmed"
    NOTHING_TO_SUBSUME = "nothing_to_subsume"
    NOTHING_TO_FORGET = "nothing_to_forget"
    NOTHING_TO_LIST = "nothing_to_list"
    ALREADY_COMPACTED = "already_compacted"
    NOTHING_TO_FOLD = "nothing_to_fold"
    NOT_LEADER = "not_leader"
    ALREADY_RUNNING = "already_running"
    ALREADY_ENDED = "already_ended"
    ALREADY_CLEAN = "already_clean"
    NOT_PINNED = "not_pinned"
    ALREADY_THERE = "already_there"
    ALREADY_LIVE = "already_live"
    NOT_OPEN = "not_open"
    NOT_FROZEN = "not_frozen"
    ALREADY_RECONCILED = "already_reconciled"
    ALREADY_RECORDED = "already_recorded"
    NO_SAVEPOINT = "no_savepoint"
    ALREADY_QUARANTINED = "already_quarantined"
    NOT_QUARANTINED = "not_quarantined"


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The request changes nothing, and this is not an error.

    Attributes:
        message: for the log, one line.
        checkpoint_id: the checkpoint concerned; None: none.
        pending: set with ALREADY_TRIGGERED. completed: set with ALREADY_COMPLETED, unless it has been subsumed.
    """

    outcome: Outcome
    message: str
    checkpoint_id: CheckpointId | None = None
    pending: PendingCheckpoint | None = None
    completed: CompletedCheckpoint | None = None


Answer = Transition | AlreadyDone


def advance(state: ManifestState, event: Event, **changes: Any) -> Transition:
    """Return the next version: the event, the status it leads to, and the given changes of the state.

    Raises:
        ProtocolViolation: the event is illegal in the status of the job, or of a checkpoint that it concerns.
    """
    status = job_status_after(state.status, event)
    for checkpoint_id in checkpoints_of(event):
        checkpoint_status_after(_checkpoint_status(state, checkpoint_id), event)
    return Transition(event, replace(state, version=state.version + 1, status=status, **changes))


def _checkpoint_status(state: ManifestState, checkpoint_id: CheckpointId) -> CheckpointStatus | None:
    """Return the status of a checkpoint in this version; None if it was never triggered."""
    if any(line.pending is not None and line.pending.checkpoint_id == checkpoint_id for line in state.timelines):
        return CheckpointStatus.PENDING
    if state.checkpoint(checkpoint_id) is not None:
        return CheckpointStatus.COMPLETED
    if checkpoint_id >= state.next_checkpoint_id:
        return None
    is_completed = any(completed_id == checkpoint_id for _, completed_id in state.completed_sessions)
    return CheckpointStatus.SUBSUMED if is_completed else CheckpointStatus.ABORTED


def with_timeline(state: ManifestState, changed: Timeline) -> tuple[Timeline, ...]:
    """Return the timelines with the changed one replaced."""
    return tuple(changed if line.timeline_id == changed.timeline_id else line for line in state.timelines)


def with_garbage(state: ManifestState, prefixes: Iterable[str], now_ms: int) -> tuple[Garbage, ...]:
    """Return the garbage entries with further ones, each listed once, as of the next version."""
    listed = {entry.prefix for entry in state.garbage}
    new_prefixes = sorted(set(prefixes) - listed)
    return (*state.garbage, *(Garbage(prefix, state.version + 1, now_ms) for prefix in new_prefixes))
