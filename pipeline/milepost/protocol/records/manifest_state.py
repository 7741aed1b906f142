"""The value that the manifest log holds, and the records that it consists of.

All control state of a job is one small value, `ManifestState` (I2). These records say what *is*; `coordinator.py`
says how one becomes the next; `codec/entries.py` turns them into canonical JSON and back.
Times are integer milliseconds of the store's clock, UTC. Keys are relative to `<storage>/<job>/`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from milepost.protocol.records.checkpoints import CompletedCheckpoint, Leader, ObjectHandle, PendingCheckpoint
from milepost.protocol.records.ids import (
    NO_CHECKPOINT,
    CheckpointId,
    SessionDigest,
    SessionId,
    TimelineId,
)
from milepost.protocol.records.stored_fields import OwnPrefix


class JobStatus(Enum):
    """RUNNING may trigger; FAILED needs `resume`; FINISHED and CANCELED end the incarnation, `start` opens the next."""

    RUNNING = "running"
    FAILED = "failed"
    FINISHED = "finished"
    CANCELED = "canceled"


ENDED_STATUSES = (JobStatus.FINISHED, JobStatus.CANCELED)
"""The incarnation has a result and is never run again (I4)."""


class TimelineRole(Enum):
    """LIVE is the one that the schedule continues and the sinks follow; a FORK is open work beside it.

    An ABANDONED one is history: one may go back to its checkpoints until retention takes them.
    """

    LIVE = "live"
    FORK = "fork"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Until `until_ms` only this session may trigger on the live timeline: the last stretch of a fast-forward."""

    session_id: SessionId
    until_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One lineage of checkpoints, with its own leader, pending checkpoint and head (I2).

    Attributes:
        parent: where it comes from: the nearest earlier timeline of which something is retained, and the last
            checkpoint of it that is on this lineage, 0 for the empty state. None for the first timeline of a job.
        head: newest completed checkpoint: one of its own, or the one it starts from.
        live_from: its checkpoints above this one were completed while it was live, those up to it are a replay; 0 for
            one that began as the live one. None: the job never was on it.
    """

    timeline_id: TimelineId
    parent: tuple[TimelineId, CheckpointId] | None
    leader: Leader | None
    pending: PendingCheckpoint | None
    head: CheckpointId
    role: TimelineRole = TimelineRole.LIVE
    frozen: Freeze | None = None
    live_from: CheckpointId | None = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What sinks must show after the newest switch or realignment; over when no sink is left.

    Attributes:
        decision: manifest version of the newest one: the number that each table's commit carries (I14).
        timeline, checkpoint_id: the live one and its head, which the tables are to show; checkpoint 0 is the empty one.
        sinks: those that have yet to follow.
        realigned: those of them whose table a person has given up for the job's state, whatever it shows by now.
    """

    decision: int
    timeline: TimelineId
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]
    realigned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Garbage:
    """A key (or a whole prefix, ending in ``/``) that lost its last reference in manifest version `since_version`."""

    prefix: OwnPrefix
    since_version: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class GarbageList:
    """A list of garbage in an object of its own: what it names is garbage from manifest version `since_version` on.

    Attributes:
        sha256: of the object, which lies at ``garbage/<sha256>.json``.
        count: how many keys it names. done: how many of them, from the first on, are dealt with.
        newest: the greatest checkpoint below which one of them lies.
        since_version, since_ms: of a list that was folded, those of its youngest part.
    """

    sha256: str
    count: int
    done: int
    newest: CheckpointId
    since_version: int
    since_ms: int


