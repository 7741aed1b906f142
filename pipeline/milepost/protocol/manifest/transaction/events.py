"""Events record what happened, one per manifest version. The log of them is the history (I6).

An event holds all that `list`, `history` and the UI show of it, so that nobody needs the state it led to.
`at_ms` is the store's clock when the transition was made.

Size: one record for each kind of event, and the union of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from milepost.protocol.records.checkpoints import CompletedCheckpoint, Holder, Leader, ObjectHandle, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, Epoch, FencingToken, SessionId, TimelineId
from milepost.protocol.records.manifest_state import Freeze, GarbageList, JobResult, Pin, Savepoint, Timeline
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class JobCreated:
    """Version 1 of every manifest."""

    at_ms: int
    job: str


@dataclass(frozen=True, slots=True)
class CheckpointTriggered:
    """A session claimed the timeline and opened the next epoch on it."""

    at_ms: int
    timeline: TimelineId
    leader: Leader
    pending: PendingCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointRebound:
    """A try of `run_epoch` took a new token for the session's pending checkpoint (I3)."""

    at_ms: int
    timeline: TimelineId
    checkpoint_id: CheckpointId
    epoch: Epoch
    session_id: SessionId
    holder: Holder
    token: FencingToken
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """The commit point: the checkpoint is the head.

    Attributes:
        adopted_by: the session that found it finished and completed it for its own session; None otherwise.
    """

    at_ms: int
    checkpoint: CompletedCheckpoint
    adopted_by: SessionId | None


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The checkpoint was given up; nothing of it will ever be visible.

    Attributes:
        leader: the session that had triggered it, with its last token.
        pending: the checkpoint as it was.
        aborted_by: the session that said so: the same, or the one that swept it.
        counted: whether it counted as a failure. consecutive_failures: in a row, this one included.
        tolerated: False when this failure made the job FAILED.
        veto: for what the quality gate refused the epoch, as people see it; None: nothing was kept of that.
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


@dataclass(frozen=True, slots=True)
class SinksConfirmed:
    """Sinks have committed one checkpoint."""

    at_ms: int
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class CheckpointsSubsumed:
    """Checkpoints left the retained set.

    Attributes:
        garbage: keys that lost their last reference, if they are few. garbage_list: names them, if they are many.
        confirmed: what sinks had committed, recorded in this same version; None: nothing.
    """

    at_ms: int
    checkpoint_ids: tuple[CheckpointId, ...]
    garbage: tuple[str, ...]
    session_id: SessionId
    garbage_list: GarbageList | None = None
    confirmed: SinksConfirmed | None = None


@dataclass(frozen=True, slots=True)
class GarbageDeleted:
    """Garbage is deleted in the store.

    Attributes:
        prefixes: entries that the state listed by themselves.
        lists: of each list that was worked on, its digest and how many of its keys are dealt with by now.
    """

    at_ms: int
    prefixes: tuple[str, ...]
    session_id: SessionId
    lists: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GarbageFolded:
    """Garbage that was listed before is listed by fewer and larger lists; what is garbage is the same.

    Attributes:
        garbage: how many entries of the state moved into the new list. lists: digests of the lists that it replaces.
    """

    at_ms: int
    garbage: int
    lists: tuple[str, ...]
    garbage_list: GarbageList
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class LogCompacted:
    """The entries of the log up to version `through` are tombstones."""

    at_ms: int
    through: int
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class GarbageListed:
    """A complete walk of every root found objects that nothing needs.

    Attributes:
        walked_version: of the manifest, which the walk was made of; this entry is the next one.
        garbage: the objects, if they are few. garbage_list: names them, if they are many.
    """

    at_ms: int
    walked_version: int
    garbage: tuple[str, ...]
    session_id: SessionId
    garbage_list: GarbageList | None = None


@dataclass(frozen=True, slots=True)
class JobResumed:
    """A person cleared FAILED; `cleared_reason` and `cleared_detail` are what had caused it."""

    at_ms: int
    cleared_reason: str | None
    cleared_detail: str | None
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobCanceled:
    """A person ended the incarnation; its result is dirty.

    Attributes:
        aborted: the checkpoints that were pending, one per timeline, each given up in this same version.
    """

    at_ms: int
    result: JobResult
    aborted: tuple[CheckpointAborted, ...]
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A bounded job has read everything; its result is dirty."""

    at_ms: int
    result: JobResult
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobCleaned:
    """What the end of an incarnation left to do is done: its result is clean."""

    at_ms: int
    incarnation: int
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A person opened the next incarnation; its first epoch continues checkpoint `base`, 0 for the empty state."""

    at_ms: int
    incarnation: int
    base: CheckpointId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class CheckpointPinned:
    """A reader holds a checkpoint."""

    at_ms: int
    pin: Pin
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class CheckpointUnpinned:
    """A reader has let go of a checkpoint."""

    at_ms: int
    name: str
    checkpoint_id: CheckpointId
    session_id: SessionId


class SwitchKind(StrEnum):
    """Why another timeline became the live one."""

    ROLLBACK = "rollback"
    FAST_FORWARD = "fast_forward"


@dataclass(frozen=True, slots=True)
class TimelineSwitched:
    """Another timeline is the live one; the sinks follow it before it commits anything.

    Attributes:
        from_timeline, from_head: what was live before.
        timeline, to: what is live now, and its head; 0 for the empty state.
        discarded: retained checkpoints that were on the live lineage and no longer are, ascending.
        sinks: those that must follow. detail: for people: who, why.
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


@dataclass(frozen=True, slots=True)
class TimelineForked:
    """A fork is open: a timeline beside the live one, which publishes nothing."""

    at_ms: int
    timeline: Timeline
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class ForkDisposed:
    """A fork is given up.

    Attributes:
        aborted: the checkpoint that was pending on it, given up in this same version; None when there was none.
    """

    at_ms: int
    timeline: TimelineId
    aborted: CheckpointAborted | None
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class TimelineFrozen:
    """The live timeline takes triggers of one session only, for a time."""

    at_ms: int
    timeline: TimelineId
    freeze: Freeze


@dataclass(frozen=True, slots=True)
class TimelineThawed:
    """The session that froze the live timeline has let go of it."""

    at_ms: int
    timeline: TimelineId
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class SinkReconciled:
    """One sink shows what the switch of manifest version `decision` asks for."""

    at_ms: int
    decision: int
    sink: str
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class RealignmentDecided:
    """One sink's table is to show the live head, whatever it shows by now.

    Attributes:
        to: that head; 0 for the empty table. detail: for people: who, why.
    """

    at_ms: int
    sink: str
    to: CheckpointId
    detail: str
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class SavepointCreated:
    """A copy of a completed checkpoint is complete, and a person's."""

    at_ms: int
    savepoint: Savepoint
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class SavepointDisposed:
    """A person has given a savepoint up: its checkpoint is the job's again, its copy may be deleted."""

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


def aborts_of(event: Event) -> tuple[CheckpointAborted, ...]:
    """Return the checkpoints that an event gave up: one, or those that a larger transition aborted in itself."""
    match event:
        case CheckpointAborted():
            return (event,)
        case JobCanceled():
            return event.aborted
        case ForkDisposed(aborted=CheckpointAborted() as aborted):
            return (aborted,)
    return ()


def confirmation_of(event: Event) -> SinksConfirmed | None:
    """Return what an event says that sinks have committed: by itself, or as a part of a larger transition."""
    match event:
        case SinksConfirmed():
            return event
        case CheckpointsSubsumed():
            return event.confirmed
    return None
