"""Grants and revokes of leadership, before, during and after an epoch (I3, I4).

Flink's runner creates a JobMaster process for each grant and closes it at each revocation. Here a grant is the
trigger's transition, the process is the one that runs the epoch under the granted token, and a revocation is the
transition that takes the checkpoint away: a sweep, an abort or a cancel. The manifest log orders them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import (
    NEW_RUN,
    NEWER_TRY,
    Busy,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.jobmaster import Session, Triggered
from milepost.jobmaster.leadership.heartbeat import Heartbeat
from milepost.jobmaster.run import attempt
from milepost.protocol.manifest.timelines.incarnation import JobPhase, job_phase
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.manifest.transaction.lease import revocation
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.manifest_state import CleanUp, JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import AIR_1, AIR_2, RUN_1, RUN_2, A, B, JobLog, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.hooked_store import HookedStore

LONG_S = 240.0
SWEPT = CheckpointFailureReason.LEADER_TAKEN_OVER


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    return job


def triggered(job: SparklessJob, session: Session, *, take_over: bool = False) -> int:
    answer = job.master.triggers.trigger(session, take_over=take_over)
    assert isinstance(answer, Triggered)
    return int(answer.checkpoint_id)


def _revoked(log: JobLog, mine: PendingCheckpoint, hint: str) -> None:
    """The try that holds a checkpoint does not lead, and has this hint."""
    found = revocation(log.state, mine)
    assert found is not None and found.hint == hint
    wording.matches("Fenced", found.reason)


# -- status, before, during and after --------------------------------------------------------------------------------


def test_a_job_without_a_leader_so_far_is_initializing(job: SparklessJob) -> None:
    """Created or not, and again after a start: until a session has claimed the timeline in this incarnation.

    Case: JobMasterServiceLeadershipRunnerTest.testInitialJobStatusIsInitializing
    """
    assert job_phase(None) is JobPhase.INITIALIZING
    log = JobLog()
    assert job_phase(log.state) is JobPhase.INITIALIZING
    log.trigger(A)
    assert job_phase(log.state) is JobPhase.RUNNING
    log.complete(A)
    assert job_phase(log.state) is JobPhase.RUNNING
    log.confirm(A, 1)
    log.cancel(B)
    log.clean(B)
    log.start(B)
    assert job_phase(log.state) is JobPhase.INITIALIZING
    assert job.master.reports.status().job_status == "initializing"


def test_a_job_has_a_phase_before_it_exists(job: SparklessJob) -> None:
    """Status, details and history answer, and change nothing.

    Case: JobMasterServiceLeadershipRunnerTest.testJobInformationOperationsDuringInitialization
    """
    status = job.master.reports.status()
    assert (status.job, status.job_status, status.head, status.leader) == (
        "small",
        "initializing",
        None,
        None,
    )
    assert (status.unread_objects, status.exit_code) == (1, 1)
    assert job.master.reports.list_checkpoints() == [] and job.master.reports.history() == []
    assert not (job.folder / "store").exists()


def test_a_canceled_job_is_cancelling_until_it_is_clean() -> None:
    """Also when it is canceled before anybody led it.

    Case: JobMasterServiceLeadershipRunnerTest.testCancellationChangesJobStatusToCancelling
    """
    log = JobLog()
    log.cancel(A)
    assert job_phase(log.state) is JobPhase.CANCELLING
    log.clean(A)
    assert job_phase(log.state) is JobPhase.CANCELED


def test_a_finished_job_is_finished_at_once_and_a_failed_one_is_failed() -> None:
    """A final checkpoint is published before the end: nothing of a finished job is still on its way."""
    log = JobLog()
    log.epoch(A)
    log.finish(A)
    assert job_phase(log.state) is JobPhase.FINISHED
    log.clean(B)
    assert job_phase(log.state) is JobPhase.FINISHED
    failed = JobLog()
    failed.trigger(A)
    failed.abort(A, reason=CheckpointFailureReason.BAD_RECORD)
    assert job_phase(failed.state) is JobPhase.FAILED


# -- cancel ----------------------------------------------------------------------------------------------------------


def test_a_cancel_reaches_the_process_that_runs_the_epoch(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it runs: it finds itself fenced, stops its work, and ends as fenced.

    Case: JobMasterServiceLeadershipRunnerTest.testCancellationIsForwardedToJobMasterService
    """
    monkeypatch.setattr(attempt, "Heartbeat", partial(Heartbeat, interval_s=0.01))
    runner = SparklessRunner()

    def until_stopped(plan: EpochPlan) -> None:
        assert job.master.savepoints.cancel().aborted_checkpoint == 1
        assert runner.told_to_stop.wait(LONG_S)
        raise SubtaskDeclined("its Spark job was cancelled")

    runner.before = until_stopped
    with wording.raises(Fenced):
        job.master.epochs.run(Session.cli(), runner)
    (result,) = job.context.head().state.results
    assert (result.status, result.clean_up) == (JobStatus.CANCELED, CleanUp.CLEAN)


