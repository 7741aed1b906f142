"""Checkpoints of a job after the job, or the process that runs it, ends or fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import Busy, JobNotRunnable, SubtaskDeclined
from milepost.jobmaster import Session, Triggered
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """One published epoch, and input for another."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv")
    return job


def assert_nothing_runs_and_nothing_is_lost(job: SparklessJob, status: str) -> None:
    assert job.master.reports.status().job_status == status
    runner = SparklessRunner()
    with pytest.raises(JobNotRunnable):
        job.master.epochs.run(Session.cli(), runner)
    assert runner.plans == []
    assert job.context.head().state.timeline().pending is None
    assert job.master.reports.verify(1, deep=True).checkpoints == (1,)


def test_a_failed_job_runs_nothing_and_keeps_its_checkpoints(job: SparklessJob) -> None:
    """Its runs fail immediately with the reason, and completed checkpoints stay readable.

    Case: DefaultSchedulerCheckpointCoordinatorTest.
        testClosingSchedulerShutsDownCheckpointCoordinatorOnFailedExecutionGraph
    """

    def decline(plan: EpochPlan) -> None:
        raise SubtaskDeclined("no", reason="BAD_RECORD")

    with pytest.raises(SubtaskDeclined):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=decline))
    assert_nothing_runs_and_nothing_is_lost(job, "failed")


def test_a_finished_job_runs_nothing_and_keeps_its_checkpoints(job: SparklessJob) -> None:
    """Every further run fails immediately, and completed checkpoints stay readable.

    Case: DefaultSchedulerCheckpointCoordinatorTest.
        testClosingSchedulerShutsDownCheckpointCoordinatorOnFinishedExecutionGraph
    """
    session = Session.cli()
    job.master.epochs.run(session, SparklessRunner())
    job.master.lifecycle.finish(session)
    assert job.master.reports.status().job_status == "finished"
    job.land("c.csv")
    with pytest.raises(JobNotRunnable):
        job.master.triggers.trigger(Session.cli())
    assert job.master.reports.verify(2, deep=True).checkpoints == (2,)


def test_a_process_that_ends_between_epochs_leaves_a_job_that_continues(job: SparklessJob) -> None:
    """Nothing has to be reported: the next session reads the head.

    Case: DefaultSchedulerCheckpointCoordinatorTest.
        testClosingSchedulerShutsDownCheckpointCoordinatorOnSuspendedExecutionGraph
    """
    before = job.context.head()
    assert (before.state.status.value, before.state.timeline().pending) == ("running", None)
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == 2


@pytest.mark.long
@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_a_terminated_process_aborts_its_epoch_and_the_job_continues(
    job: SparklessJob, signal: type[BaseException]
) -> None:
    """Only the process itself reports its work: uncounted, and nothing of it is visible.

    Case: DefaultSchedulerCheckpointCoordinatorTest.
        testClosingSchedulerSuspendsExecutionGraphAndShutsDownCheckpointCoordinator
    """

    def stop(plan: EpochPlan) -> None:
        raise signal

    with pytest.raises(signal):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=stop))
    state = job.context.head().state
    assert (state.status.value, state.timeline().pending, state.timeline().head) == ("running", None, 1)
    assert (state.failures.last_reason, state.failures.consecutive) == ("INTERRUPTED", 0)
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == 3


def test_after_a_failover_the_pending_checkpoint_is_aborted_before_another_is_triggered(job: SparklessJob) -> None:
    """The tasks are lost while it is pending: no request is valid until it has ended; then the next one is.

    Case: FailoverStrategyCheckpointCoordinatorTest.testAbortPendingCheckpointsWithTriggerValidation
    """
    newcomer = Session.cli()

    def tasks_are_lost(plan: EpochPlan) -> None:
        with pytest.raises(Busy):
            job.master.triggers.trigger(newcomer)
        raise SubtaskDeclined("the Spark job failed: executor lost", reason="TASK_FAILURE")

    with pytest.raises(SubtaskDeclined):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=tasks_are_lost))
    assert job.master.reports.show(2).failure_reason == "TASK_FAILURE"
    triggered = job.master.triggers.trigger(newcomer)
    assert isinstance(triggered, Triggered) and triggered.checkpoint_id == 3
