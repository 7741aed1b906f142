"""A job with an in-memory manifest: the real coordinator, applied to requests with short defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.errors import CheckpointError
from milepost.protocol.log.entry_codec import encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.coordinator import create
from milepost.protocol.manifest.decisions import Request, decide
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.manifest.transaction.events import Event
from milepost.protocol.manifest.transaction.requests import (
    AbortRequest,
    CancelRequest,
    CleanRequest,
    CompleteRequest,
    ConfirmSinksRequest,
    CreateRequest,
    DisposeForkRequest,
    DisposeSavepointRequest,
    FastForwardRequest,
    FinishRequest,
    FloorProposal,
    FoldGarbageRequest,
    FoldPlan,
    ForgetCollectedRequest,
    ForkRequest,
    FreezeRequest,
    GarbageDeletedRequest,
    ListGarbageRequest,
    ListProgress,
    PinRequest,
    QuarantineRequest,
    RealignSinkRequest,
    RebindRequest,
    ReconcileSinkRequest,
    RecordCompactionRequest,
    RecordSavepointRequest,
    ReleaseRequest,
    ResumeRequest,
    RollbackRequest,
    StartRequest,
    SubsumeRequest,
    ThawRequest,
    TriggerRequest,
    UnpinRequest,
)
from milepost.protocol.records.checkpoints import Holder, ObjectHandle, PendingCheckpoint, Run, SubtaskKey
from milepost.protocol.records.decisions import Actor, Decision
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId, TimelineId
from milepost.protocol.records.layout import manifest_key, metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy
from milepost_testkit import wording
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET

MINUTE_MS = 60_000
TIMEOUT_MS = 10 * MINUTE_MS
EXPECTED = (SubtaskKey(0, 0), SubtaskKey(0, 1), SubtaskKey(1, 0))
PLAN = ObjectHandle("inputs/" + "a" * 64 + ".json", 120, "a" * 64)
CLI_RUN = Run()

A, B = "cli:a", "cli:b"
"""Two CLI sessions."""

Answer = Transition | AlreadyDone


def holder(session: str) -> Holder:
    return Holder(session.partition(":")[0], "host-1", 4242, 1_000, "boot-1/pid:[1]")


def airflow_run(run_id: str, run_type: str = "manual", logical_date: str | None = None) -> Run:
    return Run("flights__epoch", run_id, run_type, logical_date)


AIR_1, RUN_1 = "airflow:flights__epoch/manual__1", airflow_run("manual__1")
AIR_2, RUN_2 = "airflow:flights__epoch/manual__2", airflow_run("manual__2")


A_WRONG_FILE = Decision(Actor("cli", "ben"), "a wrong file")


def decided(why: str) -> Decision:
    """A person's decision on an act."""
    return Decision(Actor("cli", "ann"), why)


