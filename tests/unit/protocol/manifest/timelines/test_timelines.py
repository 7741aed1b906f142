"""Switches of the live timeline by rollback or fast-forward, which the sinks follow (I3, I5, I8, I14)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import (
    Busy,
    CommitConflict,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    ProtocolViolation,
)
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import RealignmentDecided, SwitchKind, TimelineSwitched
from milepost.protocol.records.ids import CheckpointId, SessionId, session_digest
from milepost.protocol.records.manifest_state import JobStatus, Reconciliation, TimelineRole
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit.jobs.job_log import AIR_1, RUN_1, A, B, JobLog, assert_refused, decided, epochs


def roles(log: JobLog) -> dict[str, str]:
    return {str(timeline.timeline_id): timeline.role.value for timeline in log.state.timelines}


def outcome(answer: object) -> Outcome:
    assert isinstance(answer, AlreadyDone)
    return answer.outcome


def test_a_rollback_starts_a_new_live_timeline_and_destroys_nothing() -> None:
    log = epochs(4)
    before = log.state
    answer = log.rollback(B, 2, sinks=("lake", "early"))
    assert isinstance(answer, Transition)
    assert answer.event == TimelineSwitched(
        log.now_ms, SwitchKind.ROLLBACK, before.live, before.timeline().head, log.state.live, log.state.timeline().head,
        tuple(one.checkpoint_id for one in before.checkpoints[2:]), ("early", "lake"),  # type: ignore[arg-type]
        "ann (command line): a wrong rule", B, decided("a wrong rule"),  # type: ignore[arg-type]
    )  # fmt: skip
    live = log.state.timeline()
    assert (live.timeline_id, live.parent, live.head) == (f"t{log.state.version}", ("main", 2), 2)
    assert (live.leader, live.pending, live.frozen) == (None, None, None)
    assert roles(log) == {"main": "abandoned", live.timeline_id: "live"}
    assert log.state.timeline(before.live).leader is None, "its leader leads nothing any more"
    assert [one.checkpoint_id for one in log.state.checkpoints] == [1, 2, 3, 4]
    assert log.state.reconciliation == Reconciliation(log.state.version, live.timeline_id, live.head, ("early", "lake"))
    assert answer.event.kind == "rollback"


def test_ids_rise_over_a_rollback_while_epochs_count_from_the_checkpoint_it_went_back_to() -> None:
    """I5: checkpoint ids are never reused, across timelines."""
    log = epochs(4)
    log.rollback(B, 2)
    log.reconcile(B)
    log.epoch(B)
    newest = log.state.checkpoints[-1]
    assert (newest.checkpoint_id, newest.epoch, newest.parent, newest.timeline) == (5, 3, 2, log.state.live)


def test_a_rollback_can_be_rolled_back() -> None:
    """The old timeline is still there, until retention takes it."""
    log = epochs(4)
    log.rollback(B, 2)
    log.reconcile(B)
    first = log.state.live
    log.epoch(B)
    answer = log.rollback(B, 4)
    assert isinstance(answer, Transition) and isinstance(answer.event, TimelineSwitched)
    assert answer.event.discarded == (5,)
    assert roles(log) == {"main": "abandoned", first: "abandoned", log.state.live: "live"}
    log.reconcile(B)
    assert log.epoch(B) == 6
    assert log.state.checkpoints[-1].parent == 4


def test_an_abandoned_timeline_without_checkpoints_of_its_own_is_dropped() -> None:
    log = epochs(4)
    log.rollback(B, 3)
    between = log.state.live
    log.rollback(B, 2)
    assert between not in roles(log)
    assert log.state.timeline().parent == ("main", 2)


def test_a_rollback_to_the_empty_state_keeps_nothing_of_the_lineage() -> None:
    log = epochs(2)
    answer = log.rollback(B, 0)
    assert isinstance(answer, Transition) and isinstance(answer.event, TimelineSwitched)
    assert (answer.event.to, answer.event.discarded) == (0, (1, 2))
    assert log.state.head() is None
    log.reconcile(B)
    log.epoch(B)
    assert (log.state.checkpoints[-1].epoch, log.state.checkpoints[-1].parent) == (1, 0)
    log.rollback(B, 0)
    assert log.state.timeline().parent is not None
    log.rollback(B, 2)
    assert roles(log)["main"] == "abandoned"


def test_a_rollback_replaces_the_commits_that_the_old_timeline_still_owed() -> None:
    """I14: a commit of an older checkpoint may come before the sink follows; after it, none is due."""
    log = epochs(3, confirm=False)
    log.rollback(B, 1)
    assert log.state.unconfirmed() == ()
    assert outcome(log.confirm(A, 3)) is Outcome.ALREADY_CONFIRMED


def test_a_rollback_to_the_current_head_does_nothing() -> None:
    """A retried request finds its own result, and does not ask whether the head was another one before it."""
    log = epochs(3)
    log.rollback(B, 1)
    assert outcome(log.rollback(B, 1, expected_head=3)) is Outcome.ALREADY_THERE
    assert outcome(JobLog().rollback(B, 0)) is Outcome.ALREADY_THERE


def test_a_rollback_under_a_pending_checkpoint_is_busy() -> None:
    log = epochs(2)
    log.trigger(A)
    for to in (1, 2):
        error = assert_refused(log, Busy, lambda to=to: log.rollback(B, to))
        assert f"milepost abort {log.state.job}" in error.hint and "--take-over" in error.hint


def test_a_rollback_of_a_head_that_has_moved_is_a_conflict() -> None:
    log = epochs(3)
    assert_refused(log, CommitConflict, lambda: log.rollback(B, 1, expected_head=2))


@pytest.mark.parametrize("to", [1, 9])
def test_a_rollback_to_a_checkpoint_that_is_not_retained_is_not_found(to: int) -> None:
    log = epochs(3)
    log.subsume(A, (1,), last=2)
    assert_refused(log, NotFound, lambda: log.rollback(B, to))


def test_a_sink_named_twice_is_refused() -> None:
    log = epochs(2)
    assert_refused(log, InvalidRequest, lambda: log.rollback(B, 1, sinks=("a", "a")))
    assert_refused(log, InvalidRequest, lambda: log.fast_forward(B, "main", sinks=("a", "a")))


def test_a_job_that_failed_runs_again_after_a_rollback() -> None:
    """A person has decided."""
    log = epochs(2)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.BAD_RECORD)
    assert log.state.status is JobStatus.FAILED
    log.rollback(B, 1)
    assert log.state.status is JobStatus.RUNNING
    assert (log.state.failures.consecutive, log.state.failures.last_reason) == (0, None)
    log.reconcile(B)
    assert log.epoch(B) == 4


def test_failures_in_a_row_are_still_counted_after_a_rollback_of_a_job_that_runs() -> None:
    log = epochs(2)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.BAD_RECORD, tolerable=1)
    log.rollback(B, 1)
    assert log.state.failures.consecutive == 1


def test_a_job_that_has_ended_stays_so_until_it_is_started() -> None:
    log = epochs(3)
    log.cancel(A)
    error = assert_refused(log, JobNotRunnable, lambda: log.rollback(B, 1))
    assert "milepost cancel" in error.hint
    log.clean(A)
    log.rollback(B, 1)
    assert log.state.status is JobStatus.CANCELED
    log.start(B)
    log.reconcile(B)
    assert log.epoch(B) == 4
    assert log.state.checkpoints[-1].parent == 1


def test_nothing_is_triggered_before_every_sink_has_followed() -> None:
    log = epochs(3)
    log.rollback(B, 1, sinks=("a", "b"))
    error = assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    assert error.details["decision"] == log.state.version
    log.reconcile(A, "a")
    assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    log.reconcile(B, "b")
    assert log.state.reconciliation is None
    assert isinstance(log.trigger(A), Transition)


def test_without_sinks_nothing_has_to_follow() -> None:
    log = epochs(2)
    log.rollback(B, 1, sinks=())
    assert log.state.reconciliation is None
    assert isinstance(log.trigger(A), Transition)


def test_following_a_switch_is_a_fact_recorded_once_from_any_session() -> None:
    """I11: accepted from any session, monotone; an older switch no longer requires anything."""
    log = epochs(3)
    log.rollback(B, 2, sinks=("a", "b"))
    old = log.state.version
    log.reconcile("cli:anybody", "a")
    assert outcome(log.reconcile(A, "a")) is Outcome.ALREADY_RECONCILED
    log.rollback(B, 1, sinks=("a", "b"))
    assert log.state.reconciliation is not None and log.state.reconciliation.sinks == ("a", "b")
    assert outcome(log.reconcile(A, "b", decision=old)) is Outcome.ALREADY_RECONCILED
    assert log.state.reconciliation.sinks == ("a", "b")
    log.reconcile(A, "b")
    log.reconcile(A, "a")
    assert outcome(log.reconcile(A, "a", decision=old)) is Outcome.ALREADY_RECONCILED


@pytest.mark.parametrize("decision", [0, -1, 99])
def test_a_switch_that_never_was_cannot_be_followed(decision: int) -> None:
    log = epochs(2)
    assert_refused(log, ProtocolViolation, lambda: log.reconcile(A, decision=decision))
    log.rollback(B, 1)
    log.pin(B, 1)
    assert_refused(log, ProtocolViolation, lambda: log.reconcile(A, decision=log.state.version))


def test_each_move_of_a_table_has_a_number_above_all_before_it() -> None:
    """I14: the version of the completion or of the switch, over all timelines: a late commit finds a higher one."""
    log = epochs(2)
    fork = log.fork(B, 1)
    log.epoch_on(B, fork)
    log.epoch(A)
    log.trigger(A)
    log.complete(A)
    assert log.state.checkpoints[-1].version == log.state.version
    completed = [one.version for one in log.state.checkpoints]
    assert completed == sorted(set(completed))
    log.fast_forward(B, fork)
    assert log.state.reconciliation is not None
    forward = log.state.reconciliation.decision
    log.reconcile(B)
    log.epoch(A)
    log.rollback(A, 4)
    assert completed[-1] < forward < log.state.checkpoints[-1].version < log.state.reconciliation.decision


def test_an_externally_moved_table_follows_the_live_head_under_its_own_decision() -> None:
    """I14: head, timelines and leader stay the same; only that table moves, whatever it shows."""
    log = epochs(3)
    before = log.state
    answer = log.realign(B, "lake")
    assert isinstance(answer, Transition)
    assert answer.event == RealignmentDecided(
        log.now_ms, "lake", CheckpointId(3), "ann (command line): a restore", SessionId(B), decided("a restore")
    )
    version = before.version + 1
    due = Reconciliation(version, before.live, CheckpointId(3), ("lake",), ("lake",))
    assert log.state == replace(before, version=version, reconciliation=due)
    log.reconcile(B, "lake")
    assert log.state.reconciliation is None
    assert log.epoch(A) == 4


def test_nothing_is_triggered_on_the_live_timeline_before_the_table_is_realigned() -> None:
    """I14: an epoch adds to what the table shows, which is unknown here; a fork does not read the table."""
    log = epochs(2)
    fork = log.fork(B, 1)
    log.realign(B)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    assert_refused(log, JobNotRunnable, lambda: log.finish(A))
    assert log.epoch_on(B, fork) == 3
    log.reconcile(B)
    assert isinstance(log.trigger(A), Transition)


def test_commits_of_a_realigned_sink_are_void_and_those_of_others_stay_due() -> None:
    """I14: the contents of the head have all of it; the other tables have not been touched."""
    log = JobLog()
    for _ in range(3):
        log.trigger(A)
        log.complete(A, sinks=("lake", "other"))
    log.confirm(A, 1, "other")
    log.realign(B, "lake")
    assert [one.unconfirmed for one in log.state.checkpoints] == [(), ("other",), ("other",)]
    assert outcome(log.confirm(A, 3, "lake")) is Outcome.ALREADY_CONFIRMED
    assert isinstance(log.confirm(A, 2, "other"), Transition), "a fact, also while another sink has yet to follow"
    log.reconcile(B, "lake")
    assert isinstance(log.trigger(A), Transition)
    assert [one.unconfirmed for one in log.state.unconfirmed()] == [("other",)]


def test_a_realignment_waits_only_for_a_pending_epoch() -> None:
    """The epoch would add to contents that its table is about to leave; forks and freezes are of no table."""
    log = epochs(2)
    log.trigger(A)
    assert_refused(log, Busy, lambda: log.realign(B))
    log.abort(A)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    log.freeze(A)
    assert isinstance(log.realign(B), Transition)
    assert log.state.timeline().frozen is not None
    assert log.state.timeline(fork).pending is not None


def test_a_realignment_decided_from_another_head_is_a_conflict() -> None:
    log = epochs(2)
    assert_refused(log, CommitConflict, lambda: log.realign(B, expected_head=1))


def test_a_table_is_realigned_to_the_empty_state_before_the_first_epoch() -> None:
    log = JobLog()
    log.realign(B)
    assert log.state.reconciliation is not None and log.state.reconciliation.checkpoint_id == 0
    log.reconcile(B)
    assert log.epoch(A) == 1


def test_a_table_that_keeps_its_sink_from_following_a_switch_is_realigned() -> None:
    """I14: else neither could be carried out. The others follow the newer decision, to the same checkpoint."""
    log = epochs(3)
    log.rollback(B, 1, sinks=("a", "b", "c"))
    old = log.state.version
    log.reconcile(B, "c")
    log.realign(B, "b")
    due = Reconciliation(log.state.version, log.state.live, CheckpointId(1), ("a", "b"), ("b",))
    assert log.state.reconciliation == due
    assert outcome(log.reconcile(A, "a", decision=old)) is Outcome.ALREADY_RECONCILED, (
        "it follows again, and moves no row"
    )
    log.realign(B, "d")
    log.reconcile(B, "b")
    assert log.state.reconciliation is not None
    assert (log.state.reconciliation.sinks, log.state.reconciliation.realigned) == (("a", "d"), ("d",))


def test_an_unfinished_realignment_survives_a_switch() -> None:
    """A person has decided that the job's state counts; a switch determines that state."""
    log = epochs(3)
    log.realign(B, "a")
    log.realign(B, "gone")
    log.rollback(A, 2, sinks=("b", "a"))
    assert log.state.reconciliation == Reconciliation(
        log.state.version, log.state.live, CheckpointId(2), ("a", "b"), ("a",)
    )


