"""The commit point and aborts: exactly one of the two wins (I7, I9)."""

from __future__ import annotations

import pytest

from milepost.errors import (
    CommitConflict,
    Fenced,
    InvalidRequest,
    ProtocolViolation,
    QualityGateFailed,
    SubtaskDeclined,
)
from milepost.protocol.manifest.timelines.aborts import MAX_SESSIONS
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import CheckpointAborted, CheckpointCompleted
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.ids import session_digest
from milepost.protocol.records.layout import checkpoint_prefix, heartbeat_key, metadata_key, token_prefix
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy, subsumable
from milepost_testkit.jobs.job_log import AIR_1, EXPECTED, RUN_1, TIMEOUT_MS, A, B, JobLog, airflow_run, assert_refused


def running(session: str = A, rebinds: int = 1) -> JobLog:
    log = JobLog()
    log.trigger(session)
    for _ in range(rebinds):
        log.rebind(session)
    return log


def test_complete_moves_the_head_and_records_the_history() -> None:
    """I7: the event carries key, size and SHA-256 of `_metadata`."""
    log = running()
    pending = log.pending
    log.now_ms += 5_000
    answer = log.complete(A, sinks=("lake", "late"))
    assert isinstance(answer, Transition)
    assert isinstance(answer.event, CheckpointCompleted)
    assert answer.event.adopted_by is None
    head = log.state.head()
    assert head == answer.event.checkpoint
    assert head is not None
    assert head.metadata == ObjectHandle(metadata_key(pending.checkpoint_id, pending.token), 300, "b" * 64)
    assert (head.checkpoint_id, head.epoch, head.parent, head.token) == (1, 1, 0, 3)
    assert (head.session_id, head.sinks, head.unconfirmed) == (A, ("lake", "late"), ("lake", "late"))
    assert head.completed_time_ms - head.trigger_time_ms == 5_000
    assert log.state.timeline().pending is None
    assert log.state.completed_sessions == ((session_digest(A), 1),)


def test_prefixes_of_earlier_tries_become_garbage_and_the_winners_does_not() -> None:
    """I8: what a fenced try wrote is unreachable."""
    log = running(rebinds=3)
    pending = log.pending
    log.complete(A)
    assert {entry.prefix for entry in log.state.garbage} == {
        *(token_prefix(pending.checkpoint_id, token) for token in pending.prefixes[:-1]),
        heartbeat_key(pending.checkpoint_id, pending.token),
    }
    assert {entry.since_version for entry in log.state.garbage} == {log.state.version}


def test_a_repeated_complete_is_already_done_whatever_its_token() -> None:
    """I3: idempotent per session and checkpoint, before the token is looked at."""
    log = running()
    pending = log.pending
    log.complete(A)
    answer = log.complete(A, pending, token=1)
    assert isinstance(answer, AlreadyDone)
    assert (answer.outcome, answer.completed) == (Outcome.ALREADY_COMPLETED, log.state.head())


def test_a_repeated_complete_of_a_subsumed_checkpoint_is_already_done() -> None:
    log = running()
    pending = log.pending
    log.complete(A)
    log.confirm(A, 1)
    log.epoch(A)
    log.subsume(A, (1,))
    answer = log.complete(A, pending)
    assert isinstance(answer, AlreadyDone)
    assert (answer.outcome, answer.completed) == (Outcome.ALREADY_COMPLETED, None)


def test_a_complete_of_an_earlier_try_is_fenced() -> None:
    """I3: a zombie of the same session, after its checkpoint got a newer token."""
    log = running()
    zombie = log.pending
    log.rebind(A)
    error = assert_refused(log, Fenced, lambda: log.complete(A, zombie))
    assert error.details["current"] == 4


def test_a_token_that_was_never_granted_is_a_violation() -> None:
    log = running()
    assert_refused(log, ProtocolViolation, lambda: log.complete(A, token=77))


def test_a_complete_by_another_session_or_of_an_aborted_checkpoint_is_fenced() -> None:
    log = running()
    pending = log.pending
    assert_refused(log, Fenced, lambda: log.complete(B))
    log.abort(A)
    assert_refused(log, Fenced, lambda: log.complete(A, pending))
    log.epoch(B)
    assert_refused(log, Fenced, lambda: log.complete(A, pending))


def test_a_complete_of_a_checkpoint_another_session_completed_is_fenced() -> None:
    log = running()
    pending = log.pending
    log.complete(A)
    assert_refused(log, Fenced, lambda: log.complete(B, pending))


def test_a_late_complete_is_accepted_unless_it_was_swept() -> None:
    """The deadline ends the lease, not the work."""
    log = running()
    log.now_ms += 2 * TIMEOUT_MS
    assert isinstance(log.complete(A), Transition)


def test_a_clock_that_jumped_back_never_makes_a_duration_negative() -> None:
    log = running()
    log.now_ms -= 500_000
    log.complete(A)
    head = log.state.head()
    assert head is not None
    assert head.completed_time_ms == head.trigger_time_ms


