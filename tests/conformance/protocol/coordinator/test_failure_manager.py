"""Counting failed epochs towards a FAILED job: in the coordinator, and for epochs that run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.epoch.plan import EpochPlan
from milepost.errors import CheckpointExpired, JobNotRunnable, StoreUnavailable, SubtaskDeclined
from milepost.jobmaster import Session
from milepost.protocol.failure.failures import record_failure, record_success
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import CheckpointAborted
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import Failures, JobStatus
from milepost.protocol.records.reasons import FLINK_COUNTED_REASONS, CheckpointFailureReason
from milepost_testkit import profiles, wording
from milepost_testkit.jobs.job_log import A, JobLog
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store

DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED
OURS = frozenset(list(CheckpointFailureReason)[24:])
TOLERATING = "timeout: 10m, tolerable_failures: "


def decline(plan: EpochPlan) -> None:
    raise SubtaskDeclined(f"checkpoint {plan.checkpoint_id}: line 3 is no number", reason="BAD_RECORD")


def fail(job: SparklessJob, runner: SparklessRunner, error: type[Exception] = SubtaskDeclined) -> str:
    """Run one epoch that fails; returns the status of the job after it."""
    with pytest.raises(error):
        job.master.epochs.run(Session.cli(), runner)
    return str(job.master.reports.status().job_status)


def job_tolerating(folder: Path, tolerable: int) -> SparklessJob:
    job = SparklessJob.create(folder, {"timeout: 10m": f"{TOLERATING}{tolerable}", "max_files: 1": "max_files: 9"})
    job.land("a.csv")
    return job


def test_exactly_five_of_flinks_reasons_count() -> None:
    """Whatever else gives an epoch up leaves the job RUNNING with no failure counted.

    Case: CheckpointFailureManagerTest.testTotalCountValue
    """
    counted = set()
    for reason in CheckpointFailureReason:
        if reason in OURS:
            continue
        log = JobLog()
        log.trigger(A)
        log.abort(A, reason=reason, tolerable=0)
        assert log.state.status is (JobStatus.FAILED if log.state.failures.consecutive else JobStatus.RUNNING)
        assert log.state.failures.last_reason == reason.value
        counted.update({reason} if log.state.failures.consecutive else ())
    assert counted == FLINK_COUNTED_REASONS
    assert {reason.name for reason in counted} == {
        "IO_EXCEPTION",
        "CHECKPOINT_ASYNC_EXCEPTION",
        "CHECKPOINT_EXPIRED",
        "CHECKPOINT_DECLINED",
        "FINALIZE_CHECKPOINT_FAILURE",
    }


def test_the_failure_after_the_tolerated_ones_fails_the_job(tmp_path: Path) -> None:
    """Two failures are tolerated, the third is not; nothing more is triggered until `resume`.

    Case: CheckpointFailureManagerTest.testContinuousFailure
    """
    job = job_tolerating(tmp_path, 2)
    runner = SparklessRunner(before=decline)
    assert [fail(job, runner) for _ in range(3)] == ["running", "running", "failed"]
    with wording.raises(JobNotRunnable):
        job.master.epochs.run(Session.cli(), runner)
    assert len(runner.plans) == 3
    job.master.lifecycle.resume()
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == 4


def test_a_completed_epoch_breaks_the_row_of_failures(tmp_path: Path) -> None:
    """Case: CheckpointFailureManagerTest.testBreakContinuousFailure"""
    job = job_tolerating(tmp_path, 1)
    declining = SparklessRunner(before=decline)
    for day in range(2):
        assert fail(job, declining) == "running"
        assert job.master.epochs.run(Session.cli(), SparklessRunner()).status == "completed"
        job.land(f"b{day}.csv")
    assert [fail(job, declining) for _ in range(2)] == ["running", "failed"]


def test_a_failure_of_a_checkpoint_up_to_the_last_success_is_ignored() -> None:
    """Case: CheckpointFailureManagerTest.testIgnoresPastCheckpoints"""
    failures = record_success(Failures(), CheckpointId(2))
    for checkpoint_id in (1, 2):
        verdict = record_failure(failures, CheckpointId(checkpoint_id), DECLINED, "late", 0)
        assert (verdict.counted, verdict.tolerated, verdict.failures.consecutive) == (False, True, 0)
    assert not record_failure(failures, CheckpointId(3), DECLINED, "it failed", 0).tolerated
    assert record_success(failures, CheckpointId(1)) == failures


def test_one_checkpoint_counts_once_however_often_it_fails() -> None:
    """Neither a repeated abort nor a repeated count of one id is a second failure.

    Case: CheckpointFailureManagerTest.testIgnoreOneCheckpointRepeatedlyCountMultiTimes
    """
    log = JobLog()
    log.trigger(A)
    assert isinstance(log.abort(A, 1, DECLINED, tolerable=1), Transition)
    for _ in range(3):
        again = log.abort(A, 1, DECLINED, tolerable=1)
        assert isinstance(again, AlreadyDone) and again.outcome is Outcome.NOT_PENDING
    assert (log.state.status, log.state.failures.consecutive) == (JobStatus.RUNNING, 1)
    failures = log.state.failures
    for checkpoint_id in (1, 2, 1, 2):
        failures = record_failure(failures, CheckpointId(checkpoint_id), DECLINED, "it failed", 9).failures
    assert (failures.consecutive, failures.counted) == (2, (1, 2))


def test_an_epoch_past_its_deadline_is_a_counted_failure(tmp_path: Path) -> None:
    """Case: CheckpointCoordinatorTest.testExpiredCheckpointExceedsTolerableFailureNumber"""

    def run_out(plan: EpochPlan) -> None:
        raise CheckpointExpired(f"checkpoint {plan.checkpoint_id}: still running after {plan.timeout_ms} ms")

    job = job_tolerating(tmp_path, 1)
    runner = SparklessRunner(before=run_out)
    assert [fail(job, runner, CheckpointExpired) for _ in range(2)] == ["running", "failed"]
    aborted = job.master.reports.list_checkpoints("aborted")
    assert [item.failure_reason for item in aborted] == ["CHECKPOINT_EXPIRED"] * 2


def test_a_store_that_fails_under_an_epoch_is_a_counted_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint exists, its first object cannot be written.

    Case: CheckpointCoordinatorTest.testIOExceptionCheckpointExceedsTolerableFailureNumber
    """
    job = job_tolerating(tmp_path, 0)
    outage = Fault(at("put", "chk-"), Effect.UNAVAILABLE)
    break_store(monkeypatch, job.context.store_config.url, outage)
    assert fail(job, SparklessRunner(), StoreUnavailable) == "failed"
    assert outage.reached.is_set()
    (aborted,) = job.master.reports.list_checkpoints()
    assert (aborted.status, aborted.failure_reason) == ("aborted", "IO_EXCEPTION")