def test_a_table_is_realigned_whatever_the_status_of_the_job() -> None:
    """I4: nothing of the job changes. The clean-up of an end may wait for just that."""
    failed = epochs(2)
    failed.trigger(A)
    failed.abort(A, reason=CheckpointFailureReason.BAD_RECORD)
    failed.realign(B)
    assert failed.state.status is JobStatus.FAILED
    ended = epochs(2, confirm=False)
    ended.cancel(A)
    assert_refused(ended, JobNotRunnable, lambda: ended.clean(A))
    ended.realign(B)
    assert_refused(ended, JobNotRunnable, lambda: ended.clean(A))
    ended.reconcile(B)
    assert isinstance(ended.clean(A), Transition)
    ended.realign(B)
    assert (ended.state.status, ended.state.timeline().leader) == (JobStatus.CANCELED, None)
    ended.start(B)
    assert_refused(ended, JobNotRunnable, lambda: ended.trigger(B))


def test_neither_end_nor_clean_up_before_every_sink_has_followed() -> None:
    log = epochs(2)
    log.rollback(B, 1)
    assert_refused(log, JobNotRunnable, lambda: log.finish(B))
    log.cancel(B)
    assert_refused(log, JobNotRunnable, lambda: log.clean(B))
    log.reconcile(B)
    assert isinstance(log.clean(B), Transition)


