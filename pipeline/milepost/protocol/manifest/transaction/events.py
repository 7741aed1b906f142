"""Events: what happened, one per manifest version. The log of events is the job's history (I6).

An event contains everything that `list`, `history` and the UI show about it, so they never need the resulting state.
`at_ms` is the store's clock at the time of the transition. Class names are stored as the events' types.

Size: one record for each type of event, and their union.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from milepost.codec import TaggedRecord
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Holder, Leader, ObjectHandle, PendingCheckpoint
from milepost.protocol.records.decisions import Decision
from milepost.protocol.records.ids import CheckpointId, Epoch, FencingToken, SessionId, TimelineId
from milepost.protocol.records.manifest_state import Freeze, GarbageList, JobResult, Pin, Savepoint, Timeline
from milepost.protocol.records.quarantined import QuarantinedObject
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class JobCreated(TaggedRecord):
    """Version 1 of every manifest."""

    at_ms: int
    job: str


@dataclass(frozen=True, slots=True)
class CheckpointTriggered(TaggedRecord):
    """A session claimed the timeline and opened the next epoch on it."""

    at_ms: int
    timeline: TimelineId
    leader: Leader
    pending: PendingCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointRebound(TaggedRecord):
    """A try of `run_epoch` got a new token for the session's pending checkpoint (I3)."""

    at_ms: int
    timeline: TimelineId
    checkpoint_id: CheckpointId
    epoch: Epoch
    session_id: SessionId
    holder: Holder
    token: FencingToken
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointCompleted(TaggedRecord):
    """The commit point: the checkpoint is the head.

    Attributes:
        adopted_by: the session that completed it on behalf of another; None: its own session did.
    """

    at_ms: int
    checkpoint: CompletedCheckpoint
    adopted_by: SessionId | None


@dataclass(frozen=True, slots=True)
class CheckpointAborted(TaggedRecord):
    """The checkpoint was aborted; nothing of it ever becomes visible.

    Attributes:
        leader: the session that triggered it, with its last token.
        pending: the checkpoint before the abort.
        aborted_by: the session that aborted it: its own, or the one that swept it.
        counted: whether it counted as a failure. consecutive_failures: including this one.
        tolerated: False if this failure made the job FAILED.
        veto: the failing rows for which the quality gate vetoed the epoch; None: none were stored.
        decided_by: who decided on it, and why; None: no actor did, or it was not recorded.
    """

    at_ms: int
    timeline: TimelineId
    leader: Leader
    pending: PendingCheckpoint
    reason: CheckpointFailureReason
    detail: str
    aborted_by: SessionId
    counted: bool
    consecutive_failures: int
    tolerated: bool
    veto: ObjectHandle | None = None
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class SinksConfirmed(TaggedRecord):
    """Sinks have committed one checkpoint.

    Attributes:
        duration_ms: from the begin of the trigger until all sinks had committed, by the clocks of the machines that
            did it; None if others have yet to commit, or if it is unknown.
    """

    at_ms: int
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]
    session_id: SessionId
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointsSubsumed(TaggedRecord):
    """Checkpoints left the retained set.

    Attributes:
        garbage: keys that lost their last reference, if they are few. garbage_list: names them, if they are many.
        confirmed: a confirmation by sinks that was recorded in the same version; None: none.
    """

    at_ms: int
    checkpoint_ids: tuple[CheckpointId, ...]
    garbage: tuple[str, ...]
    session_id: SessionId
    garbage_list: GarbageList | None = None
    confirmed: SinksConfirmed | None = None


@dataclass(frozen=True, slots=True)
class GarbageDeleted(TaggedRecord):
    """Garbage was deleted from the store.

    Attributes:
        prefixes: single entries of the state.
        lists: per list worked on, its digest and how many of its keys are dealt with now.
    """

    at_ms: int
    prefixes: tuple[str, ...]
    session_id: SessionId
    lists: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GarbageFolded(TaggedRecord):
    """Garbage moved to fewer and larger lists; the set of garbage keys is the same.

    Attributes:
        garbage: how many entries of the state moved to the new list. lists: digests of the lists it replaces.
    """

    at_ms: int
    garbage: int
    lists: tuple[str, ...]
    garbage_list: GarbageList
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class LogCompacted(TaggedRecord):
    """The entries of the log up to version `through` are tombstones."""

    at_ms: int
    through: int
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class GarbageListed(TaggedRecord):
    """A complete walk of every root found objects that nothing needs.

    Attributes:
        walked_version: the manifest version that was walked; this entry is the next one.
        garbage: the objects, if they are few. garbage_list: names them, if they are many.
    """

    at_ms: int
    walked_version: int
    garbage: tuple[str, ...]
    session_id: SessionId
    garbage_list: GarbageList | None = None


