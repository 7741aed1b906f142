"""Lifecycle of a subtask from restore to end: the rules of Flink's StreamTask, applied to ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import Fenced, ProtocolViolation, SubtaskDeclined
from milepost.jobmaster.job.session import Session
from milepost.protocol.manifest.timelines.incarnation import finish
from milepost.protocol.manifest.transaction.requests import FinishRequest
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.layout import MANIFEST_PREFIX
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import Alignment
from milepost.protocol.subtask.subtask import SubtaskCommand
from milepost.protocol.subtask.subtask_commands import (
    AbortChannelState,
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelUpload,
    DeclineCheckpoint,
    DiscardSnapshot,
    NotifyOperators,
    NotifyState,
    RecordIncomplete,
)
from milepost.protocol.subtask.subtask_commands import Notification as Told
from milepost.protocol.subtask.task_lifecycle import TaskLifecycle, TaskState
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.storage.local.store import LocalStore
from milepost.storage.requests import StoreRequests
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store
from milepost_testkit.tasks.dataplane import SCHEMA, DataPlane
from milepost_testkit.tasks.input_gate import unaligned
from milepost_testkit.tasks.subtask_driver import barrier, data
from milepost_testkit.tasks.task_driver import TaskDriver

Reason = CheckpointFailureReason
ENDS: list[Callable[[TaskLifecycle], object]] = [TaskLifecycle.finish, TaskLifecycle.fail, TaskLifecycle.close]


def test_a_repeated_or_replayed_completion_counts_once() -> None:
    """I11: an abort carries the latest completed id, which repairs a completion that was lost.

    Case: StreamTaskTest.testSkipRepeatCheckpointComplete
    """
    task = TaskDriver()
    task.complete(3)
    task.abort(5, latest_completed=3)
    task.abort(10, latest_completed=8)
    task.complete(8)
    assert task.told(Told.COMPLETE) == [3, 8]
    assert task.told(Told.ABORTED) == [5, 10]
    assert task.life.last_reported == 8


def test_completions_before_the_restored_checkpoint_are_not_reported() -> None:
    """Case: StreamTaskTest.testIgnoreCompleteCheckpointBeforeStartup"""
    task = TaskDriver(restored=3)
    task.complete(2)
    task.abort(4, latest_completed=3)
    task.complete(5)
    task.abort(7, latest_completed=6)
    assert task.told(Told.COMPLETE) == [5, 6]
    assert task.told(Told.ABORTED) == [4, 7]


def test_a_replayed_completion_is_reported_before_its_abort() -> None:
    task = TaskDriver()
    task.abort(7, latest_completed=6)
    told = [(command.what, command.checkpoint_id) for command in task.said if isinstance(command, NotifyOperators)]
    assert told == [(Told.COMPLETE, 6), (Told.ABORTED, 7)]


def test_a_confirmation_reports_complete_before_subsumed() -> None:
    """The order of the confirmation message, also when the completion itself is known already."""
    task = TaskDriver()
    task.execute(task.life.confirm(CheckpointId(5), CheckpointId(4)))
    task.execute(task.life.confirm(CheckpointId(5), CheckpointId(4)))
    task.execute(task.life.confirm(CheckpointId(6), NO_CHECKPOINT))
    told = [(command.what, command.checkpoint_id) for command in task.said if isinstance(command, NotifyOperators)]
    assert told == [(Told.COMPLETE, 5), (Told.SUBSUMED, 4), (Told.SUBSUMED, 4), (Told.COMPLETE, 6)]


def test_a_subtask_is_restored_once() -> None:
    """Case: StreamTaskTest.testRestorePerformedOnlyOnce"""
    life = TaskLifecycle("join/0")
    life.restore(CheckpointId(3))
    with wording.raises(ProtocolViolation):
        life.restore(CheckpointId(4))
    assert (life.state, life.last_reported) == (TaskState.RUNNING, 3)


def test_nothing_runs_before_the_restore_and_everything_after_it() -> None:
    """Case: StreamTaskTest.testRestorePerformedFromInvoke"""
    life = TaskLifecycle("join/0")
    for early in (
        lambda: life.coordinator,
        lambda: life.notify_complete(CheckpointId(1)),
        lambda: life.notify_aborted(CheckpointId(1), CheckpointId(0)),
        lambda: life.confirm(CheckpointId(1), None),
        life.finish,
        lambda: life.end_of_data(CheckpointId(1)),
    ):
        with wording.raises(ProtocolViolation):
            early()
    assert (life.state, life.last_reported, life.running) == (TaskState.CREATED, 0, False)
    life.restore(CheckpointId(0))
    assert life.running
    assert life.refusal() is None


def test_a_checkpoint_triggered_before_the_restore_is_declined_and_cancelled_downstream() -> None:
    """Receivers must not wait for a barrier that will never come."""
    life = TaskLifecycle("join/0")
    reason = Reason.CHECKPOINT_DECLINED_TASK_NOT_READY
    assert life.refuse(CheckpointId(9)) == (
        BroadcastCancelMarker(CheckpointId(9)),
        DeclineCheckpoint(CheckpointId(9), reason, "subtask join/0 is created"),
    )
    life.restore(CheckpointId(0))
    assert life.refuse(CheckpointId(9)) == ()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (TaskLifecycle.finish, Reason.CHECKPOINT_DECLINED_TASK_CLOSING),
        (TaskLifecycle.close, Reason.CHECKPOINT_DECLINED_TASK_CLOSING),
        (TaskLifecycle.fail, Reason.TASK_FAILURE),
    ],
)
def test_a_subtask_at_its_end_refuses_a_checkpoint_with_a_reason(
    end: Callable[[TaskLifecycle], object], reason: CheckpointFailureReason
) -> None:
    task = TaskDriver()
    end(task.life)
    assert task.life.refusal() is reason
    assert [type(command) for command in task.life.refuse(CheckpointId(2))] == [
        BroadcastCancelMarker,
        DeclineCheckpoint,
    ]


@pytest.mark.parametrize("end", ENDS)
def test_a_checkpoint_of_a_closed_subtask_takes_no_snapshot_and_breaks_nothing(
    end: Callable[[TaskLifecycle], object],
) -> None:
    """Case: StreamTaskTest.testCheckpointFailueOnClosedOperator"""
    task = TaskDriver()
    end(task.life)
    task.execute(task.life.close())
    task.checkpoint(barrier(1))
    assert [type(command) for command in task.order] == [AbortChannelState]
    assert task.coordinator.pending_ids == frozenset()


@pytest.mark.parametrize("end", ENDS)
def test_closed_operators_get_no_notification_and_local_state_gets_all(
    end: Callable[[TaskLifecycle], object],
) -> None:
    """Case: StreamTaskTest.testNotifyCheckpointOnClosedOperator"""
    task = TaskDriver()
    task.complete(1)
    end(task.life)
    task.complete(2)
    task.abort(3, latest_completed=2)
    assert task.told(Told.COMPLETE) == [1]
    assert task.told(Told.ABORTED) == []
    assert task.said[-2:] == [
        NotifyState(CheckpointId(2), Told.COMPLETE),
        NotifyState(CheckpointId(3), Told.ABORTED),
    ]


@pytest.mark.parametrize(
    "notify",
    [
        pytest.param(lambda life: life.notify_complete(CheckpointId(1)), id="complete"),
        pytest.param(lambda life: life.notify_aborted(CheckpointId(1), CheckpointId(0)), id="aborted"),
    ],
)
def test_a_notification_that_raises_fails_the_subtask(
    notify: Callable[[TaskLifecycle], tuple[SubtaskCommand, ...]],
) -> None:
    """The effect of the notification on the operator is unknown, so nothing of it is snapshotted any longer.

    Case: StreamTaskTest.testFailToConfirmCheckpointCompleted
    Case: StreamTaskTest.testFailToConfirmCheckpointAborted
    """
    task = TaskDriver()
    task.checkpoint(barrier(2))
    broken = [command for command in notify(task.life) if isinstance(command, NotifyOperators)]
    assert broken, "the operators are told, and one of them raises"
    task.execute(task.life.fail())
    assert task.life.state is TaskState.FAILED
    assert task.life.refusal() is Reason.TASK_FAILURE
    assert DiscardSnapshot(CheckpointId(2)) in task.said
    task.end_upload(2)
    assert task.acknowledged() == []


def test_an_error_while_a_subtask_restores_is_not_lost() -> None:
    """Case: StreamTaskTest.testHandleAsyncExceptionDuringRestoring"""
    life = TaskLifecycle("join/0")
    assert life.fail() == ()
    assert (life.state, life.refusal()) == (TaskState.FAILED, Reason.TASK_FAILURE)
    with wording.raises(ProtocolViolation):
        life.restore(CheckpointId(1))


def test_a_subtask_may_be_canceled_before_it_is_restored() -> None:
    """Case: StreamTaskTest.testEarlyCanceling"""
    life = TaskLifecycle("join/0")
    assert life.close() == ()
    assert life.close() == ()
    assert life.state is TaskState.CANCELED
    with wording.raises(ProtocolViolation):
        life.restore(CheckpointId(1))


def finish_and_close(life: TaskLifecycle) -> object:
    return life.finish(), life.close()


def test_the_first_end_counts() -> None:
    """A failed subtask that is canceled stays failed; closing a finished one does not cancel it."""
    for first, others in (
        (TaskLifecycle.fail, ENDS[1:]),
        (TaskLifecycle.close, ENDS[1:]),
        (finish_and_close, ENDS[1:]),
    ):
        task = TaskDriver()
        first(task.life)
        state = task.life.state
        for other in others:
            assert other(task.life) == ()
        task.life.close()
        assert task.life.state is state
        with wording.raises(ProtocolViolation):
            task.life.finish()


@pytest.mark.parametrize("stored", [True, False], ids=["acknowledged", "still uploading"])
def test_a_cancel_discards_only_unacknowledged_checkpoints(stored: bool) -> None:
    """Case: StreamTaskTest.testAsyncCheckpointingConcurrentCloseAfterAcknowledge
    Case: StreamTaskTest.testAsyncCheckpointingConcurrentCloseBeforeAcknowledge
    """
    task = TaskDriver()
    task.in_flight = [data(10)]
    task.take(unaligned(17))
    if stored:
        task.end_upload(17)
    task.execute(task.life.close())
    if stored:
        assert task.acknowledged() == [AcknowledgeCheckpoint(CheckpointId(17), finished=False)]
        assert task.all(DiscardSnapshot) == []
    else:
        gone = CheckpointId(17)
        assert task.said[-3:] == [CancelUpload(gone), DiscardSnapshot(gone), RecordIncomplete(gone)]
        task.end_upload(17)  # the part that was running comes to its end after the cancel
        assert task.acknowledged() == []
        assert task.all(DiscardSnapshot) == [DiscardSnapshot(CheckpointId(17))] * 2
    assert task.all(DeclineCheckpoint) == []


def test_a_subtask_without_state_acknowledges_without_an_object(tmp_path: Path) -> None:
    """Case: StreamTaskTest.testEmptySubtaskStateLeadsToStatelessAcknowledgment"""
    plane = DataPlane(LocalStore(StoreConfig(tmp_path.as_uri())))
    plane.epoch([SCHEMA.empty_table()])
    acks = [ack for subtasks in plane.acks.values() for ack in subtasks]
    assert len(acks) == 12 and {len(one["runs"]) for ack in acks for one in ack["state"].values()} == {0}
    assert {ack["channel"] for ack in acks} == {None}
    assert not list(plane.store.list(""))


def test_a_snapshot_that_cannot_be_frozen_is_declined_and_its_parts_are_dropped() -> None:
    """The subtask lives on: the next checkpoint is taken.

    Case: StreamTaskTest.testDecliningCheckpointStreamOperator
    """
    task = TaskDriver()
    task.in_flight = [data(10)]
    task.freeze_error = Reason.TASK_CHECKPOINT_FAILURE
    task.take(unaligned(8))
    assert DeclineCheckpoint(CheckpointId(8), Reason.TASK_CHECKPOINT_FAILURE, "the state is broken") in task.said
    assert {CancelUpload, DiscardSnapshot} <= {type(command) for command in task.said}
    assert task.spill.writer.held == ()
    task.freeze_error = None
    task.checkpoint(barrier(9))
    task.end_upload(9)
    assert [command.checkpoint_id for command in task.acknowledged()] == [9]
    assert task.life.running


def test_receivers_do_not_wait_for_the_barrier_of_a_failed_snapshot() -> None:
    """The barrier is sent before the freeze; the cancel marker after it keeps receivers from waiting.

    Case: StreamTaskTest.testTaskAvoidHangingAfterSnapshotStateThrownException
    """
    task = TaskDriver()
    task.freeze_error = Reason.TASK_CHECKPOINT_FAILURE
    task.checkpoint(barrier(8))
    assert task.said[-1] == BroadcastCancelMarker(CheckpointId(8))
    assert task.life.finish() == ()
    assert task.life.close() == ()


def test_one_part_of_an_upload_that_fails_cancels_its_siblings() -> None:
    """Case: StreamTaskTest.testFailingAsyncCheckpointRunnable"""
    task = TaskDriver()
    task.checkpoint(barrier(30))
    snapshot = task.uploads[30]
    task.fail_upload(30, "the channel state was refused")
    assert task.all(CancelUpload) == [CancelUpload(CheckpointId(30))]
    assert task.all(DiscardSnapshot) == [DiscardSnapshot(CheckpointId(30))]
    assert snapshot.completed() == (DiscardSnapshot(CheckpointId(30)),)
    assert snapshot.failed("and so was the state", running=True) == ()


def test_a_background_failure_is_declined_with_its_own_message() -> None:
    """Case: StreamTaskTest.testUncaughtExceptionInAsynchronousCheckpointingOperation
    Case: StreamTaskTest.testAsyncExceptionHandlerHandleExceptionForwardsMessageProperly
    """
    task = TaskDriver()
    task.checkpoint(barrier(30))
    task.fail_upload(30, "RuntimeError: no space left on the device")
    reason = Reason.CHECKPOINT_ASYNC_EXCEPTION
    assert task.all(DeclineCheckpoint) == [
        DeclineCheckpoint(CheckpointId(30), reason, "RuntimeError: no space left on the device")
    ]
    assert task.life.running


def test_the_time_of_the_restore_is_measured_apart() -> None:
    """Case: StreamTaskTest.testSubTaskInitializationMetrics"""
    metrics = TaskMetrics(level=1, subtask=0, attempt=0)
    metrics.mark("restore_ms")
    metrics.mark("process_ms")
    metrics.mark("restore_ms")
    assert set(metrics.marks) == {"restore_ms", "process_ms"}
    assert b'"restore_ms": ' in metrics.encode(StoreRequests())


def test_an_error_while_aborting_an_epoch_does_not_hide_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is down when the abort is written; the lease ends by itself, and the next start sweeps.

    Case: StreamTaskTest.testCleanUpExceptionSuppressing
    """
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    outage = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, times=0)

    def fail(plan: EpochPlan) -> None:
        outage.times = 100
        raise SubtaskDeclined("subtask 1/0 declined: the first error")

    break_store(monkeypatch, job.context.store_config.url, outage)
    with wording.raises(SubtaskDeclined):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=fail))
    assert outage.reached.is_set()
    assert job.pending.checkpoint_id == 1