@pytest.mark.parametrize("again", [1, 2])
def test_a_cancel_that_cannot_finish_gives_the_reason(job: SparklessJob, again: int) -> None:
    """The error of what it waits for is its own; the job is canceled nevertheless.

    Case: JobMasterServiceLeadershipRunnerTest.testCancellationFailsWhenExceptionOccurs
    """
    session = Session.cli()
    job.complete(session, job.trigger(session))
    spec = job.folder / "config" / "small.yaml"
    edit_spec(spec, {"name: table,": "name: other,"})
    for _ in range(again):
        with wording.raises(InvalidRequest):
            job.master.savepoints.cancel()
    assert job.master.reports.status().job_status == "cancelling"


# -- grant: the result first -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancel", "finish"])
def test_a_grant_reads_the_result_first(job: SparklessJob, end: str) -> None:
    """An incarnation that has ended is never run again: nothing is planned, claimed or run.

    Case: JobMasterServiceLeadershipRunnerTest.testJobAlreadyDone
    """
    runner = SparklessRunner()
    session = Session.cli()
    job.master.epochs.run(session, runner)
    job.land("b.csv")
    if end == "cancel":
        job.master.savepoints.cancel()
    else:
        job.master.lifecycle.finish(session)
    version = job.context.head().version
    with wording.raises(JobNotRunnable) as refusal:
        job.master.epochs.run(Session.cli(), runner, take_over=True)
    assert refusal.value.hint.startswith("milepost start small")
    assert len(runner.plans) == 1 and job.context.head().version == version


# -- revoke ----------------------------------------------------------------------------------------------------------


def test_the_token_of_an_outdated_leader_grants_nothing() -> None:
    """Its token is refused wherever it is shown; the new one's holds.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterGatewayIsInvalidatedOnLeadershipChanges
    """
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    log.rebind(AIR_1)
    outdated = log.pending
    log.abort(AIR_2, reason=SWEPT, token=outdated.token, swept=True)
    log.trigger(AIR_2, RUN_2)
    assert_refused(log, Fenced, lambda: log.rebind(AIR_1, 1))
    assert_refused(log, Fenced, lambda: log.complete(AIR_1, outdated))
    assert_refused(log, Fenced, lambda: log.trigger(AIR_1, RUN_1))
    _revoked(log, outdated, NEW_RUN)
    assert revocation(log.state, log.pending) is None
    assert isinstance(log.rebind(AIR_2), Transition)


def test_an_outdated_leader_does_not_claim_leadership() -> None:
    """The newest grant decides who leads, whatever an older one still announces.

    Case: JobMasterServiceLeadershipRunnerTest.testLeaderAddressOfOutdatedLeaderIsIgnored
    """
    log = JobLog()
    log.trigger(A)
    first = log.pending
    log.abort(B, reason=SWEPT, token=first.token, swept=True)
    log.trigger(B)
    leader = log.state.timeline().leader
    assert leader is not None and leader.session_id == B
    assert_refused(log, Fenced, lambda: log.rebind(A, int(log.pending.checkpoint_id)))
    assert log.state.timeline().leader == leader
    log.rebind(B)
    leader = log.state.timeline().leader
    assert leader is not None and (leader.session_id, leader.token) == (B, log.pending.token)


