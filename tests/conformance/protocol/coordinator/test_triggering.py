"""When a checkpoint is triggered, and when it is not. A failed trigger leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import (
    Busy,
    EnvironmentUnusable,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    StoreUnavailable,
)
from milepost.jobmaster import NothingToDo, Session, Triggered
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import JobCanceled
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import INPUTS_PREFIX, MANIFEST_PREFIX, abort_notice_key
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import MINUTE_MS, A, B, JobLog, airflow_run, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store

TWO_SOURCES = {
    "operators:\n": "  other: {format: csv, path: ../other/*.csv, settle: 0s, schema: {k: int64}}\noperators:\n"
    "  - {uid: others, kind: aggregate, inputs: [other], key: [k], aggregates: {rows: count(*)}}\n"
}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """A job that tolerates a failure, with input for one epoch."""
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 1"})
    job.land("a.csv")
    return job


def triggered(job: SparklessJob, session: Session | None = None) -> Triggered:
    answer = job.master.triggers.trigger(session or Session.cli())
    assert isinstance(answer, Triggered)
    return answer


def test_one_checkpoint_is_pending_at_a_time(job: SparklessJob) -> None:
    """A second session is refused and changes nothing; once the pending checkpoint has ended, it triggers immediately.

    Case: CheckpointCoordinatorTest.testMaxConcurrentAttempts1
    Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointBeforePreviousOneCompleted
    """
    first, second = Session.cli(), Session.cli()
    pending = job.trigger(first)
    before = job.context.head()
    with wording.raises(Busy) as caught:
        job.master.triggers.trigger(second)
    assert caught.value.details["reason"] == "TOO_MANY_CHECKPOINT_REQUESTS"
    assert job.context.head() == before
    job.complete(first, pending)
    job.land("b.csv")
    assert triggered(job, second).checkpoint_id == 2


def test_a_discarded_checkpoint_allows_the_next_trigger(job: SparklessJob) -> None:
    """Case: CheckpointCoordinatorTriggeringTest.discardingTriggeringCheckpointWillExecuteNextCheckpointRequest"""
    first, second = Session.cli(), Session.cli()
    triggered(job, first)
    with pytest.raises(Busy):
        job.master.triggers.trigger(second)
    job.master.epochs.abort(first, 1, "ABORTED_BY_USER", "not now")
    assert triggered(job, second).checkpoint_id == 2


def test_a_checkpoint_aborted_before_its_epoch_began_starts_nothing(job: SparklessJob) -> None:
    """The request is cancelled between its trigger and its start: no subtask runs, no sink stages.

    Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointRequestCancelled
    Case: CheckpointCoordinatorTest.testAbortingBeforeTriggeringCheckpointOperatorCoordinator
    """
    session, runner = Session.cli(), SparklessRunner()
    pending = triggered(job, session)
    job.master.epochs.abort(session, 1, "ABORTED_BY_USER", "not now")
    with wording.raises(Fenced):
        job.master.epochs.run_epoch(session, 1, runner)
    assert runner.plans == []
    assert job.staged_files(1) == []
    notice = abort_notice_key(CheckpointId(1), pending.token)
    assert [stat.key for stat in job.context.store.list("chk-")] == [notice], "what tells whoever runs it nevertheless"


def test_scheduled_runs_trigger_one_checkpoint_each_with_rising_ids() -> None:
    """A run that is requested twice, or whose date is past, triggers nothing more.

    Case: CheckpointCoordinatorTriggeringTest.testPeriodicTriggering
    """
    log = JobLog()
    for day in range(1, 5):
        session, run = f"airflow:d/{day}", airflow_run(str(day), "scheduled", f"2013-01-0{day}T00:00:00+00:00")
        assert log.epoch(session, run) == day
        again = log.trigger(session, run)
        assert isinstance(again, AlreadyDone) and again.outcome is Outcome.COVERED
    late = log.trigger("airflow:d/late", airflow_run("late", "scheduled", "2013-01-02T00:00:00+00:00"))
    assert isinstance(late, AlreadyDone) and late.outcome is Outcome.COVERED
    assert log.state.next_checkpoint_id == 5


def test_the_minimum_pause_begins_when_a_checkpoint_completes() -> None:
    """Not when it was triggered, and not again when a later one is aborted.

    Case: CheckpointCoordinatorTest.testMinCheckpointPause
    Case: CheckpointCoordinatorTriggeringTest.testMinTimeBetweenCheckpointsInterval
    """
    log = JobLog()
    log.trigger(A, min_pause_ms=MINUTE_MS)
    log.now_ms += 5 * MINUTE_MS
    log.complete(A)
    log.confirm(A, 1)
    error = assert_refused(log, Busy, lambda: log.trigger(A, min_pause_ms=MINUTE_MS))
    assert error.details["reason"] == "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    assert error.details["wait_ms"] == MINUTE_MS
    log.now_ms += MINUTE_MS
    assert isinstance(log.trigger(A, min_pause_ms=MINUTE_MS), Transition)
    log.abort(A)
    assert isinstance(log.trigger(A, min_pause_ms=MINUTE_MS), Transition)


def test_a_trigger_that_cannot_store_its_plan_leaves_nothing_and_does_not_hinder_the_next(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointInitializationFailed
    Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointRequestQueuedWithFailure
    """
    outage = Fault(lambda _, key: key.startswith(INPUTS_PREFIX), Effect.UNAVAILABLE)
    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, outage)
        with pytest.raises(StoreUnavailable):
            job.master.triggers.trigger(Session.cli())
    assert job.context.head().version == 1
    assert triggered(job).checkpoint_id == 1