def test_a_session_of_an_abandoned_timeline_neither_triggers_nor_subsumes_nor_deletes() -> None:
    """I3: it leads nothing, its plan was made from another head, and its checkpoint is not pending."""
    log = epochs(3)
    stale = log.trigger_request(A)
    log.rollback(B, 1)
    log.reconcile(B)
    assert_refused(log, CommitConflict, lambda: log.trigger(A, base=stale.base))
    assert outcome(log.subsume(A, (2,))) is Outcome.NOT_LEADER
    assert_refused(log, Fenced, lambda: log.trigger(A, timeline="main"))
    assert_refused(log, Fenced, lambda: log.trigger(A, timeline="t99"))


def test_a_run_whose_epoch_was_rolled_back_stays_covered() -> None:
    """The next run reads its input again; a cleared run has no work of its own."""
    log = epochs(1)
    log.epoch(AIR_1, RUN_1)
    log.rollback(B, 1)
    log.reconcile(B)
    assert outcome(log.trigger(AIR_1, RUN_1)) is Outcome.COVERED


def test_a_fork_runs_alongside_the_schedule() -> None:
    """It publishes nothing and moves none of the job's counters."""
    log = epochs(3)
    fork = log.fork(B, 1)
    log.trigger(A)
    before = log.state
    assert log.epoch_on(B, fork) == 5
    done = log.state.checkpoints[-1]
    assert (done.timeline, done.parent, done.epoch) == (fork, 1, 2)
    assert (done.sinks, done.unconfirmed) == (("lake",), ())
    assert log.state.failures == before.failures
    assert log.state.timeline() == before.timeline()
    log.complete(A)
    assert [one.checkpoint_id for one in log.state.checkpoints] == [1, 2, 3, 4, 5]
    assert log.epoch_on(B, fork) == 6
    assert log.state.checkpoints[-1].parent == 5


