"""End of data: the last snapshot, the final checkpoint, and their order (the rules of Flink's FLIP-147)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import Busy, CheckpointError, Fenced, JobNotRunnable, ProtocolViolation
from milepost.jobmaster import Triggered
from milepost.jobmaster.job.session import Session
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.subtask.subtask_commands import (
    AcknowledgeCheckpoint,
    AwaitUpload,
    DeclineCheckpoint,
)
from milepost.protocol.subtask.task_lifecycle import TaskState
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.tasks.input_gate import Data, End, InputGate, timeoutable, unaligned
from milepost_testkit.tasks.input_gate import barrier as aligned
from milepost_testkit.tasks.subtask_driver import barrier
from milepost_testkit.tasks.task_driver import TaskDriver


def finished(checkpoint_id: int) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(CheckpointId(checkpoint_id), finished=True)


def test_a_subtask_whose_data_ended_still_takes_checkpoints() -> None:
    """Case: StreamTaskFinalCheckpointsTest.testCheckpointDoneOnFinishedOperator"""
    task = TaskDriver()
    task.life.end_of_data(CheckpointId(2))
    assert (task.life.state, task.life.refusal()) == (TaskState.DRAINED, None)
    for checkpoint_id in (2, 3):
        task.checkpoint(barrier(checkpoint_id), finished=True)
        task.end_upload(checkpoint_id)
    assert task.acknowledged() == [finished(2), finished(3)]


def test_the_snapshot_after_the_end_of_the_data_says_that_it_is_the_last() -> None:
    """Case: StreamTaskFinalCheckpointsTest.testReportOperatorsFinishedInCheckpoint"""
    task = TaskDriver()
    task.checkpoint(barrier(1))
    task.life.end_of_data(CheckpointId(2))
    task.checkpoint(barrier(2), finished=True)
    for checkpoint_id in (1, 2):
        task.end_upload(checkpoint_id)
    assert [answer.finished for answer in task.acknowledged()] == [False, True]


def test_a_subtask_ends_only_after_a_checkpoint_that_was_begun_after_its_data() -> None:
    task = TaskDriver(restored=4)
    task.checkpoint(barrier(5))
    with wording.raises(ProtocolViolation):
        task.life.end_of_data(CheckpointId(5))
    task.life.end_of_data(CheckpointId(6))
    with wording.raises(ProtocolViolation):
        task.life.finish()
    assert task.life.state is TaskState.DRAINED
    with wording.raises(ProtocolViolation):
        task.life.end_of_data(CheckpointId(7))
    task.end_upload(5)
    task.checkpoint(barrier(7), finished=True)
    task.end_upload(7)
    assert task.life.finish() == ()
    assert task.life.state is TaskState.CLOSING
    assert task.life.close() == ()
    assert task.life.state is TaskState.FINISHED


def test_a_subtask_waits_for_running_uploads_before_it_closes() -> None:
    """Whatever becomes of an upload, the subtask ends; what was acknowledged meanwhile stays.

    Case: StreamTaskFinalCheckpointsTest.testWaitingForPendingCheckpointsOnFinished
    """
    task = TaskDriver()
    task.checkpoint(barrier(1))
    task.checkpoint(barrier(2))
    assert task.life.finish() == (AwaitUpload(CheckpointId(1)), AwaitUpload(CheckpointId(2)))
    assert task.acknowledged() == []
    assert (task.life.running, task.life.answers) == (False, True)
    task.fail_upload(1, running=task.life.answers)
    task.end_upload(2)
    assert [answer.checkpoint_id for answer in task.acknowledged()] == [2]
    assert [one.checkpoint_id for one in task.all(DeclineCheckpoint)] == [1]
    assert task.life.close() == ()
    assert task.life.close() == ()


@pytest.mark.parametrize("kind", ["aligned", "timeoutable", "unaligned"])
def test_checkpoints_continue_while_inputs_end_one_after_another(kind: str) -> None:
    """An ended channel is not waited for; when all have ended, the subtask is triggered like a source.

    Case: StreamTaskFinalCheckpointsTest.testTriggeringAlignedNoTimeoutCheckpointWithFinishedChannels
    Case: StreamTaskFinalCheckpointsTest.testTriggeringAlignedWithTimeoutCheckpointWithFinishedChannels
    Case: StreamTaskFinalCheckpointsTest.testTriggeringUnalignedCheckpointWithFinishedChannels
    """
    gate, task = InputGate(3), TaskDriver()

    def arrives(checkpoint_id: int, *channels: int) -> None:
        for channel in channels:
            of = {
                "aligned": aligned(checkpoint_id),
                "timeoutable": timeoutable(checkpoint_id, gate.now_ms, 1_000),
                "unaligned": unaligned(checkpoint_id),
            }
            gate.send(channel, Data(f"{channel}"), of[kind])

    arrives(2, 0, 1, 2)
    task.follow(gate)
    gate.send(0, End())
    arrives(4, 1, 2)
    task.follow(gate)
    gate.send(1, Data("1"), End())
    assert gate.blocked == set()
    gate.send(2, Data("2"))
    arrives(6, 2)
    task.follow(gate)
    gate.send(2, End())
    assert gate.handler.open_channels == frozenset()
    task.life.end_of_data(CheckpointId(7))
    task.checkpoint(barrier(7), finished=True)
    for checkpoint_id in (2, 4, 6, 7):
        task.end_upload(checkpoint_id)
    assert [int(answer.checkpoint_id) for answer in task.acknowledged()] == [2, 4, 6, 7]
    assert task.acknowledged()[-1] == finished(7)
    assert gate.aborted == []
    assert task.life.finish() == ()


def test_an_input_that_ends_while_its_barrier_is_awaited_completes_the_checkpoint() -> None:
    gate, task = InputGate(2), TaskDriver()
    gate.send(0, aligned(2))
    task.follow(gate)
    assert task.coordinator.pending_ids == frozenset()
    gate.send(1, End())
    task.follow(gate)
    assert task.coordinator.pending_ids == {2}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """Two epochs of input."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.land("b.csv", "k,v\n2,b\n")
    return job


