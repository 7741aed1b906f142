"""Requests are what a session may ask of the coordinator: one frozen record per transition.

Size: all that can be asked, in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.protocol.records.checkpoints import Holder, ObjectHandle, Run, SubtaskKey
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, FencingToken, SessionId, TimelineId
from milepost.protocol.records.manifest_state import Garbage, GarbageList
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Open the manifest of a job that has none.

    Attributes:
        key_hash_secret: random, of `manifest_state.ManifestState`.
    """

    job: str
    key_hash_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """Claim leadership of a timeline and begin its next checkpoint.

    Attributes:
        base: the head that `plan` was made from; another head by now means the plan is stale.
        plan: the input record, already durable.
        expected: every subtask that must acknowledge, at least one.
        timeout_ms: length of the lease.
        min_pause_ms: time that must pass between a completion and the next trigger; of the live timeline.
        timeline: None: the live one. Or an open fork: it publishes nothing and moves none of the job's counters.
        imports: nothing is run: the checkpoint's content is copied from elsewhere. On a fork only; then also in a job
            that has ended, once that end is clean.
        above: of what is imported: the checkpoint that is copied, whose id lies below the new one. What is copied may
            hold names that were made from ids up to it, and in this job too a later id must never make one of them
            again.
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
    imports: bool = False
    above: CheckpointId = NO_CHECKPOINT


@dataclass(frozen=True, slots=True)
class RebindRequest:
    """Start one try of `run_epoch`: take a new token for the session's own pending checkpoint, renew its lease.

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
        token: the one inside `_metadata`; it must be the pending one's.
        metadata: of `_metadata`, below that token's prefix.
        acknowledged: every subtask whose acknowledgement is in `_metadata`, as `acknowledgements.verify` returned it.
        gate_passed: the verdict inside `_metadata`.
        sinks: all sinks of the checkpoint; each must confirm.
        summary: JSON-compatible: what `list` shows without opening `_metadata`.
        swept: another session adopts it after `sweep_decision` said so.
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
    """Give up a pending checkpoint.

    Attributes:
        detail: for people: what happened, without row data or secrets.
        tolerable_failures: of the spec: that many counted failures in a row leave the job RUNNING. None: any number,
            because a restart strategy decides, and has decided to run the epoch again.
        token: None: whatever token the session's checkpoint has now (the Airflow abort task). Otherwise only if it is
            still in force (a driver that may have been replaced by a later try).
        swept: another session, or a person, ends it; then `token` is the one that was judged, and must be given.
        veto: for what the quality gate refused the epoch: stored before the transition that names it.
    """

    session_id: SessionId
    checkpoint_id: CheckpointId
    reason: CheckpointFailureReason
    detail: str
    tolerable_failures: int | None
    token: FencingToken | None = None
    swept: bool = False
    veto: ObjectHandle | None = None


@dataclass(frozen=True, slots=True)
class ConfirmSinksRequest:
    """State the fact that sinks have committed one checkpoint (I11)."""

    session_id: SessionId
    checkpoint_id: CheckpointId
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubsumeRequest:
    """Drop checkpoints that the retention policy no longer keeps.

    Attributes:
        checkpoint_ids: what `retention.subsumable` answered.
        garbage: keys and directories that only those need: what `retention.unreferenced` answered.
        listed: digest of the stored list of just these; None: they are few enough for the state.
        compacted: up to this version all entries of the log are tombstones.
        confirms: a confirmation that is made in the same transition; by itself where nothing is dropped. None: none.
    """

    session_id: SessionId
    policy: RetentionPolicy
    checkpoint_ids: tuple[CheckpointId, ...]
    garbage: tuple[str, ...]
    listed: str | None = None
    compacted: int = 0
    confirms: ConfirmSinksRequest | None = None