def test_what_stops_the_schedule_does_not_stop_a_fork() -> None:
    """No covered run, no freeze, no sink that waits or has yet to follow, no pause, no FAILED job."""
    log = epochs(4, confirm=False)
    fork = log.fork(B, 1)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    log.epoch_on(B, fork)
    log.rollback(A, 2)
    log.epoch_on(B, fork)
    log.reconcile(A)
    log.freeze(A)
    log.epoch_on(B, fork)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.BAD_RECORD)
    assert log.state.status is JobStatus.FAILED
    log.trigger(B, timeline=fork, min_pause_ms=99_999)
    log.rebind_on(B, fork)
    log.complete(B, log.pending_on(fork))
    log.trigger(B, timeline=fork)
    log.abort(B, int(log.pending_on(fork).checkpoint_id), CheckpointFailureReason.BAD_RECORD)
    assert log.state.status is JobStatus.FAILED


def test_a_failure_on_a_fork_is_not_a_failure_of_the_job() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    failures = log.state.failures
    answer = log.abort(B, 3, CheckpointFailureReason.BAD_RECORD, detail="a bad row")
    assert isinstance(answer, Transition)
    event = answer.event
    assert (event.counted, event.tolerated, event.detail) == (False, True, "a bad row")  # type: ignore[union-attr]
    assert (log.state.status, log.state.failures) == (JobStatus.RUNNING, failures)
    log.trigger(AIR_1, RUN_1, timeline=fork)
    log.abort(AIR_1, 4)
    assert isinstance(log.trigger(AIR_1, RUN_1, timeline=fork), Transition), "a replay is many epochs of one run"


