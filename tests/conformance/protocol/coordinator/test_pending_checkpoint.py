"""A pending checkpoint: accepted answers, what an abort discards, and missing acknowledgements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.codec.records import to_json
from milepost.epoch.plan import EpochPlan
from milepost.errors import Fenced, ProtocolViolation, QualityGateFailed, SubtaskDeclined
from milepost.jobmaster import Session
from milepost.jobmaster.reports.checkpoint.document import Acks
from milepost.protocol.exchange.acknowledgements import (
    Acknowledgement,
    ConsumedAttempt,
    SubtaskAnswer,
    TaskAcknowledgeResult,
    verify,
)
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy, subsumable
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import EXPECTED, A, B, JobLog, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

CHECKPOINT, TOKEN = CheckpointId(1), FencingToken(3)
SENDERS = (ConsumedAttempt(0, 0, "a0"), ConsumedAttempt(0, 1, "a1"))
ANSWERS = (
    Acknowledgement(CHECKPOINT, TOKEN, 0, 0, "a0", ()),
    Acknowledgement(CHECKPOINT, TOKEN, 0, 1, "a1", ()),
    Acknowledgement(CHECKPOINT, TOKEN, 1, 0, "b0", SENDERS),
)


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,a\n2,b\n")
    return job


def decline(reason: CheckpointFailureReason, checkpoint_id: int = 1, token: int = 3) -> Decline:
    return Decline(CheckpointId(checkpoint_id), FencingToken(token), 0, 1, reason, "why")


def declined(*answers: SubtaskAnswer) -> str:
    with pytest.raises(SubtaskDeclined) as caught:
        verify(CHECKPOINT, TOKEN, EXPECTED, answers)
    return str(caught.value.details["reason"])


def test_a_checkpoint_completes_when_every_subtask_has_acknowledged() -> None:
    """It completes with the last acknowledgement, and only once; then nothing is pending and ids increase.

    Case: CheckpointCoordinatorTest.testTriggerAndConfirmSimpleCheckpoint
    """
    log = JobLog()
    log.trigger(A)
    log.rebind(A)
    for missing in range(len(ANSWERS)):
        assert declined(*ANSWERS[:missing], *ANSWERS[missing + 1 :]) == "ACKNOWLEDGEMENT_MISSING"
        some = EXPECTED[:missing] + EXPECTED[missing + 1 :]
        assert_refused(log, SubtaskDeclined, lambda some=some: log.complete(A, acknowledged=some))
    verified = verify(CHECKPOINT, TOKEN, EXPECTED, reversed(ANSWERS))
    assert isinstance(log.complete(A, acknowledged=verified.subtasks()), Transition)
    assert (log.state.timeline().head, log.state.timeline().pending) == (1, None)
    assert log.epoch(B) == 2


def test_unexpected_answers_are_counted_and_ignored() -> None:
    """Of a subtask that is not expected; of an older try, or of another checkpoint; and a second copy.

    Case: CheckpointCoordinatorTest.testStateCleanupForLateOrUnknownMessages
    """
    late = [replace(answer, token=FencingToken(2), attempt_digest="old") for answer in ANSWERS]
    foreign = replace(ANSWERS[0], checkpoint_id=CheckpointId(7))
    unknown = replace(ANSWERS[0], level=5)
    verified = verify(CHECKPOINT, TOKEN, EXPECTED, [*late, foreign, unknown, *ANSWERS, ANSWERS[1]])
    assert verified.acknowledgements == ANSWERS
    assert verified.results == {
        TaskAcknowledgeResult.SUCCESS: 3,
        TaskAcknowledgeResult.DUPLICATE: 1,
        TaskAcknowledgeResult.UNKNOWN: 1,
        TaskAcknowledgeResult.DISCARDED: 4,
    }


def test_objects_written_by_a_late_try_are_garbage_of_its_checkpoint() -> None:
    """Its answers are refused and its prefix is listed, so a late message leaves no state behind.

    A newer try that completes subsumes the older ones; no others can be in flight.

    Case: CheckpointCoordinatorTest.testSuccessfulCheckpointSubsumesUnsuccessful
    """
    log = JobLog()
    log.trigger(A)
    log.rebind(A)
    old = log.pending
    log.rebind(A)
    new = log.pending
    assert_refused(log, Fenced, lambda: log.complete(A, old))
    log.complete(A, new)
    prefixes = {entry.prefix for entry in log.state.garbage}
    assert token_prefix(old.checkpoint_id, old.token) in prefixes
    assert token_prefix(new.checkpoint_id, new.token) not in prefixes
    again = log.complete(A, old)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_COMPLETED


def test_messages_about_checkpoints_that_do_not_exist_change_nothing() -> None:
    """Never triggered: a violation. Given up long ago: nothing to do, or fenced.

    Case: CheckpointCoordinatorTest.testHandleMessagesForNonExistingCheckpoints
    """
    log = JobLog()
    log.trigger(A)
    pending = log.pending
    unknown = replace(pending, checkpoint_id=CheckpointId(9))
    for call in (
        lambda: log.complete(A, unknown),
        lambda: log.abort(A, 9),
        lambda: log.rebind(A, 9),
        lambda: log.confirm(A, 9),
    ):
        assert_refused(log, ProtocolViolation, call)
    log.abort(A)
    assert_refused(log, Fenced, lambda: log.complete(A, pending))
    assert declined(decline(CheckpointFailureReason.BAD_RECORD, checkpoint_id=9)) == "ACKNOWLEDGEMENT_MISSING"


@pytest.mark.parametrize(
    ("case", "reason"),
    [("synchronous", "OPERATOR_ERROR"), ("asynchronous", "CHECKPOINT_ASYNC_EXCEPTION")],
)
def test_a_decline_aborts_its_checkpoint_with_its_own_reason(job: SparklessJob, case: str, reason: str) -> None:
    """In the synchronous or the asynchronous part of the snapshot: nothing completes, nothing stays pending.

    Case: CheckpointCoordinatorTest.testTriggerAndDeclineSyncCheckpointFailureSimple
    Case: CheckpointCoordinatorTest.testTriggerAndDeclineAsyncCheckpointFailureSimple
    """

    def one_declines(answers: tuple[SubtaskAnswer, ...]) -> tuple[SubtaskAnswer, ...]:
        last = answers[-1]
        refusal = Decline(
            last.checkpoint_id, last.token, last.level, last.subtask, CheckpointFailureReason[reason], case
        )
        return (*answers[:-1], refusal)

    with wording.raises(SubtaskDeclined):
        job.master.epochs.run(Session.cli(), SparklessRunner(answers=one_declines))
    state = job.context.head().state
    assert (state.checkpoints, state.timeline().pending) == ((), None)
    assert (state.failures.last_reason, state.status) == (reason, JobStatus.FAILED)
    assert job.staged_files(1) == []


def test_a_late_decline_of_an_aborted_checkpoint_does_not_affect_the_next_one() -> None:
    """Neither as an answer that travels with the data, nor as an abort that comes too late.

    Case: CheckpointCoordinatorTest.testTriggerAndDeclineCheckpointComplex
    """
    log = JobLog()
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.CHECKPOINT_DECLINED, tolerable=9)
    log.trigger(A)
    log.rebind(A)
    again = log.abort(A, 1, CheckpointFailureReason.CHECKPOINT_DECLINED)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.NOT_PENDING
    answers = [replace(answer, checkpoint_id=log.pending.checkpoint_id, token=log.pending.token) for answer in ANSWERS]
    late = decline(CheckpointFailureReason.BAD_RECORD)
    verified = verify(log.pending.checkpoint_id, log.pending.token, EXPECTED, [late, *answers])
    assert verified.results[TaskAcknowledgeResult.DISCARDED] == 1
    assert isinstance(log.complete(A, acknowledged=verified.subtasks()), Transition)
    assert (log.state.timeline().head, log.state.failures.consecutive) == (2, 0)


def test_an_abort_discards_state_and_staged_output(job: SparklessJob) -> None:
    """Staged files are deleted immediately; the state's prefixes are listed, and deleted by a later leader.

    Case: PendingCheckpointTest.testAbortDiscardsState
    Case: PendingCheckpointTest.testDisposeDisposesCoordinatorStates
    Case: CheckpointCoordinatorTest.testNotifyCheckpointAbortionInOperatorCoordinator
    """
    staged: list[str] = []

    def veto(plan: EpochPlan) -> None:
        staged.extend(job.staged_files(1))
        raise QualityGateFailed("no")

    with pytest.raises(QualityGateFailed):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=veto))
    assert len(staged) == 2
    assert job.staged_files(1) == []
    state = job.context.head().state
    written = [stat.key for stat in job.context.store.list("chk-")]
    assert any("/state/" in key for key in written)
    assert all(any(key.startswith(entry.prefix) for entry in state.garbage) for key in written)


def test_sinks_owe_their_confirmation_from_the_commit_point_on() -> None:
    """None has confirmed before; each confirms for itself, in any order, and then nothing is owed.

    Case: PendingCheckpointTest.testInitiallyUnacknowledgedCoordinatorStates
    Case: PendingCheckpointTest.testAcknowledgedCoordinatorStates
    """
    log = JobLog()
    log.trigger(A)
    log.complete(A, sinks=("lake", "late"))
    assert log.state.checkpoints[0].unconfirmed == ("lake", "late")
    assert isinstance(log.confirm(A, 1, "late"), Transition)
    assert log.state.checkpoints[0].unconfirmed == ("lake",)
    assert isinstance(log.confirm(B, 1, "lake"), Transition)
    assert log.state.unconfirmed() == ()


def test_a_sink_that_confirms_twice_has_confirmed_once() -> None:
    """Case: PendingCheckpointTest.testDuplicateAcknowledgeCoordinator"""
    log = JobLog()
    log.epoch(A)
    before = log.state
    again = log.confirm(A, 1)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_CONFIRMED
    assert log.state == before


def test_a_sink_the_checkpoint_does_not_have_cannot_confirm_it() -> None:
    """Case: PendingCheckpointTest.testAcknowledgeUnknownCoordinator"""
    log = JobLog()
    log.epoch(A, confirm=False)
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 1, "other"))


def test_a_repeated_request_returns_how_the_checkpoint_ended() -> None:
    """Completed or aborted: the first answer stays the answer, for its session and for any other (I9).

    Case: PendingCheckpointTest.testCompletionFuture
    """
    log = JobLog()
    log.trigger(A)
    first = log.pending
    log.complete(A)
    log.confirm(A, 1)
    for answer in (log.complete(A, first), log.abort(A, 1), log.abort(B, 1)):
        assert isinstance(answer, AlreadyDone)
        assert (answer.outcome, answer.completed) == (Outcome.ALREADY_COMPLETED, log.state.head())
    log.trigger(A)
    second = log.pending
    log.abort(A)
    assert_refused(log, Fenced, lambda: log.complete(A, second))
    gone = log.abort(A, 2)
    assert isinstance(gone, AlreadyDone) and gone.outcome is Outcome.NOT_PENDING


def test_a_checkpoint_can_be_subsumed_and_a_savepoint_cannot() -> None:
    """A newer checkpoint takes the place of the one; the other belongs to a person.

    Case: PendingCheckpointTest.testCanBeSubsumed
    Case: CheckpointCoordinatorTest.testSavepointsAreNotSubsumed
    """
    log = JobLog()
    for _ in range(3):
        log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)
    log.record_savepoint(A, 1)
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1, 2)))
    assert isinstance(log.subsume(A, (2,)), Transition)
    assert [checkpoint.checkpoint_id for checkpoint in log.state.checkpoints] == [1, 3]


def test_the_master_s_own_part_is_in_the_checkpoint(job: SparklessJob) -> None:
    """Positions, sinks and the verdict; a source without event time has no watermark, and that is stored too.

    Case: PendingCheckpointTest.testMasterState
    Case: PendingCheckpointTest.testMasterStateWithNullState
    """
    job.master.epochs.run(Session.cli(), SparklessRunner())
    head = job.context.head().state.head()
    assert head is not None
    metadata = job.context.metadata(head)
    assert (metadata.sources["rows"].rows, metadata.sources["rows"].objects) == (2, 1)
    assert metadata.sources["rows"].watermark_us is None
    assert metadata.sinks["table"].rows == 2
    contents = metadata.tables["table"]
    assert (contents.checkpoint_id, contents.rows, len(contents.records)) == (1, 2, 1)
    assert to_json(metadata.verdict)["status"] == "skipped"


def test_a_subtask_without_state_is_acknowledged_and_refers_to_nothing(job: SparklessJob) -> None:
    """One key, two subtasks: the one that owns it hands in a run, the other an empty state; both count as answers.

    Case: PendingCheckpointTest.testNullSubtaskStateLeadsToStatelessTask
    Case: PendingCheckpointTest.testNonNullSubtaskStateLeadsToStatefulTask
    """
    (job.folder / "landing" / "a.csv").write_text("k,v\n1,a\n")
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).acks == Acks(3, 3)
    head = job.context.head().state.head()
    assert head is not None
    metadata = job.context.metadata(head)
    handles = metadata.operators["latest"].handles
    assert sorted(len(handle.runs) for handle in handles) == [0, 1]
    assert sorted(handle.live_rows for handle in handles) == [0, 1]
    written = {stat.key for stat in job.context.store.list("chk-") if "/state/" in stat.key}
    assert written == {run.key for handle in handles for run in handle.runs}


def test_the_last_checkpoint_of_a_job_reports_its_participants_as_finished(job: SparklessJob) -> None:
    """`run --drain`: every source has ended in it, and in none before; then the job itself is FINISHED.

    Case: PendingCheckpointTest.testReportTaskFinishedOperators
    """
    finished = []
    for drain in (False, True):
        result = job.master.epochs.run(Session.cli(), SparklessRunner(), drain=drain)
        head = job.context.head().state.head()
        assert head is not None and head.checkpoint_id == result.checkpoint_id
        finished.append([source.finished for source in job.context.metadata(head).sources.values()])
    assert finished == [[False], [True]]
    assert job.master.reports.status().job_status == "finished"
