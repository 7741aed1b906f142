"""Claiming a timeline, and taking a new token for each try (I3, I4, I5, I10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import (
    Busy,
    CommitConflict,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    ProtocolViolation,
)
from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import CheckpointRebound, CheckpointTriggered
from milepost.protocol.manifest.transaction.requests import CreateRequest
from milepost.protocol.records.checkpoints import ObjectHandle, SubtaskKey
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import (
    AIR_1,
    AIR_2,
    EXPECTED,
    MINUTE_MS,
    RUN_1,
    RUN_2,
    TIMEOUT_MS,
    A,
    B,
    JobLog,
    airflow_run,
    assert_refused,
    holder,
)
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET


def test_a_new_job_is_version_one_with_the_empty_state() -> None:
    state = JobLog().state
    assert (state.version, state.status, state.next_checkpoint_id) == (1, JobStatus.RUNNING, 1)
    assert state.head() is None
    with pytest.raises(KeyError):
        state.timeline("no such timeline")  # type: ignore[arg-type]


def test_creating_a_job_twice_changes_nothing() -> None:
    log = JobLog()
    answer = coordinator.create(log.state, CreateRequest("flights", KEY_HASH_SECRET), 5)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.ALREADY_CREATED


@pytest.mark.parametrize("name", ["", "Flights", "1st", "a__b", "a/b", "x" * 64])
def test_a_job_name_that_could_not_be_a_prefix_is_refused(name: str) -> None:
    with wording.raises(InvalidRequest):
        coordinator.create(None, CreateRequest(name, KEY_HASH_SECRET), 5)


def test_a_trigger_grants_the_version_it_is_written_as_as_token() -> None:
    """I3: a token is the manifest version of the transition that granted it."""
    log = JobLog()
    answer = log.trigger(A)
    assert isinstance(answer, Transition)
    assert isinstance(answer.event, CheckpointTriggered)
    assert answer.token == log.state.version == 2
    leader = log.state.timeline().leader
    assert leader is not None
    assert (leader.session_id, leader.token, log.pending.token) == (A, 2, 2)
    assert (log.pending.checkpoint_id, log.pending.epoch, log.pending.base) == (1, 1, 0)
    assert log.pending.deadline_ms == log.now_ms + TIMEOUT_MS
    assert log.pending.prefixes == (2,)


def test_checkpoint_ids_rise_over_aborts_while_epochs_count_from_the_head() -> None:
    """I5: an id is never reused, also when its checkpoint was aborted; an epoch is one more than the head's."""
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.abort(A)
    log.trigger(A)
    assert (log.pending.checkpoint_id, log.pending.epoch, log.pending.base) == (3, 2, 1)


def test_a_retried_trigger_continues_its_own_pending_checkpoint() -> None:
    """I3: idempotent per session; a retry after a lost answer gets the same checkpoint and token."""
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    answer = log.trigger(AIR_1, RUN_1)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.ALREADY_TRIGGERED
    assert answer.pending == log.pending
    assert log.state.version == 2


def test_a_trigger_over_another_sessions_pending_checkpoint_is_busy() -> None:
    """I10: it has to be swept first."""
    log = JobLog()
    log.trigger(A)
    assert_refused(log, Busy, lambda: log.trigger(B))


def test_a_plan_made_from_another_head_is_refused() -> None:
    """The plan of a stale head would read the same objects twice."""
    log = JobLog()
    stale = log.trigger_request(B)
    log.epoch(A)
    assert_refused(log, CommitConflict, lambda: log.submit(stale))


def test_a_failed_job_is_not_run_until_resumed() -> None:
    """I4, DESIGN 8.2: later runs fail immediately with the reason until `resume`."""
    log = JobLog()
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.BAD_RECORD, detail="line 7 of day-3.csv")
    error = assert_refused(log, JobNotRunnable, lambda: log.trigger(B))
    assert "milepost resume flights" in error.hint
    log.resume(B)
    assert isinstance(log.trigger(B), Transition)


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED])
def test_a_finished_incarnation_is_never_run_again(status: JobStatus) -> None:
    """I4: a grant checks the job result first; `resume` does not reopen it either."""
    log = JobLog()
    log.state = replace(log.state, status=status)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    assert_refused(log, JobNotRunnable, lambda: log.resume(A))


def test_resuming_a_running_job_changes_nothing() -> None:
    answer = JobLog().resume(A)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.ALREADY_RUNNING


def test_a_run_whose_checkpoint_was_aborted_cannot_trigger_another() -> None:
    """DESIGN 8.3, rule 3: a cleared run fails immediately; only a new run gets a new id."""
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    log.abort(AIR_1)
    log.epoch(B)
    assert_refused(log, Fenced, lambda: log.trigger(AIR_1, RUN_1))
    assert isinstance(log.trigger(AIR_2, RUN_2), Transition)