def test_an_ended_job_runs_no_epoch_on_a_fork() -> None:
    """I4."""
    log = epochs(2)
    fork = log.fork(B, 1)
    log.cancel(A)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B, timeline=fork))


def test_an_import_into_an_ended_job_can_be_aborted() -> None:
    """The session that copied it may have died; a sweep must not wait for the next incarnation."""
    log = epochs(2)
    log.cancel(A)
    log.clean(A)
    fork = log.fork(B, 0)
    log.trigger(B, timeline=fork, imports=True)
    pending = log.pending_on(fork)
    swept = log.abort(A, int(pending.checkpoint_id), token=int(pending.token), swept=True)
    assert isinstance(swept, Transition)
    assert log.state.status is JobStatus.CANCELED
    assert log.state.timeline(fork).pending is None


def test_a_fork_takes_one_session_at_a_time() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    error = assert_refused(log, Busy, lambda: log.trigger(A, timeline=fork))
    assert "--take-over" not in error.hint, "it is for the live timeline"
    assert outcome(log.trigger(B, timeline=fork)) is Outcome.ALREADY_TRIGGERED


def test_a_fork_starts_at_a_retained_checkpoint_or_at_the_empty_state() -> None:
    log = epochs(2)
    assert_refused(log, NotFound, lambda: log.fork(B, 3))
    fork = log.fork(B, 0)
    log.epoch_on(B, fork)
    assert (log.state.checkpoints[-1].epoch, log.state.checkpoints[-1].parent) == (1, 0)


