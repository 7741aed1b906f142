"""Records of one checkpoint: the trigger, its leader, and the completed checkpoint."""

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
from milepost.protocol.records.own_keys import OwnKey


class CheckpointStatus(Enum):
    """A PENDING checkpoint becomes either COMPLETED or ABORTED (I9). A COMPLETED one may later become SUBSUMED."""

    PENDING = "pending"
    COMPLETED = "completed"
    ABORTED = "aborted"
    SUBSUMED = "subsumed"


class CheckpointKind(Enum):
    """The job owns a CHECKPOINT and may subsume it. A person owns a SAVEPOINT, which is never subsumed."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """Reference to one immutable stored object. Readers reach it only by this handle, and verify its content (I7).

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
    """The holder of a lease, described so that another machine can judge whether it is alive (I10).

    Attributes:
        kind: ``cli`` or ``airflow``.
        host: host name, for people.
        pid, create_time_ms: the process. They prove a holder dead only for a CLI run, and only on its own machine.
        machine: scope in which the pid is valid: one boot of one kernel, one pid namespace. None: unknown.
    """

    kind: str
    host: str
    pid: int
    create_time_ms: int
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """The session that last triggered on a timeline, and the token that fences all earlier sessions (I3)."""

    session_id: SessionId
    token: FencingToken
    holder: Holder


@dataclass(frozen=True, slots=True)
class Run:
    """The Airflow run that an epoch belongs to; every field is None for a CLI run.

    Attributes:
        logical_date: ISO 8601; None for a run without one.
        bundle: the DAG bundle of the trigger, `name`, or `name@version` if it is versioned.
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
    """A triggered checkpoint. It is also its session's lease, until the deadline (I10).

    Attributes:
        checkpoint_id, epoch: its identity; the epoch is the head's epoch + 1.
        token: current fencing token: of the trigger, or of the last rebind.
        base: checkpoint it starts from; 0 is the empty state.
        plan: the input record: object versions per source, and caps (``inputs/<sha256>.json``).
        expected: subtasks that must acknowledge it.
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
    """A retained checkpoint. `metadata` refers to the object that describes everything else about it.

    Attributes:
        parent: checkpoint it continued; 0 for the first.
        token: the winning token. It is in `metadata`, and in the prefix of the checkpoint's own files.
        session_id, holder: of the session that triggered it, even if another session adopted it (I10).
        version: manifest version that completed it. The checkpoint's commit to each table carries this number (I14).
        sinks: every sink of the checkpoint.
        unconfirmed: sinks that have not confirmed their commit yet. Such a checkpoint is never subsumed (I8).
        summary: what `list` shows without `_metadata`: rows_in, rows_out, late_rows, checkpointed_bytes, ….
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