@dataclass
class JobLog:
    """The log of one job. Each method submits one request of one session at the current time.

    Attributes:
        state: at the head. events: since version 1. now_ms: the store's clock; tests move it.
    """

    now_ms: int = 1_000_000
    state: ManifestState = field(init=False)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        created = create(None, CreateRequest("flights", KEY_HASH_SECRET), self.now_ms)
        assert isinstance(created, Transition)
        self.state = created.state
        self.events.append(created.event)

    def submit(self, request: Request) -> Answer:
        """Decide a request on the head. A transition becomes the new head."""
        answer = decide(self.state, request, self.now_ms)
        if isinstance(answer, Transition):
            assert answer.state.version == self.state.version + 1
            assert faults(answer.state) == []
            self.state = answer.state
            self.events.append(answer.event)
        return answer

    @property
    def pending(self) -> PendingCheckpoint:
        """The pending checkpoint of the live timeline."""
        return self.pending_on(self.state.live)

    def pending_on(self, timeline: str) -> PendingCheckpoint:
        pending = self.state.timeline(TimelineId(timeline)).pending
        assert pending is not None
        return pending

    def trigger_request(self, session: str, run: Run = CLI_RUN, **changes: Any) -> TriggerRequest:
        listed = {timeline.timeline_id: timeline.head for timeline in self.state.timelines}
        values: dict[str, Any] = {
            "session_id": SessionId(session),
            "holder": holder(session),
            "run": run,
            "base": listed.get(changes.get("timeline") or self.state.live, CheckpointId(0)),
            "plan": PLAN,
            "expected": EXPECTED,
            "timeout_ms": TIMEOUT_MS,
            "code_hash": "c0de",
            "spec_hash": "5bec",
            "quarantined": self.state.quarantined,
        }
        return TriggerRequest(**(values | changes))

    def trigger(self, session: str, run: Run = CLI_RUN, **changes: Any) -> Answer:
        return self.submit(self.trigger_request(session, run, **changes))

    def rebind(self, session: str, checkpoint_id: int | None = None, timeout_ms: int = TIMEOUT_MS) -> Answer:
        target_id = self.pending.checkpoint_id if checkpoint_id is None else CheckpointId(checkpoint_id)
        return self.submit(RebindRequest(SessionId(session), holder(session), target_id, timeout_ms))

    def rebind_on(self, session: str, timeline: str) -> Answer:
        return self.rebind(session, int(self.pending_on(timeline).checkpoint_id))

    def complete_request(self, session: str, pending: PendingCheckpoint, **changes: Any) -> CompleteRequest:
        values: dict[str, Any] = {
            "session_id": SessionId(session),
            "checkpoint_id": pending.checkpoint_id,
            "token": pending.token,
            "metadata": ObjectHandle(metadata_key(pending.checkpoint_id, pending.token), 300, "b" * 64),
            "acknowledged": pending.expected,
            "gate_passed": True,
            "sinks": ("lake",),
            "summary": {"rows_in": 10},
        }
        return CompleteRequest(**(values | changes))

    def complete(self, session: str, pending: PendingCheckpoint | None = None, **changes: Any) -> Answer:
        return self.submit(
            self.complete_request(session, self.pending if pending is None else pending, **changes),
        )

    def abort(
        self,
        session: str,
        checkpoint_id: int | None = None,
        reason: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE,
        *,
        tolerable: int = 0,
        token: int | None = None,
        swept: bool = False,
        detail: str = "it failed",
        veto: ObjectHandle | None = None,
    ) -> Answer:
        target_id = self.pending.checkpoint_id if checkpoint_id is None else CheckpointId(checkpoint_id)
        judged = None if token is None else FencingToken(token)
        return self.submit(
            AbortRequest(
                SessionId(session), target_id, reason, detail, tolerable, token=judged, swept=swept, veto=veto
            ),
        )

    def confirm(self, session: str, checkpoint_id: int, *sinks: str) -> Answer:
        return self.submit(ConfirmSinksRequest(SessionId(session), CheckpointId(checkpoint_id), sinks or ("lake",)))

    def subsume(
        self,
        session: str,
        ids: tuple[int, ...],
        garbage: tuple[str, ...] = (),
        last: int = 1,
        hourly: int = 0,
        daily: int = 0,
        list_sha256: str | None = None,
        compacted: int = 0,
        confirms: ConfirmSinksRequest | None = None,
        floors: FloorProposal | None = None,
    ) -> Answer:
        checkpoint_ids = tuple(CheckpointId(checkpoint_id) for checkpoint_id in ids)
        policy = RetentionPolicy(last, hourly, daily)
        return self.submit(
            SubsumeRequest(
                SessionId(session), policy, checkpoint_ids, garbage, list_sha256, compacted, confirms, floors
            ),
        )

    def forget(
        self, session: str, prefixes: tuple[str, ...], grace_ms: int, lists: tuple[ListProgress, ...] = ()
    ) -> Answer:
        request = GarbageDeletedRequest(SessionId(session), prefixes, grace_ms, lists)
        return self.submit(request)

    def list_garbage(
        self, session: str, garbage: tuple[str, ...], walked_version: int | None = None, list_sha256: str | None = None
    ) -> Answer:
        version = self.state.version if walked_version is None else walked_version
        return self.submit(ListGarbageRequest(SessionId(session), version, garbage, list_sha256))

    def forget_collected(
        self, session: str, prefixes: tuple[str, ...], grace_ms: int, lists: tuple[ListProgress, ...] = ()
    ) -> Answer:
        return self.submit(ForgetCollectedRequest(SessionId(session), prefixes, grace_ms, lists))

    def compact(self, session: str, through: int) -> Answer:
        return self.submit(RecordCompactionRequest(SessionId(session), through))

    def fold(self, session: str, garbage: int = 0, keys: tuple[str, ...] = (), list_sha256: str = "f" * 64) -> Answer:
        """Fold the first entries, and all lists without progress (whose keys are given), into one list."""
        lists = tuple(garbage_list for garbage_list in self.state.garbage_lists if not garbage_list.done and keys)
        plan = FoldPlan(self.state.garbage[:garbage], lists)
        all_keys = (*(entry.prefix for entry in plan.garbage), *keys)
        return self.submit(FoldGarbageRequest(SessionId(session), plan, all_keys, list_sha256))

    def resume(self, session: str) -> Answer:
        return self.submit(ResumeRequest(SessionId(session), decided("the disk is empty again")))

    def cancel(self, session: str, why: str = "not needed") -> Answer:
        return self.submit(CancelRequest(SessionId(session), decided(why)))

    def finish(self, session: str, final: int | None = None, detail: str = "everything is read") -> Answer:
        final_id = self.state.timeline().head if final is None else CheckpointId(final)
        return self.submit(FinishRequest(SessionId(session), final_id, detail))

    def clean(self, session: str, incarnation: int | None = None) -> Answer:
        target = self.state.incarnation if incarnation is None else incarnation
        return self.submit(CleanRequest(SessionId(session), target))

    def start(self, session: str) -> Answer:
        return self.submit(StartRequest(SessionId(session), decided("more input")))

    def pin(self, session: str, checkpoint_id: int, name: str = "reader", hold_ms: int = MINUTE_MS) -> Answer:
        return self.submit(PinRequest(SessionId(session), name, CheckpointId(checkpoint_id), hold_ms))

    def unpin(self, session: str, name: str = "reader") -> Answer:
        return self.submit(UnpinRequest(SessionId(session), name))

    def quarantine(self, session: str, key: str, source: str = "rows", etag: str = "1") -> Answer:
        return self.submit(QuarantineRequest(SessionId(session), source, key, etag, 10, A_WRONG_FILE))

    def release(self, session: str, key: str, source: str = "rows") -> Answer:
        return self.submit(ReleaseRequest(SessionId(session), source, key, A_WRONG_FILE))

    def rollback(
        self, session: str, to: int, expected_head: int | None = None, sinks: tuple[str, ...] = ("lake",)
    ) -> Answer:
        expected = self.state.timeline().head if expected_head is None else CheckpointId(expected_head)
        request = RollbackRequest(SessionId(session), CheckpointId(to), expected, sinks, decided("a wrong rule"))
        return self.submit(request)

    def fork(self, session: str, at: int) -> TimelineId:
        """Open a fork and return its id."""
        answer = self.submit(ForkRequest(SessionId(session), CheckpointId(at)))
        assert isinstance(answer, Transition)
        return self.state.timelines[-1].timeline_id

    def fast_forward(
        self,
        session: str,
        fork: str,
        expected_main_head: int | None = None,
        expected_fork_head: int | None = None,
        sinks: tuple[str, ...] = ("lake",),
    ) -> Answer:
        heads = {timeline.timeline_id: timeline.head for timeline in self.state.timelines}
        main = heads[self.state.live] if expected_main_head is None else CheckpointId(expected_main_head)
        tip = heads.get(TimelineId(fork), CheckpointId(0)) if expected_fork_head is None else expected_fork_head
        return self.submit(
            FastForwardRequest(
                SessionId(session), TimelineId(fork), main, CheckpointId(tip), sinks, decided("replayed")
            )
        )

    def dispose_fork(self, session: str, fork: str) -> Answer:
        return self.submit(DisposeForkRequest(SessionId(session), TimelineId(fork)))

    def freeze(self, session: str, hold_ms: int = MINUTE_MS) -> Answer:
        return self.submit(FreezeRequest(SessionId(session), hold_ms))

    def thaw(self, session: str) -> Answer:
        return self.submit(ThawRequest(SessionId(session)))

    def reconcile(self, session: str, sink: str = "lake", decision: int | None = None) -> Answer:
        due = self.state.reconciliation
        decision_version = (due.decision if due is not None else self.state.version) if decision is None else decision
        return self.submit(ReconcileSinkRequest(SessionId(session), decision_version, sink))

    def realign(self, session: str, sink: str = "lake", expected_head: int | None = None) -> Answer:
        expected = self.state.timeline().head if expected_head is None else CheckpointId(expected_head)
        return self.submit(RealignSinkRequest(SessionId(session), sink, expected, decided("a restore")))

    def record_savepoint(
        self, session: str, checkpoint_id: int, name: str = "before", location: str | None = None, **changes: Any
    ) -> Answer:
        document = ObjectHandle("savepoint.json", 100, "d" * 64)
        request = RecordSavepointRequest(SessionId(session), name, CheckpointId(checkpoint_id), location, document)
        return self.submit(replace(request, **changes))

    def dispose_savepoint(self, session: str, name: str = "before") -> Answer:
        return self.submit(DisposeSavepointRequest(SessionId(session), name))

    def epoch_on(self, session: str, fork: str, *, sinks: tuple[str, ...] = ("lake",)) -> int:
        """Run one whole epoch on a fork and return its checkpoint id."""
        self.trigger(session, timeline=TimelineId(fork))
        pending = self.pending_on(fork)
        self.complete(session, pending, sinks=sinks)
        return int(pending.checkpoint_id)

    def epoch(self, session: str, run: Run = CLI_RUN, *, confirm: bool = True) -> int:
        """Run one whole epoch of a session and return its checkpoint id."""
        self.trigger(session, run)
        self.rebind(session)
        checkpoint_id = int(self.pending.checkpoint_id)
        self.complete(session)
        if confirm:
            self.confirm(session, checkpoint_id)
        return checkpoint_id


@dataclass
class StoredLog(JobLog):
    """A log that can be stored as a job's manifest: a history of many epochs, none of which ran.

    Attributes:
        states: after each event.
    """

    states: list[ManifestState] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.states.append(self.state)

    def submit(self, request: Request) -> Answer:
        answer = super().submit(request)
        if isinstance(answer, Transition):
            self.states.append(answer.state)
        return answer

    def store_in(self, store: ObjectStore) -> None:
        """Write every version to a store without a manifest."""
        for state, event in zip(self.states, self.events, strict=True):
            entry = LogEntry(state.version, f"write-{state.version}", event, state)
            store.create(manifest_key(state.version), encode_entry(entry))


def epochs(count: int, *, confirm: bool = True) -> JobLog:
    """Return the log of a job after N epochs of one session."""
    log = JobLog()
    for _ in range(count):
        log.epoch(A, confirm=confirm)
    return log


def assert_refused(log: JobLog, error: type[CheckpointError], call: Callable[[], object]) -> CheckpointError:
    """Assert that a call raises with its golden wording, and that neither state nor log changed."""
    before, events = log.state, list(log.events)
    with wording.raises(error) as caught:
        call()
    assert (log.state, log.events) == (before, events)
    return caught.value