def test_only_so_many_forks_are_open() -> None:
    log = epochs(1)
    forks = [log.fork(B, 1) for _ in range(8)]
    assert_refused(log, InvalidRequest, lambda: log.fork(B, 1))
    log.dispose_fork(B, forks[0])
    log.fork(B, 1)


def test_a_rollback_to_a_checkpoint_of_a_fork_abandons_the_fork() -> None:
    """How a restored savepoint, or a state built from a table, becomes the job's: fork at 0, complete, roll back."""
    log = epochs(2)
    fork = log.fork(B, 0)
    restored = log.epoch_on(B, fork)
    log.trigger(B, timeline=fork)
    assert_refused(log, Busy, lambda: log.rollback(B, restored))
    log.abort(B, restored + 1)
    answer = log.rollback(B, restored)
    assert isinstance(answer, Transition) and isinstance(answer.event, TimelineSwitched)
    assert answer.event.discarded == (1, 2)
    assert roles(log) == {"main": "abandoned", fork: "abandoned", log.state.live: "live"}
    assert log.state.timeline().parent == (fork, restored)


def test_a_fast_forward_puts_the_fork_in_the_place_of_the_live_timeline() -> None:
    log = epochs(3, confirm=False)
    fork = log.fork(B, 1)
    tip = log.epoch_on(B, fork)
    log.trigger(A)
    log.abort(A)
    answer = log.fast_forward(B, fork)
    assert isinstance(answer, Transition) and isinstance(answer.event, TimelineSwitched)
    assert (answer.event.kind, answer.event.from_head, answer.event.to) == ("fast_forward", 3, tip)
    assert answer.event.discarded == (2, 3)
    assert roles(log) == {"main": "abandoned", fork: "live"}
    assert log.state.timeline().leader is None
    assert log.state.unconfirmed() == ()
    assert log.state.reconciliation == Reconciliation(log.state.version, fork, log.state.timeline().head, ("lake",))
    assert outcome(log.fast_forward(B, fork, 1, 1)) is Outcome.ALREADY_LIVE
    log.reconcile(B)
    assert log.epoch(A) == tip + 2


def test_a_fast_forward_is_refused_while_either_timeline_moves() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    tip = log.epoch_on(B, fork)
    assert_refused(log, CommitConflict, lambda: log.fast_forward(B, fork, 1, tip))
    assert_refused(log, CommitConflict, lambda: log.fast_forward(B, fork, 2, 1))
    log.trigger(B, timeline=fork)
    assert_refused(log, Busy, lambda: log.fast_forward(B, fork, 2, tip))
    log.abort(B, tip + 1)
    log.trigger(A)
    assert_refused(log, Busy, lambda: log.fast_forward(B, fork, 2, tip))


def test_a_fork_that_is_not_open_cannot_be_put_forward() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    log.epoch_on(B, fork)
    log.dispose_fork(A, fork)
    assert_refused(log, Fenced, lambda: log.fast_forward(B, fork))
    assert_refused(log, Fenced, lambda: log.trigger(B, timeline=fork))
    log.cancel(A)
    log.fork(B, 1)
    assert_refused(log, JobNotRunnable, lambda: log.fast_forward(B, log.state.timelines[-1].timeline_id))


def test_an_ended_job_stays_at_the_checkpoint_it_ended_at_whatever_a_fork_has_replayed() -> None:
    """Its tables, and a savepoint of its end, would be of another timeline than the job that `start` opens."""
    log = epochs(2)
    fork = log.fork(B, 1)
    tip = log.epoch_on(B, fork)
    log.cancel(A)
    log.clean(A)
    assert_refused(log, JobNotRunnable, lambda: log.fast_forward(B, fork, 2, tip))
    log.start(A)
    assert isinstance(log.fast_forward(B, fork, 2, tip), Transition)


