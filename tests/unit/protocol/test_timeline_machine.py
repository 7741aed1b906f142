"""Rollbacks, forks, replays and the schedule in any order, with zombies of each, against a plain model and two tables.

After every step: ids and tokens increase across timelines, one timeline is live, heads are retained, a completed
checkpoint is lost only by subsumption and only if nothing needs it, no needed object is garbage, and each table shows a
retained checkpoint: the live head once nothing is owed, or an external writer's contents until it is realigned (I3, I5,
I7, I8, I14).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from milepost.errors import Busy, CheckpointError, CommitConflict, Fenced, JobNotRunnable, NotFound
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import TimelineSwitched
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.layout import metadata_key, token_prefix
from milepost.protocol.records.manifest_state import JobStatus, TimelineRole
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.protocol.retention.retention import RetentionPolicy, deletable, lowest_pending, subsumable, unreferenced
from milepost_testkit import profiles
from milepost_testkit.jobs.job_log import TIMEOUT_MS, JobLog
from milepost_testkit.models.protocol.lineage_model import SINKS, Done, Job, Switch
from milepost_testkit.models.protocol.retention_tiers import HOUR_MS

SCHEDULE = st.sampled_from(["cli:a", "cli:b"])
REPLAY, PERSON = "cli:replay", "cli:person"
PICK = st.integers(0, 30)
POLICIES = st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 1, 2]))
GRACE_MS = 1_000
WAIT = {"deadline": TIMEOUT_MS, "hour": HOUR_MS, "day": 24 * HOUR_MS, "moment": 1_000, "back": -HOUR_MS}


class Timelines(RuleBasedStateMachine):
    """One job; each rule is one request, or one whole epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.log = JobLog(now_ms=100 * HOUR_MS)
        self.job = Job()
        self.tries: list[tuple[str, PendingCheckpoint]] = []
        self.ids: list[int] = []
        self.tokens: list[int] = []
        self.switches: list[Switch] = []
        self.references: dict[int, frozenset[str]] = {0: frozenset()}
        self.files: set[str] = set()
        self.frozen: tuple[str, int] | None = None
        self.never_committed: set[int] = set()

    @initialize(count=st.integers(0, 4), down=st.integers(0, 2))
    def a_job_that_has_run(self, count: int, down: int) -> None:
        for _ in range(count):
            self.an_epoch("cli:a", down, None)

    def ask(self, call: Any, *errors: type[CheckpointError]) -> Any:
        """Make a request; what is refused, or done already, leaves everything as it was."""
        before = self.log.state
        try:
            answer = call()
        except errors as error:
            assert self.log.state is before
            return error
        assert isinstance(answer, Transition) or self.log.state is before
        return answer

    # The schedule and the replay.

    def trigger(self, session: str, timeline: str, *, imports: bool = False) -> PendingCheckpoint | None:
        state = self.log.state
        expected = self.why_not(session, timeline, imports=imports)
        changes = {} if timeline == self.job.live else {"timeline": timeline, "imports": imports}
        answer = self.ask(lambda: self.log.trigger(session, **changes), Busy, JobNotRunnable, Fenced)
        if expected is not None:
            assert isinstance(answer, expected), (answer, expected)
            return None
        assert isinstance(answer, Transition | AlreadyDone), answer
        pending = self.log.pending_on(timeline)
        if isinstance(answer, Transition):
            assert pending.checkpoint_id == state.next_checkpoint_id > max(self.ids, default=0), "I5"
            assert answer.token > max(self.tokens, default=0), "I3"
            assert pending.base == self.job.heads[timeline]
            self.ids.append(pending.checkpoint_id)
            self.tokens.append(answer.token)
            self.tries.append((session, pending))
            if timeline == self.job.live and self.frozen is not None and self.log.now_ms >= self.frozen[1]:
                self.frozen = None  # over for good, even if the clock goes back
        return pending

    def why_not(self, session: str, timeline: str, *, imports: bool) -> type[CheckpointError] | None:
        """What refuses a trigger, in the model's words; None: nothing does."""
        state = self.log.state
        if timeline != self.job.live and timeline not in self.job.forks:
            return Fenced
        found = state.timeline(timeline)  # type: ignore[arg-type]
        if found.pending is not None and found.leader is not None and found.leader.session_id == session:
            return None
        on_live = timeline == self.job.live
        stopped = state.status is not JobStatus.RUNNING if on_live else state.status is JobStatus.CANCELED
        if not self.clean if imports else stopped:
            return JobNotRunnable
        if found.pending is not None:
            return Busy
        if on_live and self.job.must_follow:
            return JobNotRunnable
        if on_live and self.frozen is not None and self.frozen[0] != session and self.log.now_ms < self.frozen[1]:
            return Busy
        return JobNotRunnable if on_live and len(self.job.owed) > 3 else None

    def complete(self, session: str, pending: PendingCheckpoint) -> bool:
        where = next(
            (
                one
                for one in self.log.state.timelines
                if one.pending and one.pending.checkpoint_id == pending.checkpoint_id
            ),
            None,
        )
        in_force = where is not None and where.pending is not None and where.pending.token == pending.token
        run = token_prefix(pending.checkpoint_id, pending.token) + "state/run"
        metadata = metadata_key(pending.checkpoint_id, pending.token)
        if in_force:
            self.files |= {run, metadata}
        answer = self.ask(lambda: self.log.complete(session, pending, sinks=SINKS), Fenced)
        assert isinstance(answer, Transition) == in_force, "I3: a zombie completes nothing"
        if where is None or not isinstance(answer, Transition):
            return False
        number = int(pending.checkpoint_id)
        carried = sorted(self.references[int(pending.base)])[-2:]
        self.references[number] = frozenset([run, metadata, *carried])
        version = answer.state.version
        self.job.completed(Done(number, str(where.timeline_id), int(pending.base), pending.trigger_time_ms, version))
        if where.timeline_id != self.job.live:
            self.never_committed.add(number)
        return True

    @rule(session=SCHEDULE, rebind=st.booleans())
    def begin(self, session: str, rebind: bool) -> None:
        """An epoch begins, and may be taken over by another try of its session."""
        if self.trigger(session, self.job.live) is not None and rebind:
            answer = self.ask(lambda: self.log.rebind(session))
            self.tokens.append(answer.token)
            self.tries.append((session, self.log.pending))

    @rule(session=SCHEDULE, down=st.sampled_from([0, 0, 0, 1, 2]), policy=st.none() | POLICIES)
    def an_epoch(self, session: str, down: int, policy: tuple[int, int, int] | None) -> None:
        """A whole one, published to the sinks that are up, and what is old subsumed."""
        pending = self.trigger(session, self.job.live)
        if pending is not None and self.complete(session, pending):
            for number in sorted(self.job.owed):
                for sink in SINKS[down:]:
                    self.commit(number, sink)
        if policy is not None:
            self.subsume(policy)

    @precondition(lambda self: self.tries)
    @rule(pick=PICK)
    def a_try_ends(self, pick: int) -> None:
        """On time, late, or long after it was fenced."""
        self.complete(*self.tries[-1 - pick % len(self.tries)])

    @precondition(lambda self: self.tries)
    @rule(pick=PICK, tolerable=st.integers(0, 1))
    def a_try_fails(self, pick: int, tolerable: int) -> None:
        session, pending = self.tries[-1 - pick % len(self.tries)]
        before = self.log.state
        answer = self.ask(
            lambda: self.log.abort(
                session,
                int(pending.checkpoint_id),
                CheckpointFailureReason.BAD_RECORD,
                tolerable=tolerable,
                token=int(pending.token),
            ),
            Fenced,
        )
        if isinstance(answer, Transition) and answer.event.timeline != self.job.live:  # type: ignore[union-attr]
            assert (self.log.state.status, self.log.state.failures) == (before.status, before.failures)

    # The sinks.

    def commit(self, number: int, sink: str, *, confirm: bool = True) -> None:
        """Commit and perhaps confirm; whether the table takes it is decided by what it carries alone."""
        done = self.job.done[number]
        if self.job.tables[sink].move(done.version, number, follows=done.parent) and confirm:
            answer = self.ask(lambda: self.log.confirm(PERSON, number, sink))
            due = sink in self.job.owed.get(number, ())
            assert isinstance(answer, Transition) == due
            if due:
                self.job.owed[number].discard(sink)
                if not self.job.owed[number]:
                    del self.job.owed[number]

    @precondition(lambda self: self.job.done)
    @rule(pick=PICK, sink=st.sampled_from(SINKS), confirm=st.booleans())
    def a_commit_lands_or_not(self, pick: int, sink: str, confirm: bool) -> None:
        """Of any checkpoint of any timeline that was ever live, at any time: a stalled one among them."""
        numbers = sorted(self.job.done.keys() - self.never_committed)
        if numbers:
            self.commit(numbers[-1 - pick % len(numbers)], sink, confirm=confirm)

    @precondition(lambda self: self.switches)
    @rule(pick=PICK, sink=st.sampled_from(SINKS))
    def a_sink_follows(self, pick: int, sink: str) -> None:
        """The newest decision, or an older one: by a process that has slept."""
        self.follow(self.switches[-1 - pick % len(self.switches)], sink)

    def follow(self, switch: Switch, sink: str) -> None:
        table = self.job.tables[sink]
        if table.move(switch.decision, switch.to, realigns=sink in switch.realigned):
            answer = self.ask(lambda: self.log.reconcile(PERSON, sink, switch.decision))
            newest = self.job.following is not None and switch.decision == self.job.following.decision
            due = newest and sink in self.job.must_follow
            assert isinstance(answer, Transition) == due
            if due:
                self.job.must_follow.discard(sink)
                assert self.job.following is not None
                self.job.following = replace(self.job.following, realigned=self.job.following.realigned - {sink})

    @rule(sink=st.sampled_from(SINKS))
    def somebody_else_moves_a_table(self, sink: str) -> None:
        """A restore, a failover, a manual change: it is no longer known what the table shows."""
        self.job.tables[sink].shows = None

    @rule(sink=st.sampled_from(SINKS), settle=st.booleans())
    def realign(self, sink: str, settle: bool) -> None:
        """Also while it has yet to follow an earlier decision, and whatever the status of the job."""
        before = self.log.state
        head, busy = self.job.heads[self.job.live], self.busy(self.job.live)
        stale = self.ask(lambda: self.log.realign(PERSON, sink, head + 1), Busy, CommitConflict)
        assert isinstance(stale, CheckpointError)
        answer = self.ask(lambda: self.log.realign(PERSON, sink), Busy)
        assert isinstance(answer, Busy) == busy
        if busy:
            return
        after = answer.state
        assert (after.status, after.timelines, after.results) == (before.status, before.timelines, before.results)
        told = self.job.following.realigned if self.job.following is not None and self.job.must_follow else frozenset()
        switch = Switch(after.version, self.job.live, head, told | {sink})
        self.job.realigned(switch, sink)
        self.switches.append(switch)
        if settle:
            self.follow(switch, sink)

    # What people do.

    @precondition(lambda self: self.job.done)
    @rule(pick=PICK, settle=st.booleans())
    def roll_back(self, pick: int, settle: bool) -> None:
        """To anything that was ever completed on any timeline, or to the empty state."""
        targets = [0, *sorted(self.job.done)]
        self.go_back(targets[-1 - pick % len(targets)], settle=settle)

    @precondition(lambda self: len(self.job.forks) < 3)
    @rule(die=st.booleans(), settle=st.booleans())
    def restore(self, die: bool, settle: bool) -> None:
        """A copy from elsewhere is completed on a fork at 0, and rolled back to; in an ended job too."""
        fork = self.opened(0)
        pending = self.trigger(PERSON, fork, imports=True)
        if pending is not None and not die:
            assert self.complete(PERSON, pending)
            self.go_back(int(pending.checkpoint_id), settle=settle)

    def go_back(self, to: int, *, settle: bool) -> None:
        state, head = self.log.state, self.job.heads[self.job.live]
        pending = state.timeline().pending
        owner = self.job.done[to].timeline if to else self.job.live
        answer = self.ask(lambda: self.log.rollback(PERSON, to, sinks=SINKS), Busy, NotFound, JobNotRunnable)
        if pending is None and to == head:
            assert isinstance(answer, AlreadyDone)
        elif to and to not in self.job.retained:
            assert isinstance(answer, NotFound)
        elif state.status is JobStatus.CANCELED and not self.clean:
            assert isinstance(answer, JobNotRunnable)
        elif pending is not None or (owner in self.job.forks and self.busy(owner)):
            assert isinstance(answer, Busy)
        else:
            self.switched(answer, to, [owner] if owner in self.job.forks else [], settle=settle)

    def switched(self, answer: Any, to: int, left: list[str], *, settle: bool) -> None:
        assert isinstance(answer, Transition) and isinstance(answer.event, TimelineSwitched)
        event = answer.event
        before = set(self.job.lineage(self.job.heads[self.job.live])) & self.job.retained
        assert set(event.discarded) == before - set(self.job.lineage(to))
        assert (event.from_timeline, event.to) == (self.job.live, to)
        told = self.job.following.realigned if self.job.following is not None and self.job.must_follow else frozenset()
        switch = Switch(answer.state.version, str(event.timeline), to, told)
        self.job.switched(switch, left)
        self.switches.append(switch)
        self.frozen = None
        assert answer.state.status is not JobStatus.FAILED
        for sink in SINKS if settle else ():
            self.follow(switch, sink)

    def busy(self, timeline: str) -> bool:
        return self.log.state.timeline(timeline).pending is not None  # type: ignore[arg-type]

    @property
    def clean(self) -> bool:
        return all(result.clean_up.value == "clean" for result in self.log.state.results)

    @precondition(lambda self: len(self.job.forks) < 3)
    @rule(pick=PICK, epochs=st.integers(0, 3))
    def fork_and_replay(self, pick: int, epochs: int) -> None:
        starts = [0, *sorted(self.job.retained)]
        fork = self.opened(starts[-1 - pick % len(starts)])
        for _ in range(epochs):
            self.replay(fork)

    def opened(self, at: int) -> str:
        fork = str(self.log.fork(REPLAY, at))
        self.job.forks.add(fork)
        self.job.heads[fork] = self.job.forked_at[fork] = at
        return fork

    def replay(self, fork: str) -> None:
        pending = self.trigger(REPLAY, fork)
        if pending is not None:
            assert self.complete(REPLAY, pending), "what runs on a fork is stopped by nobody"

    @precondition(lambda self: self.job.forks)
    @rule(pick=PICK, die=st.booleans())
    def an_epoch_of_a_replay(self, pick: int, die: bool) -> None:
        fork = sorted(self.job.forks)[pick % len(self.job.forks)]
        if die:
            self.trigger(REPLAY, fork)
        else:
            self.replay(fork)

    @precondition(lambda self: self.job.forks)
    @rule(pick=PICK, settle=st.booleans())
    def fast_forward(self, pick: int, settle: bool) -> None:
        fork = sorted(self.job.forks)[pick % len(self.job.forks)]
        main, tip = self.job.heads[self.job.live], self.job.heads[fork]
        stale = self.ask(
            lambda: self.log.fast_forward(REPLAY, fork, main + 1, tip), Busy, JobNotRunnable, CommitConflict
        )
        assert isinstance(stale, CheckpointError)
        runs = self.log.state.status in (JobStatus.RUNNING, JobStatus.FAILED)
        idle = not (self.busy(fork) or self.busy(self.job.live)) and runs
        answer = self.ask(lambda: self.log.fast_forward(REPLAY, fork, main, tip, sinks=SINKS), Busy, JobNotRunnable)
        if not idle:
            assert isinstance(answer, CheckpointError)
            return
        self.switched(answer, tip, [], settle=settle)
        again = self.ask(lambda: self.log.fast_forward(REPLAY, fork, main, tip, sinks=SINKS))
        assert again.outcome is Outcome.ALREADY_LIVE

    @precondition(lambda self: self.job.forks)
    @rule(pick=PICK)
    def dispose(self, pick: int) -> None:
        fork = sorted(self.job.forks)[pick % len(self.job.forks)]
        assert isinstance(self.ask(lambda: self.log.dispose_fork(PERSON, fork)), Transition)
        self.job.forks.discard(fork)
        assert self.trigger(REPLAY, fork) is None

    @rule(session=st.sampled_from(["cli:a", REPLAY]), hold_ms=st.sampled_from([1_000, HOUR_MS]), thaw=st.booleans())
    def freeze_or_thaw(self, session: str, hold_ms: int, thaw: bool) -> None:
        mine = self.frozen is not None and self.frozen[0] == session
        held = self.frozen is not None and self.log.now_ms < self.frozen[1]
        if thaw:
            self.ask(lambda: self.log.thaw(session))
            self.frozen = None if mine else self.frozen
        else:
            answer = self.ask(lambda: self.log.freeze(session, hold_ms), Busy)
            assert isinstance(answer, Busy) == (held and not mine)
            if isinstance(answer, Transition):
                self.frozen = (session, self.log.now_ms + hold_ms)

    @precondition(lambda self: self.job.retained)
    @rule(pick=PICK, name=st.sampled_from(["x", "y"]), what=st.sampled_from(["pin", "unpin", "save", "dispose"]))
    def hold_or_let_go(self, pick: int, name: str, what: str) -> None:
        number = sorted(self.job.retained)[pick % len(self.job.retained)]
        if what == "pin":
            self.log.pin(PERSON, number, name, hold_ms=1_000 * HOUR_MS)
        elif what == "unpin":
            self.log.unpin(PERSON, name)
        elif what == "save" and all(one.name != name for one in self.log.state.savepoints):
            self.log.record_savepoint(PERSON, number, name)
        elif what == "dispose":
            self.log.dispose_savepoint(PERSON, name)

    @rule(what=st.sampled_from(["cancel", "clean", "start", "resume"]))
    def end_or_begin(self, what: str) -> None:
        if what == "clean" and self.log.state.status is not JobStatus.CANCELED:
            return
        answer = self.ask(lambda: getattr(self.log, what)(PERSON), JobNotRunnable)
        if what == "clean" and not self.clean:
            assert self.job.owed or self.job.must_follow
        if what == "cancel" and isinstance(answer, Transition):
            assert all(one.leader is None and one.pending is None for one in self.log.state.timelines)

    @rule(jump=st.sampled_from(sorted(WAIT)))
    def the_clock_goes_on(self, jump: str) -> None:
        self.log.now_ms = max(0, self.log.now_ms + WAIT[jump])

    # Retention.

    @precondition(lambda self: len(self.job.retained) > 1)
    @rule(policy=POLICIES)
    def subsume(self, policy: tuple[int, int, int]) -> None:
        state = self.log.state
        roots = {int(one.checkpoint_id) for one in (*state.pins, *state.savepoints)}
        lowest = lowest_pending(state)
        kept = self.job.kept(policy, roots, None if lowest is None else int(lowest))
        dropped = [int(one) for one in subsumable(state, RetentionPolicy(*policy))]
        assert dropped == sorted(self.job.retained - kept)
        garbage = unreferenced([self.references[one] for one in kept], [self.references[one] for one in dropped])
        leader = state.timeline().leader
        session = PERSON if leader is None else leader.session_id
        answer = self.ask(lambda: self.log.subsume(session, tuple(dropped), garbage, *policy))
        if isinstance(answer, Transition):
            self.job.retained -= set(dropped)

    @precondition(lambda self: self.log.state.garbage and self.log.state.timeline().leader is not None)
    @rule()
    def collect_garbage(self) -> None:
        self.log.now_ms += GRACE_MS
        leader = self.log.state.timeline().leader
        assert leader is not None
        ready = [one.prefix for one in deletable(self.log.state, leader.session_id, self.log.now_ms, GRACE_MS)]
        self.files = {name for name in self.files if not name.startswith(tuple(ready))} if ready else self.files
        self.ask(lambda: self.log.forget(leader.session_id, tuple(ready), GRACE_MS))

    # What is always true.

    @invariant()
    def every_timeline_is_where_the_model_has_it(self) -> None:
        state = self.log.state
        assert {one.timeline_id for one in state.timelines if one.role is TimelineRole.LIVE} == {self.job.live}
        assert {one.timeline_id for one in state.timelines if one.role is TimelineRole.FORK} == self.job.forks
        for timeline in state.timelines:
            if timeline.role is not TimelineRole.ABANDONED:
                assert timeline.head == self.job.heads[timeline.timeline_id]
                walked = set(self.job.lineage(int(timeline.head))) & self.job.retained
                assert {one.checkpoint_id for one in timeline_ancestry(state, timeline)} == walked
        assert len(state.timelines) <= 1 + len(self.job.forks) + len(self.job.retained)

    @invariant()
    def a_completed_checkpoint_is_lost_by_subsumption_only(self) -> None:
        """I8: and all that a retained one refers to is there, and not listed as garbage."""
        state = self.log.state
        assert {one.checkpoint_id for one in state.checkpoints} == self.job.retained
        listed = tuple(entry.prefix for entry in state.garbage)
        for number in self.job.retained:
            assert self.references[number] <= self.files
            assert not any(key.startswith(listed) for key in self.references[number]) or not listed

    @invariant()
    def every_table_can_go_on_from_what_it_shows_to_the_live_head(self) -> None:
        """I8, I14: both ends of the difference are retained; once it has followed, what is owed is between them."""
        timeline_ancestry = self.job.lineage(self.job.heads[self.job.live])
        for sink, table in self.job.tables.items():
            if table.shows is None:
                continue
            assert table.shows in {0, *self.job.retained}, f"I8: {sink} shows {table.shows}, and it is subsumed"
            if sink not in self.job.must_follow:
                owed = {number for number in self.job.owed if sink in self.job.owed[number]}
                shown = self.job.lineage(table.shows)
                assert [*shown, *sorted(owed.difference(shown))] == timeline_ancestry

    @invariant()
    def the_state_is_what_the_model_owes(self) -> None:
        state = self.log.state
        assert {int(one.checkpoint_id): set(one.unconfirmed) for one in state.unconfirmed()} == self.job.owed
        assert {int(one.checkpoint_id): one.version for one in state.checkpoints} == {
            number: self.job.done[number].version for number in self.job.retained
        }
        due = state.reconciliation
        assert set(() if due is None else due.sinks) == self.job.must_follow
        if due is not None and self.job.following is not None:
            assert set(due.realigned) == self.job.following.realigned
        entry = LogEntry(state.version, "w", self.log.events[-1], state)
        assert decode_entry(encode_entry(entry)) == entry


TestTimelines = Timelines.TestCase
TestTimelines.settings = profiles.examples(share=0.8)
