"""Two sessions, their zombies, retries, lost answers and clock jumps against one manifest and one store of files.

The model knows nothing of the coordinator's state: it keeps what was granted, what was written and what was said, and
checks I3, I5, I6, I7, I8 and I9 after every step.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from pipeline.protocol.codec import LogEntry, decode_entry, encode_entry
from pipeline.protocol.coordinator import AlreadyDone, Outcome, Transition
from pipeline.protocol.errors import Busy, CheckpointError, CommitConflict, Fenced, JobNotRunnable, ProtocolViolation
from pipeline.protocol.events import CheckpointAborted, CheckpointCompleted, CheckpointRebound, CheckpointTriggered
from pipeline.protocol.ids import SessionId
from pipeline.protocol.layout import metadata_key, token_prefix
from pipeline.protocol.lease import Abandon, Adopt, LeaseFacts, sweep_decision
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.protocol.records import CheckpointStatus, JobStatus, PendingCheckpoint
from pipeline.protocol.retention import (
    RetentionPolicy,
    deletable,
    minimum_grace_ms,
    subsumable,
    unreferenced,
)
from pipeline.protocol.transitions import checkpoint_status_after, checkpoints_of
from tests.harness.job_log import CLI_RUN, TIMEOUT_MS, JobLog, airflow_run

SESSIONS = st.sampled_from(["cli:a", "cli:b", "airflow:d/1", "airflow:d/2", "airflow:d/3"])
GRACE_MS = minimum_grace_ms(TIMEOUT_MS)
JUMPS = st.sampled_from([0, 1, 10_000, 60_000, TIMEOUT_MS, GRACE_MS, 3 * GRACE_MS, -TIMEOUT_MS, -3 * GRACE_MS])
FACTS = st.builds(
    LeaseFacts,
    take_over=st.booleans(),
    heartbeat_ms=st.none() | st.integers(900_000, 2_000_000),
    holder_dead=st.booleans(),
)
EXPECTED_REFUSALS = (Busy, Fenced, CommitConflict, JobNotRunnable, ProtocolViolation)


def run_of(session: str):  # type: ignore[no-untyped-def]
    return CLI_RUN if session.startswith("cli:") else airflow_run(session.rpartition("/")[2])


class Protocol(RuleBasedStateMachine):
    """Requests of live sessions and of zombies, in any order."""

    tries = Bundle("tries")
    """(session, pending checkpoint as that try saw it): what a process may hold on to for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.log = JobLog()
        self.files: set[str] = set()
        self.references: dict[int, frozenset[str]] = {0: frozenset()}
        self.granted: list[int] = []
        self.newest_token: dict[int, int] = {}
        self.owner: dict[int, str] = {}
        self.ended: dict[int, type] = {}
        self.heads: list[int] = [0]
        self.statuses: dict[int, CheckpointStatus] = {}
        self.folded = 0
        self.confirmed: set[int] = set()
        self.listed: dict[str, tuple[int, int]] = {}

    def ask(self, call) -> Transition | AlreadyDone | CheckpointError:  # type: ignore[no-untyped-def]
        """Make a request; a refusal must leave everything as it was."""
        before, events = self.log.state, len(self.log.events)
        try:
            answer = call()
        except EXPECTED_REFUSALS as error:
            assert self.log.state is before
            assert len(self.log.events) == events
            return error
        if isinstance(answer, AlreadyDone):
            assert self.log.state is before
        else:
            self.observe(answer)
        return answer

    def observe(self, answer: Transition) -> None:
        event = answer.event
        for entry in answer.state.garbage:
            self.listed.setdefault(entry.prefix, (answer.state.version, self.log.now_ms))
        if isinstance(event, CheckpointTriggered | CheckpointRebound):
            assert not self.granted or answer.token > self.granted[-1], "I3: tokens rise"
            self.granted.append(answer.token)
        if isinstance(event, CheckpointTriggered):
            assert event.pending.checkpoint_id == len(self.owner) + 1, "I5: ids rise and are never reused"
            self.owner[event.pending.checkpoint_id] = event.leader.session_id
            self.newest_token[event.pending.checkpoint_id] = answer.token
        elif isinstance(event, CheckpointRebound):
            assert self.owner[event.checkpoint_id] == event.session_id, "I3: only its own"
            self.newest_token[event.checkpoint_id] = answer.token
        elif isinstance(event, CheckpointCompleted):
            done = event.checkpoint
            assert done.checkpoint_id not in self.ended, "I9"
            assert done.token == self.newest_token[done.checkpoint_id], "I3, I7: no zombie wins"
            assert done.session_id == self.owner[done.checkpoint_id]
            self.ended[done.checkpoint_id] = CheckpointCompleted
            self.heads.append(done.checkpoint_id)
        elif isinstance(event, CheckpointAborted):
            assert event.pending.checkpoint_id not in self.ended, "I9"
            self.ended[event.pending.checkpoint_id] = CheckpointAborted

    def write(self, pending: PendingCheckpoint) -> str:
        """What a try writes, below its own token only: one run of state, and `_metadata`."""
        run = token_prefix(pending.checkpoint_id, pending.token) + "state/run"
        self.files |= {run, metadata_key(pending.checkpoint_id, pending.token)}
        return run

    @rule(jump_ms=JUMPS)
    def clock_jumps(self, jump_ms: int) -> None:
        self.log.now_ms = max(0, self.log.now_ms + jump_ms)

    @rule(target=tries, session=SESSIONS, facts=FACTS, rebind=st.booleans())
    def start_epoch(self, session: str, facts: LeaseFacts, rebind: bool):  # type: ignore[no-untyped-def]
        """Sweep, trigger, and perhaps die before the rebind."""
        return self.start_epoch_of(session, facts, rebind)

    def start_epoch_of(self, session: str, facts: LeaseFacts, rebind: bool):  # type: ignore[no-untyped-def]
        pending = self.log.state.timeline().pending
        if pending is not None:
            finished = metadata_key(pending.checkpoint_id, pending.token) in self.files
            facts = LeaseFacts(facts.take_over, facts.heartbeat_ms, facts.holder_dead, True if finished else None)
        try:
            decision = sweep_decision(self.log.state, SessionId(session), facts, self.log.now_ms)
        except Busy:
            assert not (facts.take_over or facts.holder_dead)
            return (session, None)
        if isinstance(decision, Adopt):
            assert pending is not None
            self.references[pending.checkpoint_id] = self.carried(pending)
            assert isinstance(self.ask(lambda: self.log.complete(session, pending, swept=True)), Transition)
        elif isinstance(decision, Abandon):
            assert not facts.gate_passed, "I10: what is finished is adopted"
            swept = self.ask(
                lambda: self.log.abort(
                    session, int(decision.checkpoint_id), decision.reason, token=int(decision.token), swept=True
                )
            )
            assert isinstance(swept, Transition)
        answer = self.ask(lambda: self.log.trigger(session, run_of(session)))
        if not (isinstance(answer, Transition) or getattr(answer, "outcome", None) is Outcome.ALREADY_TRIGGERED):
            return (session, None)
        if rebind:
            assert isinstance(self.ask(lambda: self.log.rebind(session)), Transition)
        return (session, self.log.pending)

    @rule(target=tries, session=st.sampled_from(["cli:a", "cli:b"]), confirm=st.booleans())
    def a_whole_epoch(self, session: str, confirm: bool):  # type: ignore[no-untyped-def]
        """The ordinary case, so that heads, unconfirmed checkpoints and garbage pile up."""
        attempt = self.start_epoch_of(session, LeaseFacts(take_over=True), rebind=True)
        if attempt[1] is not None:
            self.finish(attempt, None)
            if confirm:
                checkpoint_id = int(attempt[1].checkpoint_id)
                assert isinstance(self.ask(lambda: self.log.confirm(session, checkpoint_id)), Transition)
                self.confirmed.add(checkpoint_id)
        return attempt

    @rule(target=tries, attempt=tries)
    def retry_run_epoch(self, attempt):  # type: ignore[no-untyped-def]
        """A retried or cleared task takes a new token; the old try lives on as a zombie."""
        session, pending = attempt
        if pending is None:
            return attempt
        answer = self.ask(lambda: self.log.rebind(session, int(pending.checkpoint_id)))
        return (session, self.log.pending) if isinstance(answer, Transition) else attempt

    def carried(self, pending: PendingCheckpoint) -> frozenset[str]:
        run = token_prefix(pending.checkpoint_id, pending.token) + "state/run"
        base = sorted(self.references[int(pending.base)])
        return frozenset([run, metadata_key(pending.checkpoint_id, pending.token), *base[-2:]])

    @rule(attempt=tries)
    def a_try_writes(self, attempt) -> None:  # type: ignore[no-untyped-def]
        """Zombies write too, at any time, after their epoch is over as well."""
        if attempt[1] is not None:
            self.write(attempt[1])

    @rule(attempt=tries, thief=st.none() | SESSIONS)
    def complete(self, attempt, thief: str | None) -> None:  # type: ignore[no-untyped-def]
        """On time, late, twice, or by somebody who is not entitled."""
        self.finish(attempt, thief)

    def finish(self, attempt, thief: str | None) -> None:  # type: ignore[no-untyped-def]
        session, pending = attempt
        if pending is None:
            return
        if pending.checkpoint_id not in self.ended:
            self.write(pending)
        answer = self.ask(lambda: self.log.complete(thief or session, pending))
        if isinstance(answer, Transition):
            assert (thief or session) == session
            self.references[pending.checkpoint_id] = self.carried(pending)
        elif isinstance(answer, AlreadyDone):
            assert answer.outcome is Outcome.ALREADY_COMPLETED
            assert self.ended[pending.checkpoint_id] is CheckpointCompleted

    @rule(
        attempt=tries,
        by_token=st.booleans(),
        reason=st.sampled_from([CheckpointFailureReason.TASK_FAILURE, CheckpointFailureReason.BAD_RECORD]),
        tolerable=st.integers(0, 1),
    )
    def abort(self, attempt, by_token: bool, reason: CheckpointFailureReason, tolerable: int) -> None:  # type: ignore[no-untyped-def]
        session, pending = attempt
        if pending is None:
            return
        checkpoint_id, token = int(pending.checkpoint_id), int(pending.token)
        newest = self.newest_token[checkpoint_id]
        answer = self.ask(
            lambda: self.log.abort(
                session, checkpoint_id, reason, token=token if by_token else None, tolerable=tolerable
            )
        )
        if isinstance(answer, Transition):
            assert not by_token or token == newest, "I3: a replaced try aborts nothing"
        elif isinstance(answer, AlreadyDone) and answer.outcome is Outcome.ALREADY_COMPLETED:
            assert self.ended[checkpoint_id] is CheckpointCompleted

    @precondition(lambda self: self.log.state.unconfirmed())
    @rule(session=SESSIONS, pick=st.integers(0, 5))
    def confirm(self, session: str, pick: int) -> None:
        waiting = self.log.state.unconfirmed()
        checkpoint_id = int(waiting[pick % len(waiting)].checkpoint_id)
        assert isinstance(self.ask(lambda: self.log.confirm(session, checkpoint_id)), Transition)
        assert isinstance(self.ask(lambda: self.log.confirm(session, checkpoint_id)), AlreadyDone)
        self.confirmed.add(checkpoint_id)

    def leader_or(self, session: str | None) -> str:
        leader = self.log.state.timeline().leader
        return session or ("cli:nobody" if leader is None else leader.session_id)

    @precondition(lambda self: len(self.log.state.checkpoints) > 1)
    @rule(session=st.none() | SESSIONS, last=st.integers(1, 3))
    def subsume(self, session: str | None, last: int) -> None:
        session = self.leader_or(session)
        dropped = subsumable(self.log.state, RetentionPolicy(last))
        kept = [
            self.references[one.checkpoint_id] for one in self.log.state.checkpoints if one.checkpoint_id not in dropped
        ]
        garbage = unreferenced(kept, [self.references[one] for one in dropped])
        self.ask(lambda: self.log.subsume(session, tuple(int(one) for one in dropped), garbage, last))

    @precondition(lambda self: self.log.state.garbage)
    @rule(session=st.none() | SESSIONS, wait=st.booleans())
    def collect_garbage(self, session: str | None, wait: bool) -> None:
        """Delete in the store first, then forget; a crash between the two repeats a harmless deletion."""
        self.log.now_ms += GRACE_MS if wait else 0
        session = self.leader_or(session)
        ready = deletable(self.log.state, SessionId(session), self.log.now_ms, GRACE_MS)
        for entry in ready:
            version, listed_ms = self.listed.pop(entry.prefix)
            assert version < self.granted[-1], "I8: only a later leader deletes"
            assert self.log.now_ms - listed_ms >= GRACE_MS, "I8: after the grace period"
        self.files = {name for name in self.files if not any(name.startswith(entry.prefix) for entry in ready)}
        self.ask(lambda: self.log.forget(session, tuple(entry.prefix for entry in ready), GRACE_MS))

    @precondition(lambda self: self.log.state.status is JobStatus.FAILED)
    @rule(session=SESSIONS)
    def resume(self, session: str) -> None:
        assert isinstance(self.ask(lambda: self.log.trigger(session, CLI_RUN)), JobNotRunnable | AlreadyDone | Fenced)
        assert isinstance(self.ask(lambda: self.log.resume(session)), Transition)

    @invariant()
    def the_head_moves_only_by_complete(self) -> None:
        """I7; and every retained checkpoint was completed."""
        assert self.log.state.timeline().head == self.heads[-1]
        assert self.heads == sorted(set(self.heads))
        assert all(self.ended[one.checkpoint_id] is CheckpointCompleted for one in self.log.state.checkpoints)

    @invariant()
    def nothing_live_is_ever_deleted(self) -> None:
        """I8: all that a retained checkpoint refers to is there, the unconfirmed ones included."""
        for checkpoint in self.log.state.checkpoints:
            assert self.references[checkpoint.checkpoint_id] <= self.files
        completed = {one for one, event in self.ended.items() if event is CheckpointCompleted}
        retained = {int(one.checkpoint_id) for one in self.log.state.checkpoints}
        assert completed - self.confirmed <= retained, "I8: an unconfirmed checkpoint is not subsumed"

    @invariant()
    def the_log_tells_the_same_story(self) -> None:
        """I6: statuses folded from the events alone are those of the state; and every entry survives its codec."""
        for event in self.log.events[self.folded :]:
            for checkpoint_id in checkpoints_of(event):
                self.statuses[checkpoint_id] = checkpoint_status_after(self.statuses.get(checkpoint_id), event)
        self.folded = len(self.log.events)
        by_status = {
            status: {one for one, reached in self.statuses.items() if reached is status} for status in CheckpointStatus
        }
        state = self.log.state
        pending = state.timeline().pending
        assert by_status[CheckpointStatus.PENDING] == (set() if pending is None else {pending.checkpoint_id})
        assert by_status[CheckpointStatus.COMPLETED] == {one.checkpoint_id for one in state.checkpoints}
        entry = LogEntry(state.version, "w", self.log.events[-1], state)
        assert decode_entry(encode_entry(entry)) == entry


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