def refused(job: SparklessJob, session: Session, final: int, error: type[CheckpointError]) -> None:
    with pytest.raises(error):
        job.master.lifecycle.finish(session, CheckpointId(final))
    assert job.context.head().state.status is JobStatus.RUNNING


def test_a_job_waits_for_its_final_checkpoint_to_be_complete_and_published(job: SparklessJob) -> None:
    """A subtask's process ends with its epoch; what waits for the completion is the job.

    Case: StreamTaskFinalCheckpointsTest.testWaitingForFinalCheckpoint
    """
    session = Session.cli()
    pending = job.trigger(session)
    refused(job, session, pending.checkpoint_id, Fenced)
    final = job.complete(session, pending).checkpoint_id
    refused(job, session, final, JobNotRunnable)
    job.master.epochs.notify_complete(session, final, "table")
    job.master.lifecycle.finish(session, final)
    assert job.context.head().state.status is JobStatus.FINISHED


def test_any_later_checkpoint_that_completes_ends_the_wait_as_well(job: SparklessJob) -> None:
    """The first checkpoint after the end of the data is aborted; then the next one is the final one.

    Case: StreamTaskFinalCheckpointsTest.testWaitingForFinalCheckpointNotTheFirsNotifiedComplete
    """
    first = Session.cli()
    given_up = job.trigger(first).checkpoint_id
    job.master.epochs.abort(first, given_up, "ABORTED_BY_USER", "not now")
    refused(job, first, given_up, Fenced)
    session = Session.cli()
    final = job.complete(session, job.trigger(session)).checkpoint_id
    assert final > given_up
    job.master.epochs.notify_complete(session, final, "table")
    refused(job, first, given_up, Fenced)
    job.master.lifecycle.finish(session, final)
    assert job.context.head().state.status is JobStatus.FINISHED


def test_a_job_does_not_finish_under_an_epoch_that_runs(job: SparklessJob) -> None:
    final = job.epoch()
    session = Session.cli()
    assert isinstance(job.master.triggers.trigger(session), Triggered)
    refused(job, session, final, Busy)