def test_a_trigger_that_fails_leaves_its_id_for_the_next(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I5: the id comes from the transition itself, so one that does not land takes none.

    Case: CheckpointCoordinatorTest.testTriggerCheckpointWithCounterIOException
    """
    full = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, skip=1, error=EnvironmentUnusable("no space left"))
    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, full)
        with pytest.raises(EnvironmentUnusable):
            job.master.triggers.trigger(Session.cli())
    assert full.reached.is_set()
    state = job.context.head().state
    assert (state.version, state.next_checkpoint_id, state.timeline().pending) == (1, 1, None)
    assert triggered(job).checkpoint_id == 1


def test_after_an_outage_the_next_checkpoint_is_triggered(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case: CheckpointCoordinatorTest.testTriggerCheckpointAfterCheckpointStorageIOException"""
    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, Fault(at("put", "chk-"), Effect.UNAVAILABLE))
        with pytest.raises(StoreUnavailable):
            job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == 2
    assert [item.status for item in job.master.reports.list_checkpoints()] == ["completed", "aborted"]


def ended(status: JobStatus) -> JobLog:
    """A job with one published checkpoint, ended in one of the ways there are."""
    log = JobLog()
    log.epoch(A)
    if status is JobStatus.FINISHED:
        log.finish(A)
    elif status is JobStatus.CANCELED:
        log.cancel(A)
    else:
        log.trigger(A)
        log.abort(A, reason=CheckpointFailureReason.CHECKPOINT_DECLINED)
    assert log.state.status is status
    return log


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED])
def test_a_job_that_has_ended_triggers_nothing(status: JobStatus) -> None:
    """For any caller: an active schedule, or a person.

    Case: CheckpointCoordinatorTest.testTriggerCheckpointAfterStopping
    Case: CheckpointCoordinatorTest.testScheduleTriggerRequestDuringShutdown
    """
    log = ended(status)
    scheduled = airflow_run("r", "scheduled", "2013-01-01T00:00:00+00:00")
    assert_refused(log, JobNotRunnable, lambda: log.trigger(A))
    assert_refused(log, JobNotRunnable, lambda: log.trigger("airflow:d/r", scheduled))


def test_a_checkpoint_that_was_triggered_when_the_job_ended_never_completes() -> None:
    """It is aborted by the very transition that ends the job, with Flink's reason, and does not count.

    Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointWithShuttingDownCoordinator
    """
    log = JobLog()
    log.trigger(A)
    pending = log.pending
    log.cancel(B)
    event = log.events[-1]
    assert isinstance(event, JobCanceled)
    assert [one.reason for one in event.aborted] == [CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN]
    assert_refused(log, Fenced, lambda: log.rebind(A, 1))
    assert_refused(log, Fenced, lambda: log.complete(A, pending))
    assert (log.state.status, log.state.failures.consecutive) == (JobStatus.CANCELED, 0)