def test_a_missing_acknowledgement_refuses_the_commit() -> None:
    """I7: every expected subtask acknowledged."""
    log = running()
    error = assert_refused(log, SubtaskDeclined, lambda: log.complete(A, acknowledged=EXPECTED[:2]))
    assert error.details["reason"] == "ACKNOWLEDGEMENT_MISSING"


def test_a_failed_gate_refuses_the_commit() -> None:
    """I7: gate passed."""
    log = running()
    assert_refused(log, QualityGateFailed, lambda: log.complete(A, gate_passed=False))


@pytest.mark.parametrize("key", ["chk-00000000000000000001/_metadata", "{prefix}../t9/_metadata", "/etc/passwd"])
def test_metadata_outside_of_the_tokens_prefix_is_a_violation(key: str) -> None:
    """I7: metadata is never looked up by name, so a zombie's cannot be mistaken for the winner's."""
    log = running()
    prefix = token_prefix(log.pending.checkpoint_id, log.pending.token)
    handle = ObjectHandle(key.replace("{prefix}", prefix), 1, "c" * 64)
    assert_refused(log, ProtocolViolation, lambda: log.complete(A, metadata=handle))


def test_a_sink_named_twice_is_a_violation() -> None:
    log = running()
    assert_refused(log, ProtocolViolation, lambda: log.complete(A, sinks=("lake", "lake")))


def test_an_adopted_checkpoint_stays_its_own_sessions() -> None:
    """I10: the sweep completes it for the session that had finished it, which then finds it done."""
    log = running(AIR_1)
    pending = log.pending
    answer = log.complete(B, swept=True)
    assert isinstance(answer, Transition)
    assert isinstance(answer.event, CheckpointCompleted)
    assert (answer.event.adopted_by, answer.event.checkpoint.session_id) == (B, AIR_1)
    for again in (log.complete(AIR_1, pending), log.complete(B, pending, swept=True)):
        assert isinstance(again, AlreadyDone)
        assert again.outcome is Outcome.ALREADY_COMPLETED


def test_a_sweep_whose_holder_is_active_again_must_judge_again() -> None:
    """I10: the token that was judged is no longer in force."""
    log = running()
    judged = log.pending
    log.rebind(A)
    assert_refused(log, CommitConflict, lambda: log.complete(B, judged, swept=True))
    assert_refused(log, CommitConflict, lambda: log.abort(B, token=int(judged.token), swept=True))


def test_abort_lists_all_prefixes_and_records_the_history() -> None:
    """I6, I8: the log is the history: reason, detail, leader, run, trigger time."""
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    log.rebind(AIR_1)
    pending, leader = log.pending, log.state.timeline().leader
    answer = log.abort(AIR_1, reason=CheckpointFailureReason.SQL_ERROR, detail="division by zero", tolerable=1)
    assert isinstance(answer, Transition)
    event = answer.event
    assert isinstance(event, CheckpointAborted)
    assert (event.pending, event.leader, event.aborted_by) == (pending, leader, AIR_1)
    assert event.pending.run == RUN_1
    assert (event.reason, event.detail) == (CheckpointFailureReason.SQL_ERROR, "division by zero")
    assert (event.counted, event.consecutive_failures, event.tolerated) == (True, 1, True)
    assert {entry.prefix for entry in log.state.garbage} == {
        token_prefix(pending.checkpoint_id, token) for token in pending.prefixes
    }
    assert (log.state.status, log.state.timeline().pending) == (JobStatus.RUNNING, None)


def test_abort_of_a_completed_checkpoint_answers_so_and_deletes_nothing() -> None:
    """I9: exactly one of complete and abort wins."""
    log = running()
    log.complete(A)
    garbage = log.state.garbage
    for session in (A, B):
        answer = log.abort(session, 1)
        assert isinstance(answer, AlreadyDone)
        assert (answer.outcome, answer.completed) == (Outcome.ALREADY_COMPLETED, log.state.head())
    assert log.state.garbage == garbage


def test_a_repeated_abort_finds_nothing_pending() -> None:
    log = running()
    log.abort(A)
    answer = log.abort(A, 1)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.NOT_PENDING


def test_an_abort_never_hits_another_sessions_checkpoint() -> None:
    """I9: neither by its own id, nor because another one is pending by now."""
    log = running()
    assert_refused(log, Fenced, lambda: log.abort(B))
    log.abort(A)
    log.trigger(B)
    answer = log.abort(A, 1)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.NOT_PENDING
    assert log.pending.checkpoint_id == 2


def test_an_abort_by_a_driver_that_was_replaced_is_fenced() -> None:
    """I3: a zombie try must not abort the try that follows it."""
    log = running()
    token = int(log.pending.token)
    log.rebind(A)
    assert_refused(log, Fenced, lambda: log.abort(A, token=token))
    assert isinstance(log.abort(A, token=int(log.pending.token)), Transition)