@dataclass(frozen=True, slots=True)
class ListProgress:
    """How far the keys of a list of garbage are dealt with: deleted, but for the failed ones, which stay listed.

    Attributes:
        sha256: of the list. done: so many of its keys, from the first on.
        failed: keys among them that could not be deleted: the state lists them by themselves from now on.
    """

    sha256: str
    done: int
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GarbageDeletedRequest:
    """State that garbage of `retention.deletable` and `deletable_lists` is deleted, so that it is forgotten.

    Attributes:
        lists: what was done of lists.
    """

    session_id: SessionId
    prefixes: tuple[str, ...]
    grace_ms: int
    lists: tuple[ListProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGarbageRequest:
    """List what a complete walk of every root did not reach.

    Attributes:
        walked_version: of the manifest value that the walk was made of.
        garbage: keys and directories, what `retention.unreferenced` answered.
        listed: digest of the stored list of just these; None: they are few enough for the state.
    """

    session_id: SessionId
    walked_version: int
    garbage: tuple[str, ...]
    listed: str | None = None


@dataclass(frozen=True, slots=True)
class ForgetCollectedRequest:
    """State that garbage of `retention.collectable` and `collectable_lists` is deleted, so that it is forgotten."""

    session_id: SessionId
    prefixes: tuple[str, ...]
    grace_ms: int
    lists: tuple[ListProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What is to be folded into one list.

    Attributes:
        garbage: entries of the state. lists: whole lists, in order.
    """

    garbage: tuple[Garbage, ...]
    lists: tuple[GarbageList, ...]


@dataclass(frozen=True, slots=True)
class FoldGarbageRequest:
    """Name a list that was written from a plan, in the place of what it was made of.

    Attributes:
        keys: of the list, in order. listed: its digest.
    """

    session_id: SessionId
    plan: FoldPlan
    keys: tuple[str, ...]
    listed: str


@dataclass(frozen=True, slots=True)
class RecordCompactionRequest:
    """State that all entries up to this version are tombstones."""

    session_id: SessionId
    through: int


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A person says that the cause of FAILED is fixed."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A person ends the incarnation now: whatever is pending is aborted, and its leader is fenced.

    Attributes:
        detail: for people: who, why.
    """

    session_id: SessionId
    detail: str


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """A bounded job has read everything: its incarnation ends.

    Attributes:
        final: the final checkpoint; it must be the head, and every sink must have confirmed it.
    """

    session_id: SessionId
    final: CheckpointId
    detail: str


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """What the end of an incarnation left to do is done."""

    session_id: SessionId
    incarnation: int


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A person opens the next incarnation of a job that has ended; it continues the head."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class PinRequest:
    """Hold a retained checkpoint while somebody reads it; asked again under the same name, hold it longer.

    Attributes:
        name: of the reader. hold_ms: how long, if nobody unpins it before.
    """

    session_id: SessionId
    name: str
    checkpoint_id: CheckpointId
    hold_ms: int


@dataclass(frozen=True, slots=True)
class UnpinRequest:
    """The reader of that name is done."""

    session_id: SessionId
    name: str


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Go back: a new timeline, which starts at an older checkpoint, becomes the live one. Nothing is destroyed.

    Attributes:
        to: any retained checkpoint, whatever timeline it is of; 0 for the empty state.
        expected_head: the live head that the decision was made from.
        sinks: every sink of the spec: all of them must follow.
        detail: for people: who, why.
    """

    session_id: SessionId
    to: CheckpointId
    expected_head: CheckpointId
    sinks: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Open a timeline beside the live one, at a retained checkpoint or at 0, the empty state."""

    session_id: SessionId
    at: CheckpointId


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """Keep every other session from triggering on the live timeline for a time; asked again, for longer."""

    session_id: SessionId
    hold_ms: int


@dataclass(frozen=True, slots=True)
class ThawRequest:
    """Let go of the session's own freeze."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class FastForwardRequest:
    """Make an open fork the live timeline.

    Attributes:
        expected_main_head, expected_fork_head: the heads that were compared: both have consumed the same input.
        sinks: every sink of the spec: all of them must follow. detail: for people: who, why.
    """

    session_id: SessionId
    fork: TimelineId
    expected_main_head: CheckpointId
    expected_fork_head: CheckpointId
    sinks: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class DisposeForkRequest:
    """Give a fork up, with what is pending on it."""

    session_id: SessionId
    fork: TimelineId


@dataclass(frozen=True, slots=True)
class ReconcileSinkRequest:
    """State the fact that a sink has followed the switch of manifest version `decision`."""

    session_id: SessionId
    decision: int
    sink: str


@dataclass(frozen=True, slots=True)
class RealignSinkRequest:
    """Let the job's head count for one sink, whatever its table shows by now.

    Attributes:
        expected_head: the live head that the decision was made from.
        detail: for people: who, why.
    """

    session_id: SessionId
    sink: str
    expected_head: CheckpointId
    detail: str


@dataclass(frozen=True, slots=True)
class RecordSavepointRequest:
    """State that a savepoint's copy is complete; its checkpoint must still be retained.

    Attributes:
        location: None: below the job's own ``savepoints/<name>/``. Otherwise an absolute URL.
        document: of ``savepoint.json``, relative to the savepoint's root.
    """

    session_id: SessionId
    name: str
    checkpoint_id: CheckpointId
    location: str | None
    document: ObjectHandle


@dataclass(frozen=True, slots=True)
class DisposeSavepointRequest:
    """Give a savepoint up."""

    session_id: SessionId
    name: str