def test_the_result_of_an_outdated_leader_is_ignored() -> None:
    """Neither its completion nor its end counts; the job continues under its new leader.

    Case: JobMasterServiceLeadershipRunnerTest.testResultFutureCompletionOfOutdatedLeaderIsIgnored
    """
    log = JobLog()
    log.trigger(A)
    outdated = log.pending
    log.abort(B, reason=SWEPT, token=outdated.token, swept=True)
    log.epoch(B)
    assert_refused(log, Fenced, lambda: log.complete(A, outdated))
    assert_refused(log, Fenced, lambda: log.finish(A, 1))
    log.trigger(B)
    assert_refused(log, Busy, lambda: log.finish(A, 2))
    assert (log.state.status, log.state.results) == (JobStatus.RUNNING, ())


def test_the_running_process_is_shut_down_when_its_leadership_is_lost(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the job has not ended: its next leader runs the same input.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterServiceProcessShutdownOnLeadershipLoss
    """
    monkeypatch.setattr(attempt, "Heartbeat", partial(Heartbeat, interval_s=0.01))
    runner = SparklessRunner()
    newer = Session.cli()

    def until_stopped(plan: EpochPlan) -> None:
        assert triggered(job, newer, take_over=True) == 2
        assert runner.told_to_stop.wait(LONG_S)
        raise SubtaskDeclined("its Spark job was cancelled")

    runner.before = until_stopped
    with wording.raises(Fenced):
        job.master.epochs.run(Session.cli(), runner)
    assert job.context.head().state.results == ()
    assert job.master.epochs.run(newer, SparklessRunner()).checkpoint_id == 2


REVOKES: dict[str, Callable[[SparklessJob], object]] = {
    "abort": lambda job: job.master.lifecycle.abort_running(),
    "cancel": lambda job: job.master.savepoints.cancel(),
    "take over": lambda job: triggered(job, Session.cli(), take_over=True),
}


@pytest.mark.parametrize("how", sorted(REVOKES))
def test_a_revoke_during_start_up_closes_the_half_built_run(job: SparklessJob, how: str) -> None:
    """Between the grant and the first token of `run_epoch`: nothing is started, nothing is staged."""
    session, runner = Session.cli(), SparklessRunner()
    checkpoint_id = triggered(job, session)
    REVOKES[how](job)
    with wording.raises(Fenced):
        job.master.epochs.run_epoch(session, checkpoint_id, runner)
    assert runner.plans == [] and job.staged_files(checkpoint_id) == []


def test_of_ten_changes_of_leadership_only_the_last_one_runs(job: SparklessJob) -> None:
    """What was granted and revoked before anybody came to run it is skipped.

    Case: JobMasterServiceLeadershipRunnerTest.testSkippingOfEnqueuedLeadershipOperations
    """
    sessions = [Session.cli() for _ in range(10)]
    granted = [(session, triggered(job, session, take_over=True)) for session in sessions]
    runner = SparklessRunner()
    for session, checkpoint_id in granted[:-1]:
        with pytest.raises(Fenced):
            job.master.epochs.run_epoch(session, checkpoint_id, runner)
    session, checkpoint_id = granted[-1]
    job.master.epochs.run_epoch(session, checkpoint_id, runner)
    assert [int(plan.checkpoint_id) for plan in runner.plans] == [10]


def test_a_grant_waits_until_the_older_one_is_revoked() -> None:
    """One at a time: while another session's checkpoint is pending, no session is granted the timeline.

    Case: JobMasterServiceLeadershipRunnerTest.testConcurrentLeadershipOperationsBlockingClose
    """
    log = JobLog()
    log.trigger(A)
    assert_refused(log, Busy, lambda: log.trigger(B))
    log.abort(B, reason=SWEPT, token=log.pending.token, swept=True)
    assert isinstance(log.trigger(B), Transition)


# -- the end of a process is not the end of the job -------------------------------------------------------------------


def test_a_process_that_is_closed_gives_its_epoch_up_and_leaves_the_job_unfinished(job: SparklessJob) -> None:
    """Ctrl-C: no result is stored, and the next run takes the same input.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterServiceProcessIsTerminatedOnClose
    Case: JobMasterServiceLeadershipRunnerTest.testShutDownSignalsJobAsNotFinished
    """

    def interrupted(plan: EpochPlan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=interrupted))
    state = job.context.head().state
    assert (state.status, state.results, state.timeline().pending) == (JobStatus.RUNNING, (), None)
    assert job.master.reports.show(1).failure_reason == "INTERRUPTED"
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == 2


def no_java(plan: EpochPlan) -> None:
    raise EnvironmentUnusable("there is no Java")


def bad_row(plan: EpochPlan) -> None:
    raise SubtaskDeclined("line 3 is no number", reason="BAD_RECORD")


@pytest.mark.parametrize(
    ("failure", "error", "reason", "status"),
    [
        (no_java, EnvironmentUnusable, "ENVIRONMENT_UNUSABLE", "running"),
        (bad_row, SubtaskDeclined, "BAD_RECORD", "failed"),
    ],
)
def test_the_error_of_a_run_reaches_its_caller(
    job: SparklessJob, failure: Callable[[EpochPlan], None], error: type[Exception], reason: str, status: str
) -> None:
    """When it could not even begin, and when it failed on the way.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterServiceProcessCreationFailureIsForwardedToResultFuture
    Case: JobMasterServiceLeadershipRunnerTest.testExceptionallyCompletedResultFutureFromJobMasterServiceProcessIsForwarded
    """  # noqa: E501
    with wording.raises(error):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=failure))
    told = job.master.reports.status()
    assert (told.job_status, told.last_failure) == (status, reason)


def test_a_job_that_cannot_be_initialized_fails_with_the_cause(job: SparklessJob) -> None:
    """The state it would start from is damaged: FAILED, with the reason, and not an epoch that hangs.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterCreationFailureCompletesJobManagerRunnerWithInitializationError
    """  # noqa: E501
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner)
    job.land("b.csv")
    session = Session.cli()
    checkpoint_id = triggered(job, session)
    head = job.context.head().state.head()
    assert head is not None
    (job.folder / "store" / "small" / head.metadata.key).write_bytes(b"{}")
    with pytest.raises(StateCorrupt) as damage:
        job.master.epochs.run_epoch(session, checkpoint_id, runner)
    answer = job.master.epochs.abort(session, checkpoint_id, "STATE_CORRUPT", damage.value.message)
    assert answer.job_status == "failed" and len(runner.plans) == 1
    with wording.raises(JobNotRunnable):
        job.master.triggers.trigger(Session.cli())


def test_an_error_while_closing_a_job_reaches_the_caller(job: SparklessJob) -> None:
    """The end itself is durable; the next command closes what is left.

    Case: JobMasterServiceLeadershipRunnerTest.testJobMasterServiceProcessClosingExceptionIsForwardedToResultFuture
    """
    session = Session.cli()
    job.master.epochs.run(session, SparklessRunner())
    master = job.master
    closing = master.context.store
    writes: list[str] = []

    def before(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("manifest/"):
            writes.append(key)
            if len(writes) > 1:
                raise StoreUnavailable("no answer")
        if operation == "get" and len(writes) > 1:
            raise StoreUnavailable("no answer")

    master.context.__dict__["store"] = HookedStore(closing, before=before)
    with wording.raises(CommitOutcomeUnknown):
        master.lifecycle.finish(session)
    assert job.master.reports.status().result.clean_up == "dirty"
    assert job.master.savepoints.cancel().outcome == "already_finished"
    assert job.master.reports.status().result.clean_up == "clean"


def test_leading_is_judged_by_the_checkpoint_and_its_token() -> None:
    """A newer try of the same session is another leader; completed and forgotten checkpoints are distinguished."""
    log = JobLog()
    log.trigger(A)
    first = log.pending
    log.rebind(A)
    _revoked(log, first, NEWER_TRY)
    second = log.pending
    log.complete(A)
    assert revocation(log.state, second) is None
    log.trigger(A)
    third = log.pending
    log.cancel(B)
    log.confirm(B, 1)
    log.clean(B)
    log.start(B)
    _revoked(log, third, NEW_RUN)


def test_asking_for_an_end_again_is_answered_as_done() -> None:
    log = JobLog()
    log.epoch(A)
    log.finish(A)
    assert isinstance(log.finish(B, 7), AlreadyDone)
    assert isinstance(log.cancel(B), AlreadyDone)
