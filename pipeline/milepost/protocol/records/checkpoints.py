"""The records of one checkpoint: what was triggered, by whom, and what was completed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from milepost.protocol.records.ids import (
    CheckpointId,
    Epoch,
    FencingToken,
    SessionId,
    TimelineId,
)
from milepost.protocol.records.stored_fields import OwnKey


class CheckpointStatus(Enum):
    """Pending until exactly one of complete and abort wins (I9); a completed one may be subsumed later."""

    PENDING = "pending"
    COMPLETED = "completed"
    ABORTED = "aborted"
    SUBSUMED = "subsumed"


class CheckpointKind(Enum):
    """Whose it is: a CHECKPOINT belongs to the job and is subsumed, a SAVEPOINT to a person and never is."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """Reference to one immutable stored object: nobody finds it by name, and a reader checks it (I7).

    Attributes:
        key: relative to the job's root.
        size: bytes.
        sha256: lower-case hex of the content.
    """

    key: OwnKey
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, as far as another machine can judge it (I10).

    Attributes:
        kind: ``cli`` or ``airflow``.
        host: host name, for people.
        pid, create_time_ms: the process; only a CLI run's are ever used to prove it dead, and only on its own machine.
        machine: where that pid means something: one boot of one kernel, one namespace of pids. None: nobody can tell.
    """

    kind: str
    host: str
    pid: int
    create_time_ms: int
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """The session that triggered last on a timeline, and the token that fences all others (I3)."""

    session_id: SessionId
    token: FencingToken
    holder: Holder


@dataclass(frozen=True, slots=True)
class Run:
    """The Airflow run that an epoch belongs to; None fields for a CLI run.

    Attributes:
        logical_date: ISO 8601; None for a run without one.
        bundle: the DAG bundle that the trigger ran from, `name`, or `name@version` where it has a version.
    """

    dag_id: str | None = None
    run_id: str | None = None
    run_type: str | None = None
    logical_date: str | None = None
    bundle: str | None = None


@dataclass(frozen=True, slots=True)
class SubtaskKey:
    """One expected subtask: level of the job graph and index in it."""

    level: int
    subtask: int


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """A triggered checkpoint: the lease of its session until the deadline (I10).

    Attributes:
        checkpoint_id, epoch: its identity; epoch is head's epoch + 1.
        token: fencing token in force: of the trigger, then of the last rebind.
        base: checkpoint it starts from; 0 is the empty state.
        plan: the input record: object versions per source, and caps (``inputs/<sha256>.json``).
        expected: subtasks that must acknowledge.
        trigger_time_ms, deadline_ms: the store's clock; each rebind renews the deadline.
        prefixes: tokens whose directories ``chk-<id>/t<token>/`` may hold files, ascending.
    """

    checkpoint_id: CheckpointId
    epoch: Epoch
    token: FencingToken
    base: CheckpointId
    plan: ObjectHandle
    expected: tuple[SubtaskKey, ...]
    trigger_time_ms: int
    deadline_ms: int
    run: Run
    code_hash: str
    spec_hash: str
    prefixes: tuple[FencingToken, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A retained checkpoint; all else about it is in the object `metadata` refers to.

    Attributes:
        parent: checkpoint it continued; 0 for the first.
        token: the winning one: of `metadata`, and of the prefix that holds the checkpoint's own files.
        session_id, holder: of the session that triggered it, also when another one adopted it (I10).
        version: of the manifest, that completed it: the number that its commit to each table carries (I14).
        sinks: every sink of the checkpoint.
        unconfirmed: those that have not yet confirmed its commit; such a checkpoint is never subsumed (I8).
        summary: what `list` shows without opening `_metadata`: rows_in, rows_out, late_rows, checkpointed_bytes, ….
    """

    checkpoint_id: CheckpointId
    epoch: Epoch
    timeline: TimelineId
    parent: CheckpointId
    token: FencingToken
    session_id: SessionId
    holder: Holder
    metadata: ObjectHandle
    plan: ObjectHandle
    trigger_time_ms: int
    completed_time_ms: int
    version: int
    run: Run
    code_hash: str
    spec_hash: str
    sinks: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    summary: dict[str, object] = field(default_factory=dict)