class CleanUp(Enum):
    """DIRTY until what the end of an incarnation left to do is done, then CLEAN for ever (I4)."""

    DIRTY = "dirty"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class JobResult:
    """How an incarnation ended: once it is there, that incarnation is never run again (I4).

    Attributes:
        status: FINISHED or CANCELED; FAILED is no result, a person may still resume.
        clean_up: whether sinks are published and staged files discarded.
        at_ms: when it ended. head: newest completed checkpoint of the live timeline then; 0 for none.
        detail: one sentence for people.
    """

    incarnation: int
    status: JobStatus
    clean_up: CleanUp
    at_ms: int
    head: CheckpointId
    detail: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A reader's hold on a retained checkpoint: it is a root of retention while it is listed (I8).

    Attributes:
        name: of the reader, unique in the list. until_ms: after it, the next trigger takes the pin off the list.
    """

    name: str
    checkpoint_id: CheckpointId
    until_ms: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A self-contained copy of a completed checkpoint that a person owns; its checkpoint is never subsumed (I8).

    Attributes:
        name: unique in the list. location: where the copy lies; None: below ``savepoints/<name>/`` of the job, else an
            absolute URL.
        document: of its ``savepoint.json``; the key is relative to the savepoint's root.
    """

    name: str
    checkpoint_id: CheckpointId
    location: str | None
    document: ObjectHandle
    created_ms: int


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed epochs in a row: each checkpoint id counts once, a success resets (Flink's CheckpointFailureManager).

    Attributes:
        consecutive: counted failures since the last success or `resume`.
        counted: ids already counted since then, ascending, at most the newest 256.
        last_success: newest completed checkpoint; failures of ids up to it are ignored.
        last_reason, last_detail: of the newest failure, counted or not; None after a success.
        last_checkpoint: the checkpoint it belongs to; 0 when there is none.
    """

    consecutive: int = 0
    counted: tuple[CheckpointId, ...] = ()
    last_success: CheckpointId = NO_CHECKPOINT
    last_reason: str | None = None
    last_detail: str | None = None
    last_checkpoint: CheckpointId = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class ManifestState:
    """The whole control state of one job at one manifest version.

    Attributes:
        version: of the manifest entry that carries this state; the first is 1.
        next_checkpoint_id: the id that the next trigger takes (I5).
        live: the timeline that the schedule continues.
        timelines: the live one, open forks, and abandoned ones of which something is retained.
        checkpoints: retained ones, of all timelines, ascending by id.
        last_scheduled_logical_date: ISO 8601 with offset: greatest one of a completed run of type `scheduled`.
        completed_sessions: newest 32 sessions that completed a checkpoint, oldest first, also of subsumed ones.
        aborted_sessions: newest 32 sessions whose checkpoint was aborted, oldest first.
        results: of the newest 64 incarnations that have ended, ascending; only the newest may be dirty.
        pins: by name.
        compacted: up to this version the entries of the log are tombstones; of those that follow, some may be.
        garbage, garbage_lists: what lost its last reference: a few keys here, all others in lists, by version.
        reconciliation: set from a switch of the live timeline until every sink has followed; None at all other times.
        savepoints: by name.
        key_hash_secret: what the key hash of state that begins empty is keyed with: 32 hexadecimal digits, never shown
            or logged.
    """

    job: str
    version: int
    next_checkpoint_id: CheckpointId
    incarnation: int
    status: JobStatus
    live: TimelineId
    timelines: tuple[Timeline, ...]
    checkpoints: tuple[CompletedCheckpoint, ...]
    failures: Failures
    garbage: tuple[Garbage, ...]
    key_hash_secret: str = field(repr=False)
    last_scheduled_logical_date: str | None = None
    completed_sessions: tuple[tuple[SessionDigest, CheckpointId], ...] = ()
    aborted_sessions: tuple[tuple[SessionDigest, CheckpointId], ...] = ()
    results: tuple[JobResult, ...] = ()
    pins: tuple[Pin, ...] = ()
    reconciliation: Reconciliation | None = None
    savepoints: tuple[Savepoint, ...] = ()
    garbage_lists: tuple[GarbageList, ...] = ()
    compacted: int = 0

    def timeline(self, timeline_id: TimelineId | None = None) -> Timeline:
        """Return the timeline of that name, or the live one. Raises KeyError when there is none."""
        wanted = self.live if timeline_id is None else timeline_id
        for timeline in self.timelines:
            if timeline.timeline_id == wanted:
                return timeline
        raise KeyError(wanted)

    def checkpoint(self, checkpoint_id: CheckpointId) -> CompletedCheckpoint | None:
        """Return the retained checkpoint of that id; None when it is not retained."""
        for checkpoint in self.checkpoints:
            if checkpoint.checkpoint_id == checkpoint_id:
                return checkpoint
        return None

    def head(self) -> CompletedCheckpoint | None:
        """Return the newest completed checkpoint of the live timeline; None for the empty state."""
        return self.checkpoint(self.timeline().head)

    def unconfirmed(self) -> tuple[CompletedCheckpoint, ...]:
        """Return the retained checkpoints that some sink has not confirmed, in the order of their commits (I8, I14)."""
        return tuple(checkpoint for checkpoint in self.checkpoints if checkpoint.unconfirmed)
