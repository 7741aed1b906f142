"""Ends and starts that the coordinator refuses, and their effect on several timelines (I4)."""

from __future__ import annotations

from milepost.errors import Busy, Fenced, JobNotRunnable
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.manifest.transaction.events import JobCanceled
from milepost.protocol.records.ids import session_digest
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit.jobs.job_log import A, B, JobLog, assert_refused


def failed() -> JobLog:
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.BAD_RECORD)
    assert log.state.status is JobStatus.FAILED
    return log


def test_a_failed_job_is_resumed_or_canceled_and_neither_started_nor_finished() -> None:
    log = failed()
    assert_refused(log, JobNotRunnable, lambda: log.start(B))
    assert_refused(log, JobNotRunnable, lambda: log.finish(B))
    assert isinstance(log.cancel(B), Transition)
    assert_refused(log, JobNotRunnable, lambda: log.resume(B))


def test_a_job_that_runs_cannot_be_started() -> None:
    assert isinstance(JobLog().start(A), AlreadyDone)


def test_a_job_finishes_only_after_a_final_checkpoint_that_every_sink_has_confirmed() -> None:
    log = JobLog()
    assert_refused(log, Fenced, lambda: log.finish(A))
    log.epoch(A, confirm=False)
    assert_refused(log, JobNotRunnable, lambda: log.finish(A))
    log.confirm(A, 1)
    log.trigger(A)
    assert_refused(log, Busy, lambda: log.finish(A, 1))
    log.abort(A)
    assert isinstance(log.finish(A, 1), Transition), "anybody may say so: the head is the final checkpoint"


def test_a_cancel_aborts_pending_checkpoints_on_every_timeline() -> None:
    """One transition; each of them leaves its prefixes as garbage and is remembered as aborted."""
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.rebind(A)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    pending = (log.pending, log.pending_on(fork))
    answer = log.cancel("cli:person", "enough")
    assert isinstance(answer, Transition) and isinstance(answer.event, JobCanceled)
    assert [(one.timeline, one.pending.checkpoint_id, one.leader.session_id) for one in answer.event.aborted] == [
        ("main", 2, A),
        (fork, 3, B),
    ]
    assert {one.reason for one in answer.event.aborted} == {CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN}
    assert [(one.pending, one.leader) for one in log.state.timelines] == [(None, None)] * 2
    assert log.state.aborted_sessions == ((session_digest(A), 2), (session_digest(B), 3))
    listed = {entry.prefix for entry in log.state.garbage}
    assert {token_prefix(one.checkpoint_id, token) for one in pending for token in one.prefixes} <= listed
    assert log.state.failures.consecutive == 0


def test_a_canceled_session_neither_subsumes_nor_deletes() -> None:
    """An ended job has no leader: what it keeps, it keeps for its next incarnation."""
    log = JobLog()
    log.epoch(A)
    log.epoch(A)
    log.cancel(B)
    assert isinstance(log.subsume(A, (1,)), AlreadyDone)
    assert isinstance(log.forget(A, (log.state.garbage[0].prefix,), 0), AlreadyDone)


def test_a_detail_of_any_length_is_cut_and_never_fails() -> None:
    log = JobLog()
    log.cancel(A, "\udcff" + "x" * 5_000)
    assert len(log.state.results[0].detail) == 2_000
    assert log.state.results[0].detail.startswith("ann (command line): \\udcff")
