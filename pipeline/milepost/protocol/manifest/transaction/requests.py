"""Requests: what a session can request from the manifest, one frozen record per transition.

Size: all requests in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.protocol.records.checkpoints import Holder, ObjectHandle, Run, SubtaskKey
from milepost.protocol.records.decisions import Decision
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, FencingToken, SessionId, TimelineId
from milepost.protocol.records.log_positions import LogFloor
from milepost.protocol.records.manifest_state import Garbage, GarbageList
from milepost.protocol.records.quarantined import QuarantinedObject
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Create the manifest of a new job.

    Attributes:
        key_hash_secret: random; see `manifest_state.ManifestState`.
    """

    job: str
    key_hash_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """Claim leadership of a timeline and start its next checkpoint.

    Attributes:
        base: the head that `plan` was made from; if the head has changed, the plan is stale.
        plan: the input record, already durable.
        expected: every subtask that must acknowledge, at least one.
        timeout_ms: length of the lease.
        min_pause_ms: minimum time between a completion and the next trigger on the live timeline.
        timeline: None: the live one. Otherwise an open fork, which publishes nothing and changes no counter of the job.
        quarantined: objects that `plan` leaves out; if the live timeline's have changed, the plan is stale. A fork
            leaves out what its backfill decided.
        imports: nothing runs: the checkpoint's content is copied from elsewhere. Only on a fork; allowed in a job that
            has ended, once that end is clean.
        above: for an import, the id of the copied checkpoint; the new id must be greater. The copy may contain names
            made from ids up to it, which no later id of this job may produce again.
    """

    session_id: SessionId
    holder: Holder
    run: Run
    base: CheckpointId
    plan: ObjectHandle
    expected: tuple[SubtaskKey, ...]
    timeout_ms: int
    code_hash: str
    spec_hash: str
    min_pause_ms: int = 0
    timeline: TimelineId | None = None
    quarantined: tuple[QuarantinedObject, ...] = ()
    imports: bool = False
    above: CheckpointId = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class RebindRequest:
    """Start a try of `run_epoch`: take a new token for the session's own pending checkpoint and renew its lease.

    Attributes:
        holder: the process of this try.
        timeout_ms: length of the renewed lease.
    """

    session_id: SessionId
    holder: Holder
    checkpoint_id: CheckpointId
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Make a checkpoint the head: the commit point (I7).

    Attributes:
        token: the token in `_metadata`, which must be the pending one's.
        metadata: handle of `_metadata`, below that token's prefix.
        acknowledged: every subtask with an acknowledgement in `_metadata`, as returned by `acknowledgements.verify`.
        gate_passed: the verdict in `_metadata`.
        sinks: all sinks of the checkpoint; each must confirm.
        summary: JSON-compatible: what `list` shows without reading `_metadata`.
        swept: another session adopts it after `sweep_decision` returned Adopt.
    """

    session_id: SessionId
    checkpoint_id: CheckpointId
    token: FencingToken
    metadata: ObjectHandle
    acknowledged: tuple[SubtaskKey, ...]
    gate_passed: bool
    sinks: tuple[str, ...]
    summary: dict[str, object] = field(default_factory=dict)
    swept: bool = False


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """Abort a pending checkpoint.

    Attributes:
        detail: what happened, for people; without row data or secrets.
        tolerable_failures: from the spec: number of consecutive counted failures that leave the job RUNNING. None: any
            number, because a restart strategy has decided to run the epoch again.
        token: None: any token of the session's checkpoint (the Airflow abort task). Otherwise it must still be in force
            (a driver that a later try may have replaced).
        swept: another session or a person aborts it; then `token` is required, and is the one that was judged.
        veto: failing rows for which the quality gate vetoed the epoch, stored before this transition.
        decided_by: who decided on it, and why; None: no actor did, or it is not known.
    """

    session_id: SessionId
    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str
    tolerable_failures: int | None
    token: FencingToken | None = None
    swept: bool = False
    veto: ObjectHandle | None = None
    decided_by: Decision | None = None


@dataclass(frozen=True, slots=True)
class ConfirmSinksRequest:
    """Record that sinks have committed one checkpoint (I11).

    Attributes:
        published_ms: when the last of them had, by the clock of its machine, ms since the epoch; None: unknown.
    """

    session_id: SessionId
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]
    published_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FloorProposal:
    """Floors of landed sources' logs, as they may be once checkpoints are dropped (L5).

    Attributes:
        floors: at most one per source.
        respected: the retained checkpoints whose positions are not below any of these floors.
    """

    floors: tuple[LogFloor, ...]
    respected: tuple[CheckpointId, ...]


@dataclass(frozen=True, slots=True)
class SubsumeRequest:
    """Drop checkpoints that the retention policy does not retain.

    Attributes:
        checkpoint_ids: from `retention.subsumable`.
        garbage: keys and directories that only these need, from `retention.unreferenced`.
        list_sha256: digest of the stored list of exactly these; None: they are few enough for the state.
        compacted: all log entries up to this version are tombstones.
        confirms: a confirmation to include in this transition. It is made even if nothing is dropped. None: none.
        floors: to raise in this transition. If the proposal is outdated, nothing is dropped. None: none.
    """

    session_id: SessionId
    policy: RetentionPolicy
    checkpoint_ids: tuple[CheckpointId, ...]
    garbage: tuple[str, ...]
    list_sha256: str | None = None
    compacted: int = 0
    confirms: ConfirmSinksRequest | None = None
    floors: FloorProposal | None = None


@dataclass(frozen=True, slots=True)
class ListProgress:
    """How many keys of a garbage list are dealt with. They are deleted, except for failed ones, which stay listed.

    Attributes:
        sha256: of the list. done: number of keys, counted from the first.
        failed: keys among them that could not be deleted: they become single entries of the state.
    """

    sha256: str
    done: int
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GarbageDeletedRequest:
    """Record that garbage from `retention.deletable` and `deletable_lists` was deleted, and remove it from the state.

    Attributes:
        lists: progress on garbage lists.
    """

    session_id: SessionId
    prefixes: tuple[str, ...]
    grace_ms: int
    lists: tuple[ListProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGarbageRequest:
    """List as garbage what a complete walk of every root did not reach.

    Attributes:
        walked_version: manifest version that was walked.
        garbage: keys and directories, from `retention.unreferenced`.
        list_sha256: digest of the stored list of exactly these; None: they are few enough for the state.
    """

    session_id: SessionId
    walked_version: int
    garbage: tuple[str, ...]
    list_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ForgetCollectedRequest:
    """Record that garbage from `retention.collectable` and `collectable_lists` was deleted; the state drops it."""

    session_id: SessionId
    prefixes: tuple[str, ...]
    grace_ms: int
    lists: tuple[ListProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What to fold into one garbage list.

    Attributes:
        garbage: entries of the state. lists: whole lists, in order.
    """

    garbage: tuple[Garbage, ...]
    lists: tuple[GarbageList, ...]