def test_a_sweep_aborts_another_sessions_checkpoint_under_the_judged_token() -> None:
    log = running()
    answer = log.abort(B, reason=CheckpointFailureReason.LEADER_LOST, token=int(log.pending.token), swept=True)
    assert isinstance(answer, Transition)
    assert isinstance(answer.event, CheckpointAborted)
    assert (answer.event.aborted_by, answer.event.leader.session_id) == (B, A)
    assert log.state.aborted_sessions == ((session_digest(A), 1),)


def test_an_abort_of_a_checkpoint_never_triggered_is_a_violation() -> None:
    log = running()
    assert_refused(log, ProtocolViolation, lambda: log.abort(A, 9))


def test_an_abort_with_impossible_values_is_refused() -> None:
    log = running()
    assert_refused(log, InvalidRequest, lambda: log.abort(B, swept=True))
    assert_refused(log, InvalidRequest, lambda: log.abort(A, tolerable=-1))


def test_the_failure_after_the_tolerated_ones_makes_the_job_failed() -> None:
    """DESIGN 8.2: after more than `tolerable_failures` failed epochs the job is FAILED."""
    log = JobLog()
    for expected_status in (JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.FAILED):
        log.trigger(A)
        answer = log.abort(A, reason=CheckpointFailureReason.QUALITY_GATE_FAILED, tolerable=2)
        assert isinstance(answer, Transition)
        assert isinstance(answer.event, CheckpointAborted)
        assert answer.event.tolerated is (expected_status is JobStatus.RUNNING)
        assert log.state.status is expected_status


def test_a_completed_epoch_forgives_the_failures_before_it() -> None:
    log = JobLog()
    for _ in range(3):
        log.trigger(A)
        log.abort(A, reason=CheckpointFailureReason.CHECKPOINT_DECLINED, tolerable=1)
        log.epoch(A)
    assert (log.state.status, log.state.failures.consecutive) == (JobStatus.RUNNING, 0)


@pytest.mark.parametrize(
    "reason",
    [
        CheckpointFailureReason.LEADER_LOST,
        CheckpointFailureReason.LEADER_TAKEN_OVER,
        CheckpointFailureReason.ABORTED_BY_USER,
        CheckpointFailureReason.INTERRUPTED,
    ],
)
def test_an_epoch_that_was_stopped_never_fails_the_job(reason: CheckpointFailureReason) -> None:
    """After a kill -9 the next run continues without `resume`, with the default of no tolerable failure."""
    log = JobLog()
    for _ in range(3):
        log.trigger(A)
        log.abort(A, reason=reason, tolerable=0)
    assert log.state.status is JobStatus.RUNNING
    assert log.state.failures.last_reason == reason.value


def test_resume_clears_the_count_but_not_the_past() -> None:
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.SQL_ERROR)
    answer = log.resume(B)
    assert isinstance(answer, Transition)
    assert (log.state.status, log.state.failures.consecutive) == (JobStatus.RUNNING, 0)
    assert log.state.failures.last_success == 1


def test_sinks_of_a_failed_job_are_still_confirmed() -> None:
    """I11: a fact, whatever the status."""
    log = JobLog()
    log.epoch(A, confirm=False)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.SQL_ERROR)
    assert isinstance(log.confirm(A, 1), Transition)


def test_the_memory_of_sessions_is_bounded() -> None:
    """The manifest value stays small however long a job lives."""
    log = JobLog()
    for number in range(MAX_SESSIONS + 5):
        session = f"airflow:d/{number}"
        log.epoch(session, airflow_run(str(number)))
        log.subsume(session, tuple(int(one) for one in subsumable(log.state, RetentionPolicy(1))))
    assert len(log.state.completed_sessions) == MAX_SESSIONS
    assert log.state.completed_sessions[-1][1] == MAX_SESSIONS + 5


def test_the_last_scheduled_date_follows_completed_scheduled_runs_only() -> None:
    """DESIGN 8.3, rule 2; it never decreases."""
    log = JobLog()
    log.epoch("airflow:d/1", airflow_run("1", "scheduled", "2013-01-03T00:00:00+00:00"))
    log.epoch("airflow:d/2", airflow_run("2", "manual", "2013-02-01T00:00:00+00:00"))
    assert log.state.last_scheduled_logical_date == "2013-01-03T00:00:00+00:00"
    log.epoch("airflow:d/3", airflow_run("3", "backfill", "2013-03-01T00:00:00+00:00"))
    assert log.state.last_scheduled_logical_date == "2013-01-03T00:00:00+00:00"


def test_all_prefixes_are_below_the_checkpoints_own() -> None:
    log = running()
    checkpoint_id = log.pending.checkpoint_id
    log.abort(A)
    assert all(entry.prefix.startswith(checkpoint_prefix(checkpoint_id)) for entry in log.state.garbage)