@dataclass(frozen=True, slots=True)
class JobResumed(TaggedRecord):
    """A person cleared FAILED; `cleared_reason` and `cleared_detail` are its cause.

    Attributes:
        detail: who and why, for people; "" if it was not recorded.
        decided_by: who decided on it, and why; None: it was not recorded.
    """

    at_ms: int
    cleared_reason: str | None
    cleared_detail: str | None
    session_id: SessionId
    detail: str = ""
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class JobCanceled(TaggedRecord):
    """A person ended the incarnation; its result is dirty.

    Attributes:
        aborted: the pending checkpoints, one per timeline, aborted in this same version.
        decided_by: who decided on it, and why; None: it was not recorded.
    """

    at_ms: int
    result: JobResult
    aborted: tuple[CheckpointAborted, ...]
    session_id: SessionId
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class JobFinished(TaggedRecord):
    """A bounded job has consumed its whole input; its result is dirty."""

    at_ms: int
    result: JobResult
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobCleaned(TaggedRecord):
    """The clean-up after the end of an incarnation is done: its result is clean."""

    at_ms: int
    incarnation: int
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobStarted(TaggedRecord):
    """A person opened the next incarnation; its first epoch continues checkpoint `base` (0: the empty state).

    Attributes:
        detail: who and why, for people; "" if it was not recorded.
        decided_by: who decided on it, and why; None: it was not recorded.
    """

    at_ms: int
    incarnation: int
    base: CheckpointId
    session_id: SessionId
    detail: str = ""
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class CheckpointPinned(TaggedRecord):
    """A reader pinned a checkpoint."""

    at_ms: int
    pin: Pin
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class CheckpointUnpinned(TaggedRecord):
    """A reader released a checkpoint."""

    at_ms: int
    name: str
    checkpoint_id: CheckpointId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class ObjectQuarantined(TaggedRecord):
    """An object of a file source is not read until it is released.

    Attributes:
        decided_by: who decided on it, and why.
    """

    at_ms: int
    object: QuarantinedObject
    session_id: SessionId
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class ObjectReleased(TaggedRecord):
    """A quarantined object may be read again.

    Attributes:
        decided_by: who decided on it, and why.
    """

    at_ms: int
    object: QuarantinedObject
    session_id: SessionId
    decided_by: Decision


class SwitchKind(StrEnum):
    """How another timeline became the live one."""

    ROLLBACK = "rollback"
    FAST_FORWARD = "fast_forward"


@dataclass(frozen=True, slots=True)
class TimelineSwitched(TaggedRecord):
    """Another timeline is live; the sinks must follow before it commits anything.

    Attributes:
        from_timeline, from_head: the previous live timeline and its head.
        timeline, to: the new live timeline and its head; 0 for the empty state.
        discarded: retained checkpoints of the previous live ancestry that are not in the new one, ascending.
        sinks: those that must follow. detail: who and why, for people.
        decided_by: who decided on it, and why; None: it was not recorded.
    """

    at_ms: int
    kind: SwitchKind
    from_timeline: TimelineId
    from_head: CheckpointId
    timeline: TimelineId
    to: CheckpointId
    discarded: tuple[CheckpointId, ...]
    sinks: tuple[str, ...]
    detail: str
    session_id: SessionId
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class TimelineForked(TaggedRecord):
    """A fork was opened: a timeline alongside the live one that publishes nothing."""

    at_ms: int
    timeline: Timeline
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class ForkDisposed(TaggedRecord):
    """A fork was disposed of.

    Attributes:
        aborted: its pending checkpoint, aborted in this same version; None: there was none.
    """

    at_ms: int
    timeline: TimelineId
    aborted: CheckpointAborted | None
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class TimelineFrozen(TaggedRecord):
    """For a limited time only one session may trigger on the live timeline."""

    at_ms: int
    timeline: TimelineId
    freeze: Freeze


@dataclass(frozen=True, slots=True)
class TimelineThawed(TaggedRecord):
    """The session that froze the live timeline released it."""

    at_ms: int
    timeline: TimelineId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class SinkReconciled(TaggedRecord):
    """One sink has followed the switch of manifest version `decision`."""

    at_ms: int
    decision: int
    sink: str
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class RealignmentDecided(TaggedRecord):
    """One sink's table must show the live head, whatever it shows now.

    Attributes:
        to: the live head; 0 for the empty table. detail: who and why, for people.
        decided_by: who decided on it, and why; None: it was not recorded.
    """

    at_ms: int
    sink: str
    to: CheckpointId
    detail: str
    session_id: SessionId
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class SavepointCreated(TaggedRecord):
    """The copy of a completed checkpoint is complete, and a person owns it."""

    at_ms: int
    savepoint: Savepoint
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class SavepointDisposed(TaggedRecord):
    """A person disposed of a savepoint: its checkpoint may be subsumed again, and its copy deleted."""

    at_ms: int
    savepoint: Savepoint
    session_id: SessionId


Event = (
    JobCreated
    | CheckpointTriggered
    | CheckpointRebound
    | CheckpointCompleted
    | CheckpointAborted
    | SinksConfirmed
    | CheckpointsSubsumed
    | GarbageDeleted
    | GarbageListed
    | GarbageFolded
    | LogCompacted
    | JobResumed
    | JobCanceled
    | JobFinished
    | JobCleaned
    | JobStarted
    | CheckpointPinned
    | CheckpointUnpinned
    | ObjectQuarantined
    | ObjectReleased
    | TimelineSwitched
    | TimelineForked
    | ForkDisposed
    | TimelineFrozen
    | TimelineThawed
    | SinkReconciled
    | RealignmentDecided
    | SavepointCreated
    | SavepointDisposed
)

EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)
EVENT_NAMES = {event.__name__ for event in EVENT_TYPES}


def aborts_of(event: Event) -> tuple[CheckpointAborted, ...]:
    """Return all aborts within an event: the event itself, or those of a larger transition."""
    match event:
        case CheckpointAborted():
            return (event,)
        case JobCanceled():
            return event.aborted
        case ForkDisposed(aborted=CheckpointAborted() as aborted):
            return (aborted,)
    return ()


def confirmation_of(event: Event) -> SinksConfirmed | None:
    """Return the confirmation within an event: the event itself, or part of a larger transition."""
    match event:
        case SinksConfirmed():
            return event
        case CheckpointsSubsumed():
            return event.confirmed
    return None