@dataclass(frozen=True, slots=True)
class FoldGarbageRequest:
    """Replace entries and lists of a plan by one list that was written from it.

    Attributes:
        keys: of the new list, in order. list_sha256: its digest.
    """

    session_id: SessionId
    plan: FoldPlan
    keys: tuple[str, ...]
    list_sha256: str


@dataclass(frozen=True, slots=True)
class RecordCompactionRequest:
    """Record that all log entries up to this version are tombstones."""

    session_id: SessionId
    through: int


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A person declares that the cause of FAILED is fixed.

    Attributes:
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A person ends the incarnation now: pending checkpoints are aborted and their leaders fenced.

    Attributes:
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """A bounded job has consumed its whole input: its incarnation ends.

    Attributes:
        final: the final checkpoint; it must be the head, and every sink must have confirmed it.
    """

    session_id: SessionId
    final: CheckpointId
    detail: str


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """The clean-up after the end of an incarnation is done."""

    session_id: SessionId
    incarnation: int


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A person opens the next incarnation of a job that has ended; it continues from the head.

    Attributes:
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class PinRequest:
    """Hold a retained checkpoint while a reader reads it. A repeated request under the same name extends the hold.

    Attributes:
        name: of the reader. hold_ms: how long, unless it is unpinned before.
    """

    session_id: SessionId
    name: str
    checkpoint_id: CheckpointId
    hold_ms: int


@dataclass(frozen=True, slots=True)
class UnpinRequest:
    """Release the reader's checkpoint."""

    session_id: SessionId
    name: str


@dataclass(frozen=True, slots=True)
class QuarantineRequest:
    """Let no epoch read this version of an object of a file source until it is released.

    Attributes:
        decided_by: who decided on it, and why, for the history.
    """

    session_id: SessionId
    source: str
    key: str
    etag: str
    size: int
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """Let epochs read a quarantined object again. decided_by: as in `QuarantineRequest`."""

    session_id: SessionId
    source: str
    key: str
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Make a new timeline, which starts at an older checkpoint, the live one. Nothing is destroyed.

    Attributes:
        to: any retained checkpoint of any timeline; 0 for the empty state.
        expected_head: the live head at the time of the decision.
        sinks: every sink of the spec: all of them must follow.
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    to: CheckpointId
    expected_head: CheckpointId
    sinks: tuple[str, ...]
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Open a timeline alongside the live one, at a retained checkpoint or at 0, the empty state."""

    session_id: SessionId
    at: CheckpointId


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """Prevent other sessions from triggering on the live timeline for a while. Repeating it extends the time."""

    session_id: SessionId
    hold_ms: int


@dataclass(frozen=True, slots=True)
class ThawRequest:
    """Release the session's own freeze."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class FastForwardRequest:
    """Make an open fork the live timeline.

    Attributes:
        expected_main_head, expected_fork_head: the heads that were compared and have consumed the same input.
        sinks: every sink of the spec: all of them must follow.
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    fork: TimelineId
    expected_main_head: CheckpointId
    expected_fork_head: CheckpointId
    sinks: tuple[str, ...]
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class DisposeForkRequest:
    """Dispose of a fork and abort its pending checkpoint."""

    session_id: SessionId
    fork: TimelineId


@dataclass(frozen=True, slots=True)
class ReconcileSinkRequest:
    """Record that a sink has followed the switch of manifest version `decision`."""

    session_id: SessionId
    decision: int
    sink: str


@dataclass(frozen=True, slots=True)
class RealignSinkRequest:
    """Make one sink's table follow the job's head, whatever it shows now.

    Attributes:
        expected_head: the live head at the time of the decision.
        decided_by: who decided on it, and why. The event's `detail` is its text.
    """

    session_id: SessionId
    sink: str
    expected_head: CheckpointId
    decided_by: Decision


@dataclass(frozen=True, slots=True)
class RecordSavepointRequest:
    """Record that a savepoint's copy is complete; its checkpoint must still be retained.

    Attributes:
        location: None: below the job's own ``savepoints/<name>/``. Otherwise an absolute URL.
        document: handle of ``savepoint.json``, relative to the savepoint's root.
    """

    session_id: SessionId
    name: str
    checkpoint_id: CheckpointId
    location: str | None
    document: ObjectHandle


@dataclass(frozen=True, slots=True)
class DisposeSavepointRequest:
    """Dispose of a savepoint."""

    session_id: SessionId
    name: str