def test_a_decline_beyond_the_tolerable_number_reaches_the_caller_of_the_epoch(tmp_path: Path) -> None:
    """The error itself is raised, with what to do about a job that is FAILED by now.

    Case: CheckpointCoordinatorTest.testTriggerAndDeclineCheckpointThenFailureManagerThrowsException
    """
    job = job_tolerating(tmp_path, 0)
    with wording.raises(SubtaskDeclined) as caught:
        job.master.epochs.run(Session.cli(), SparklessRunner(before=decline))
    assert "milepost resume small" in caught.value.hint
    event = job.context.log.entry(job.context.head().version).event
    assert isinstance(event, CheckpointAborted)
    assert (event.counted, event.consecutive_failures, event.tolerated) == (True, 1, False)
    assert job.context.head().state.timeline().pending is None


ENDINGS = st.one_of(st.none(), st.sampled_from(CheckpointFailureReason), st.just("resume"))
"""How an epoch ends: completed, or given up for a reason; or what a person does between two."""


@given(endings=st.lists(ENDINGS, max_size=25), tolerable=st.integers(0, 3))
@example(endings=[DECLINED, None, DECLINED, DECLINED], tolerable=1)
@profiles.examples(share=0.8)
def test_a_job_is_failed_exactly_after_too_many_counted_failures_in_a_row(
    endings: list[CheckpointFailureReason | str | None], tolerable: int
) -> None:
    """Beside a plain counter: one up for a counted reason, back to nothing for a success or a `resume`."""
    log, row = JobLog(), 0
    for ending in endings:
        failed = row > tolerable
        assert (log.state.status, log.state.failures.consecutive) == (
            JobStatus.FAILED if failed else JobStatus.RUNNING,
            row,
        )
        if ending == "resume":
            log.resume(A)
            row = 0 if failed else row
        elif failed:
            with pytest.raises(JobNotRunnable):
                log.trigger(A)
        elif ending is None:
            log.epoch(A)
            row = 0
        else:
            assert isinstance(ending, CheckpointFailureReason)
            log.trigger(A)
            log.abort(A, reason=ending, tolerable=tolerable)
            row += ending.counted