def test_with_nothing_to_run_no_checkpoint_is_opened(job: SparklessJob) -> None:
    """All input is consumed; and a request without a subtask is refused.

    Case: CheckpointCoordinatorTest.testCheckpointAbortsIfTriggerTasksAreFinished
    """
    job.master.epochs.run(Session.cli(), SparklessRunner())
    before = job.context.head()
    nothing = job.master.triggers.trigger(Session.cli())
    assert isinstance(nothing, NothingToDo) and nothing.status == "empty"
    wording.matches("run", nothing.message)
    assert job.context.head() == before
    log = JobLog()
    assert_refused(log, InvalidRequest, lambda: log.trigger(A, expected=()))


def test_with_nothing_to_run_a_read_only_store_goes_unnoticed(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule over a silent source fails nothing and counts nothing, however often it runs.

    Case: CheckpointCoordinatorTest.testCheckpointAbortsIfTriggerTasksAreFinishedAndIOException
    Case: CheckpointCoordinatorTest.testIOExceptionForPeriodicSchedulingWithInactiveTasks
    """
    job.master.epochs.run(Session.cli(), SparklessRunner())
    before = job.context.head()
    outage = Fault(lambda operation, _: operation in ("put", "create"), Effect.UNAVAILABLE, times=99)
    break_store(monkeypatch, job.context.store_config.url, outage)
    for _ in range(3):
        assert isinstance(job.master.triggers.trigger(Session.cli()), NothingToDo)
    assert not outage.reached.is_set()
    assert job.context.head() == before


def test_a_schedule_over_a_silent_source_triggers_once_something_lands(job: SparklessJob) -> None:
    """Case: CheckpointCoordinatorTest.testPeriodicSchedulingWithInactiveTasks"""
    job.master.epochs.run(Session.cli(), SparklessRunner())
    for _ in range(2):
        assert isinstance(job.master.triggers.trigger(Session.cli()), NothingToDo)
    job.land("b.csv")
    assert triggered(job).checkpoint_id == 2


def test_a_checkpoint_whose_subtasks_could_not_be_started_is_aborted(job: SparklessJob) -> None:
    """Spark did not start: nothing completed, nothing pending, and no failure of the job.

    Case: CheckpointCoordinatorTest.testCheckpointAbortsIfTriggerTasksAreNotExecuted
    """

    def no_spark(plan: EpochPlan) -> None:
        raise EnvironmentUnusable("Spark did not start with master local[2]: no Java")

    with pytest.raises(EnvironmentUnusable):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=no_spark))
    state = job.context.head().state
    assert (state.checkpoints, state.timeline().pending) == ((), None)
    assert (state.failures.last_reason, state.failures.consecutive) == ("ENVIRONMENT_UNUSABLE", 0)


def test_a_checkpoint_is_triggered_although_one_source_has_nothing_more(tmp_path: Path) -> None:
    """Only subtasks with input are expected; the silent source keeps its position in the checkpoint.

    Case: CheckpointCoordinatorTest.testCheckpointTriggeredAfterSomeTasksFinishedIfAllowed
    """
    job = SparklessJob.create(tmp_path, TWO_SOURCES)
    job.land("a.csv")
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.csv").write_text("k\n7\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv")
    second = job.master.epochs.run(Session.cli(), SparklessRunner())
    assert {name: source.objects for name, source in second.sources.items()} == {"other": 0, "rows": 1}
    assert [item.subtask for item in second.acknowledged if item.level == 0] == [0]
    assert isinstance(job.master.triggers.trigger(Session.cli()), NothingToDo)


def test_opening_a_job_and_reading_about_it_writes_nothing(job: SparklessJob) -> None:
    """Before its first epoch a job has no place of its own in the store.

    Case: CheckpointCoordinatorTest.testBaseLocationsNotInitialized
    """
    master = job.master
    assert (master.reports.list_checkpoints(), master.reports.history()) == ([], [])
    assert master.reports.status().job_status == "initializing"
    assert not (job.folder / "store").exists() or not [p for p in (job.folder / "store").rglob("*") if p.is_file()]