def test_a_cli_session_may_trigger_again_after_an_abort_and_after_a_completion() -> None:
    """`milepost run --epochs N` is one session."""
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.abort(A)
    assert isinstance(log.trigger(A), Transition)


def test_a_covered_run_is_reported_and_nothing_is_triggered() -> None:
    """DESIGN 8.3, rule 2."""
    log = JobLog()
    log.epoch(AIR_1, RUN_1)
    answer = log.trigger(AIR_1, RUN_1)
    assert isinstance(answer, AlreadyDone)
    assert (answer.outcome, answer.checkpoint_id) == (Outcome.COVERED, 1)
    assert answer.completed == log.state.checkpoint(CheckpointId(1))


def test_more_than_three_unconfirmed_checkpoints_stop_triggering() -> None:
    """I8: an unavailable sink delays the job, which must not run ever further ahead of it."""
    log = JobLog()
    for _ in range(3):
        log.epoch(A, confirm=False)
    log.epoch(A, confirm=False)
    error = assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    assert error.details["unconfirmed"] == [1, 2, 3, 4]
    log.confirm(B, 1)
    assert isinstance(log.trigger(A), Transition)


def test_min_pause_counts_from_the_last_completion() -> None:
    log = JobLog()
    log.epoch(A)
    log.now_ms += MINUTE_MS - 1
    error = assert_refused(log, Busy, lambda: log.trigger(A, min_pause_ms=MINUTE_MS))
    assert error.details["reason"] == "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    assert error.details["wait_ms"] == 1
    log.now_ms += 1
    assert isinstance(log.trigger(A, min_pause_ms=MINUTE_MS), Transition)


def test_a_clock_that_jumped_back_does_not_stop_the_job_until_it_has_caught_up() -> None:
    log = JobLog()
    log.epoch(A)
    log.now_ms -= 60 * MINUTE_MS
    assert isinstance(log.trigger(A, min_pause_ms=MINUTE_MS), Transition)


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout_ms": 0},
        {"min_pause_ms": -1},
        {"expected": ()},
        {"expected": (SubtaskKey(0, 0), SubtaskKey(0, 0))},
        {"plan": ObjectHandle("../other-job/plan.json", 1, "a")},
        {"run": airflow_run("r", "scheduled", "yesterday")},
        {"run": airflow_run("r", "scheduled", "2013-01-01T00:00:00")},
    ],
)
def test_a_trigger_with_a_value_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    log = JobLog()
    assert_refused(log, InvalidRequest, lambda: log.trigger(A, **changes))


def test_each_rebind_raises_the_token_renews_the_lease_and_adds_a_prefix() -> None:
    """I3: a retried or cleared task may leave the old Spark job running; it is fenced by the higher token."""
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    log.now_ms += TIMEOUT_MS + 1
    answer = log.rebind(AIR_1)
    assert isinstance(answer, Transition)
    assert isinstance(answer.event, CheckpointRebound)
    log.rebind(AIR_1)
    assert log.pending.prefixes == (2, 3, 4)
    assert log.pending.token == log.state.version == 4
    assert log.pending.deadline_ms == log.now_ms + TIMEOUT_MS
    assert log.pending.expected == EXPECTED
    leader = log.state.timeline().leader
    assert leader is not None
    assert (leader.token, leader.holder) == (4, holder(AIR_1))


def test_a_rebind_never_shortens_the_lease() -> None:
    log = JobLog()
    log.trigger(A)
    log.rebind(A, timeout_ms=1)
    assert log.pending.deadline_ms == log.now_ms + TIMEOUT_MS


def test_a_rebind_of_anothers_checkpoint_or_of_none_is_fenced() -> None:
    """I3: only the pending checkpoint that was given, and only the session's own."""
    log = JobLog()
    log.trigger(A)
    assert_refused(log, Fenced, lambda: log.rebind(B))
    log.abort(A)
    assert_refused(log, Fenced, lambda: log.rebind(A, 1))
    log.epoch(B)
    assert_refused(log, Fenced, lambda: log.rebind(A, 2))


@pytest.mark.parametrize("checkpoint_id", [0, 2, 99])
def test_a_rebind_of_a_checkpoint_never_triggered_is_a_violation(checkpoint_id: int) -> None:
    log = JobLog()
    log.trigger(A)
    assert_refused(log, ProtocolViolation, lambda: log.rebind(A, checkpoint_id))


def test_a_rebind_without_a_timeout_is_refused() -> None:
    log = JobLog()
    log.trigger(A)
    assert_refused(log, InvalidRequest, lambda: log.rebind(A, timeout_ms=0))


def test_a_cleared_run_epoch_of_a_completed_run_is_already_done() -> None:
    """DESIGN 8.3, rule 2: the run has nothing to do."""
    log = JobLog()
    log.epoch(AIR_1, RUN_1)
    answer = log.rebind(AIR_1, 1)
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.ALREADY_COMPLETED