def test_disposing_of_a_fork_aborts_its_checkpoint_and_fences_its_session() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    kept = log.epoch_on(B, fork)
    log.trigger(B, timeline=fork)
    pending = log.pending_on(fork)
    answer = log.dispose_fork(A, fork)
    assert isinstance(answer, Transition)
    assert roles(log) == {"main": "live", fork: "abandoned"}
    assert_refused(log, Fenced, lambda: log.complete(B, pending))
    assert (session_digest(B), pending.checkpoint_id) in log.state.aborted_sessions
    assert any(str(pending.checkpoint_id) in entry.prefix for entry in log.state.garbage)
    assert log.state.checkpoint(kept) is not None, "until retention takes it"  # type: ignore[arg-type]
    assert outcome(log.dispose_fork(A, fork)) is Outcome.NOT_OPEN
    assert outcome(log.dispose_fork(A, "t99")) is Outcome.NOT_OPEN
    assert_refused(log, InvalidRequest, lambda: log.dispose_fork(A, "main"))


def test_a_fork_without_a_checkpoint_leaves_the_list_when_it_is_disposed_of() -> None:
    log = epochs(1)
    fork = log.fork(B, 1)
    log.dispose_fork(B, fork)
    assert roles(log) == {"main": "live"}


def test_only_one_session_may_trigger_on_a_frozen_timeline() -> None:
    log = epochs(2)
    log.freeze(B, 10_000)
    error = assert_refused(log, Busy, lambda: log.trigger(A))
    assert error.details["wait_ms"] == 10_000
    assert isinstance(log.trigger(B), Transition)
    log.abort(B)
    log.now_ms += 9_999
    assert_refused(log, Busy, lambda: log.trigger(A))
    log.now_ms += 1
    assert isinstance(log.trigger(A), Transition)
    assert log.state.timeline().frozen is None, "what is over is forgotten"


def test_a_checkpoint_that_is_pending_when_the_timeline_is_frozen_continues() -> None:
    log = epochs(1)
    log.trigger(A)
    log.freeze(B)
    log.rebind(A)
    assert isinstance(log.complete(A), Transition)


def test_a_freeze_is_renewed_by_its_own_session_only() -> None:
    log = epochs(1)
    log.freeze(A, 1_000)
    assert_refused(log, Busy, lambda: log.freeze(B))
    log.now_ms += 500
    log.freeze(A, 1_000)
    log.now_ms += 1_000
    log.freeze(B)
    assert outcome(log.thaw(A)) is Outcome.NOT_FROZEN
    log.thaw(B)
    assert log.state.timeline().frozen is None
    assert outcome(log.thaw(B)) is Outcome.NOT_FROZEN
    assert isinstance(log.trigger(A), Transition)


@pytest.mark.parametrize("hold_ms", [0, -1])
def test_a_freeze_without_a_time_is_refused(hold_ms: int) -> None:
    log = JobLog()
    assert_refused(log, InvalidRequest, lambda: log.freeze(A, hold_ms))


def test_a_switch_ends_the_freeze() -> None:
    log = epochs(2)
    log.freeze(B)
    log.rollback(A, 1, sinks=())
    assert all(timeline.frozen is None for timeline in log.state.timelines)
    assert isinstance(log.trigger(A), Transition)


def test_a_cancel_leaves_forks_open_without_a_session() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    log.epoch_on(B, fork)
    log.trigger(B, timeline=fork)
    log.cancel(A)
    left = log.state.timeline(fork)
    assert (left.role, left.leader, left.pending) == (TimelineRole.FORK, None, None)
    log.clean(A)
    log.start(A)
    assert isinstance(log.trigger(B, timeline=fork), Transition)


def test_no_record_of_a_timeline_is_shared_between_states() -> None:
    """A refused or lost transition leaves the head as it was."""
    log = epochs(2)
    before = replace(log.state)
    log.rollback(B, 1)
    assert before.timeline().role is TimelineRole.LIVE
