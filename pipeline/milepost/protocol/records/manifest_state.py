"""The manifest state: the whole control state of a job, and its parts.

It is one small value (I2). These records hold the state; `coordinator.py` computes the next one, and
`codec/entries.py` converts it to and from canonical JSON. Times are integer milliseconds of the store's clock, UTC.
Keys are relative to `<storage>/<job>/`.
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
from milepost.protocol.records.log_positions import LogFloor
from milepost.protocol.records.own_keys import OwnPrefix
from milepost.protocol.records.quarantined import QuarantinedObject


class JobStatus(Enum):
    """RUNNING may trigger. FAILED needs `resume`. FINISHED and CANCELED end the incarnation; `start` opens the next."""

    RUNNING = "running"
    FAILED = "failed"
    FINISHED = "finished"
    CANCELED = "canceled"


ENDED_STATUSES = (JobStatus.FINISHED, JobStatus.CANCELED)
"""Statuses in which the incarnation has a result and never runs again (I4)."""


class TimelineRole(Enum):
    """LIVE: the schedule continues it and the sinks follow it. FORK: open work alongside the live timeline.

    ABANDONED: history. Its checkpoints remain valid rollback targets until retention drops them.
    """

    LIVE = "live"
    FORK = "fork"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Only this session may trigger on the live timeline until `until_ms`: the last step of a fast-forward."""

    session_id: SessionId
    until_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One line of checkpoints, with its own leader, pending checkpoint and head (I2).

    Attributes:
        parent: where it starts: the nearest earlier timeline with a retained checkpoint, and the last checkpoint of
            that timeline on this line; 0 for the empty state. None for the first timeline of a job.
        head: newest completed checkpoint: its own, or the one it starts from.
        live_from: its checkpoints above this id were completed while it was live; those up to it are a replay. 0 for
            a timeline that began as the live one. None: it was never live.
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
    """What sinks must show after the newest switch or realignment. It ends when no sink is left.

    Attributes:
        decision: manifest version of the newest one: the number that each table's commit carries (I14).
        timeline, checkpoint_id: the live timeline and its head, which tables must show; checkpoint 0 is empty.
        sinks: sinks that still have to follow.
        realigned: of these, the sinks that a person realigns: their table is overwritten whatever it shows now.
    """

    decision: int
    timeline: TimelineId
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]
    realigned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Garbage:
    """A key, or a whole prefix ending in ``/``, that lost its last reference in manifest version `since_version`."""

    prefix: OwnPrefix
    since_version: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class GarbageList:
    """A garbage list in an object of its own. The keys it names are garbage from manifest version `since_version` on.

    Attributes:
        sha256: of the object, which is stored at ``garbage/<sha256>.json``.
        count: number of keys it names. done: how many of them, counted from the first, are dealt with.
        newest: greatest checkpoint id among its keys.
        since_version, since_ms: for a folded list, those of its youngest part.
    """

    sha256: str
    count: int
    done: int
    newest: CheckpointId
    since_version: int
    since_ms: int


class CleanUp(Enum):
    """DIRTY until the clean-up after the end of an incarnation is done, then CLEAN permanently (I4)."""

    DIRTY = "dirty"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class JobResult:
    """How an incarnation ended. An incarnation with a result never runs again (I4).

    Attributes:
        status: FINISHED or CANCELED. FAILED is not a result: a person may still resume.
        clean_up: whether sinks are published and staged files discarded.
        at_ms: when it ended. head: newest completed checkpoint of the live timeline at that time; 0 for none.
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
    """A reader's hold on a retained checkpoint. While it is listed, the checkpoint is a root of retention (I8).

    Attributes:
        name: of the reader, unique. until_ms: the first trigger after this time removes the pin.
    """

    name: str
    checkpoint_id: CheckpointId
    until_ms: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A self-contained copy of a completed checkpoint, owned by a person. The checkpoint is never subsumed (I8).

    Attributes:
        name: unique. location: where the copy is stored: an absolute URL, or None for ``savepoints/<name>/`` of the
            job.
        document: of its ``savepoint.json``; the key is relative to the savepoint's root.
    """

    name: str
    checkpoint_id: CheckpointId
    location: str | None
    document: ObjectHandle
    created_ms: int


@dataclass(frozen=True, slots=True)
class Failures:
    """Consecutive failed epochs. Each checkpoint id counts once; a success resets (Flink's CheckpointFailureManager).

    Attributes:
        consecutive: counted failures since the last success or `resume`.
        counted: ids already counted since then, ascending, the newest 256 at most.
        last_success: newest completed checkpoint; failures of ids up to it are ignored.
        last_reason, last_detail: of the newest failure, counted or not; None after a success.
        last_checkpoint: the checkpoint of that failure; 0 for none.
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
        next_checkpoint_id: id of the next trigger (I5).
        live: the timeline that the schedule continues.
        timelines: the live one, open forks, and abandoned ones with a retained checkpoint.
        checkpoints: retained checkpoints of all timelines, ascending by id.
        last_scheduled_logical_date: greatest logical date of a completed `scheduled` run, ISO 8601 with offset.
        completed_sessions: newest 32 sessions that completed a checkpoint, even a subsumed one; oldest first.
        aborted_sessions: newest 32 sessions with an aborted checkpoint; oldest first.
        results: of the newest 64 incarnations that have ended, ascending; only the newest may be dirty.
        pins: sorted by name.
        compacted: log entries up to this version are tombstones; later ones may be.
        garbage, garbage_lists: keys that lost their last reference: a few here, all others in lists, by version.
        reconciliation: set from a switch of the live timeline until every sink has followed; otherwise None.
        savepoints: sorted by name.
        floors: of the logs of landed sources, sorted by source; a log without one is retained from its first record.
        quarantined: objects that no epoch reads, sorted by source and key.
        key_hash_secret: keys the key hash of state that starts empty. 32 hexadecimal digits, never shown or logged.
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
    floors: tuple[LogFloor, ...] = ()
    quarantined: tuple[QuarantinedObject, ...] = ()

    def timeline(self, timeline_id: TimelineId | None = None) -> Timeline:
        """Return the timeline of that name, or the live one. Raises KeyError when there is none."""
        name = self.live if timeline_id is None else timeline_id
        for timeline in self.timelines:
            if timeline.timeline_id == name:
                return timeline
        raise KeyError(name)

    def checkpoint(self, checkpoint_id: CheckpointId) -> CompletedCheckpoint | None:
        """Return the retained checkpoint of that id; None when it is not retained."""
        for checkpoint in self.checkpoints:
            if checkpoint.checkpoint_id == checkpoint_id:
                return checkpoint
        return None

    def quarantined_object(self, source: str, key: str) -> QuarantinedObject | None:
        """Return the quarantined version of an object; None when it is not quarantined."""
        return next((item for item in self.quarantined if item.place == (source, key)), None)

    def head(self) -> CompletedCheckpoint | None:
        """Return the newest completed checkpoint of the live timeline; None for the empty state."""
        return self.checkpoint(self.timeline().head)

    def unconfirmed(self) -> tuple[CompletedCheckpoint, ...]:
        """Return the retained checkpoints that some sink has not confirmed, in the order of their commits (I8, I14)."""
        return tuple(checkpoint for checkpoint in self.checkpoints if checkpoint.unconfirmed)