def test_a_job_ends_after_its_final_checkpoint_and_only_then(tmp_path: Path) -> None:
    """Stopping with everything drained: the final checkpoint takes the place of the synchronous savepoint.

    Case: StreamTaskTest.testSavepointTerminateCompleted
    """
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    pending = job.trigger(session)
    completed = job.complete(session, pending)
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    job.master.lifecycle.finish(session, completed.checkpoint_id)
    assert job.context.head().state.status is JobStatus.FINISHED


@pytest.mark.parametrize("uploading", [False, True], ids=["before its snapshots", "during its uploads"])
def test_a_job_whose_final_checkpoint_is_aborted_is_not_finished(tmp_path: Path, uploading: bool) -> None:
    """Case: StreamTaskTest.testSavepointTerminateAborted
    Case: StreamTaskTest.testSavepointTerminateAbortedAsync
    """
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 1"})
    job.land("a.csv")
    first = job.epoch()
    job.land("b.csv", "k,v\n2,b\n")
    session = Session.cli()
    final = job.trigger(session).checkpoint_id
    task = TaskDriver(restored=first)
    task.life.end_of_data(final)
    if uploading:
        task.checkpoint(barrier(final, Alignment.ALIGNED), finished=True)
    job.master.epochs.abort(session, final, "CHECKPOINT_DECLINED", "a subtask declined")
    task.abort(final, latest_completed=first)
    request = FinishRequest(session.session_id, final, "drained")
    with wording.raises(Fenced) as refused:
        finish(job.context.head().state, request, 0)
    assert str(first) in str(refused.value)
    assert str(final) in str(refused.value)
    assert job.context.head().state.status is JobStatus.RUNNING
    if uploading:
        assert DiscardSnapshot(final) in task.said
    else:
        task.checkpoint(barrier(final), finished=True)
        assert task.all(BroadcastCancelMarker) == [BroadcastCancelMarker(final)]
    assert task.acknowledged() == []
