"""Rollback of a failed epoch: the rules of Ray streaming's JobWorker and its masters, applied to ours.

A line `Ray: <class>.<method>` in a test names the method whose rule it covers. A line `Ray defect:` names a defect
found there by reading, which the test shows to be absent here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import Busy, StateCorrupt, StoreUnavailable, SubtaskDeclined
from milepost.jobmaster.job.session import Session
from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer, TaskAcknowledgeResult, verify
from milepost.protocol.exchange.declines import Decline, Declines
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken, TimelineId
from milepost.protocol.records.layout import MANIFEST_PREFIX, token_prefix
from milepost.protocol.records.manifest_state import CleanUp
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import unreferenced
from milepost.protocol.subtask.subtask_commands import (
    BroadcastCancelMarker,
    CancelUpload,
    DeclineCheckpoint,
    DiscardSnapshot,
    FreezeState,
)
from milepost.protocol.subtask.task_lifecycle import TaskLifecycle
from milepost.storage.layout import state_prefix
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.job_stores import break_store
from milepost_testkit.tasks.dataplane import FIRST, DataPlane
from milepost_testkit.tasks.subtask_driver import barrier
from milepost_testkit.tasks.task_driver import TaskDriver
from tests.unit.spark.test_unaligned_epochs import events

ID, TOKEN = CheckpointId(4), FencingToken(9)
Reason = CheckpointFailureReason
ECHO = Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
Answers = Callable[[tuple[SubtaskAnswer, ...]], Iterable[SubtaskAnswer]]


def asks(level: int, subtask: int, reason: CheckpointFailureReason = Reason.BAD_RECORD, why: str = "line 7") -> Decline:
    """A decline of checkpoint 4: the subtask's request to roll back."""
    return Decline(ID, TOKEN, level, subtask, reason, why)


def declining(*places: tuple[int, int, CheckpointFailureReason]) -> Answers:
    """These subtasks of an epoch answer with a decline, each in two copies."""

    def answers(given: tuple[SubtaskAnswer, ...]) -> Iterable[SubtaskAnswer]:
        refused = {(level, subtask): reason for level, subtask, reason in places}
        for answer in given:
            reason = refused.get((answer.level, answer.subtask))
            if reason is None:
                yield answer
            else:
                decline = Decline(answer.checkpoint_id, answer.token, answer.level, answer.subtask, reason, "it failed")
                yield from (decline, decline)

    return answers


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """One published epoch, and input for another."""
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 5"})
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv", "k,v\n1,b\n2,b\n")
    return job


def fails(job: SparklessJob, runner: SparklessRunner) -> SubtaskDeclined:
    with pytest.raises(SubtaskDeclined) as caught:
        job.master.epochs.run(Session.cli(), runner)
    return caught.value


def rows(job: SparklessJob) -> list[dict[str, int]]:
    return sorted(job.master.reports.read("table").to_pylist(), key=lambda row: int(row["k"]))


# -- the worker ---------------------------------------------------------------------------------------------------


def test_a_recreated_subtask_starts_from_the_same_base_as_its_predecessor() -> None:
    """The plan travels with the job, so an attempt that follows another knows the same context.

    Ray: JobWorker constructor, JobWorker.init
    """
    first, second = TaskLifecycle("1/0"), TaskLifecycle("1/0")
    first.restore(CheckpointId(3))
    first.notify_complete(CheckpointId(5))
    first.fail()
    second.restore(CheckpointId(3))
    assert second.running
    assert (second.last_reported, second.coordinator.last_id) == (3, 3)


def test_a_context_that_is_missing_stops_the_job_instead_of_being_logged(job: SparklessJob) -> None:
    """A subtask never begins with less state than its base checkpoint has.

    Ray: JobWorker constructor
    """
    (base,) = job.context.head().state.checkpoints
    kept = list(job.context.store.list(state_prefix(base.checkpoint_id, base.token, "latest")))  # type: ignore[arg-type]
    job.context.store.delete([stat.key for stat in kept])
    with pytest.raises(StateCorrupt):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    assert rows(job) == [{"k": 1, "rows": 1}]


def test_a_rollback_restarts_from_the_last_completed_checkpoint_with_a_new_id(job: SparklessJob) -> None:
    """Ray: JobWorker.rollback"""
    failing, good = SparklessRunner(answers=declining((1, 0, Reason.OPERATOR_ERROR))), SparklessRunner()
    fails(job, failing)
    fails(job, failing)
    assert job.master.epochs.run(Session.cli(), good).checkpoint_id == 4
    assert [(plan.checkpoint_id, plan.base) for plan in (*failing.plans, *good.plans)] == [(2, 1), (3, 1), (4, 1)]
    assert rows(job) == [{"k": 1, "rows": 2}, {"k": 2, "rows": 1}]


def test_a_rollback_of_a_subtask_that_has_begun_is_refused_and_changes_nothing() -> None:
    """Another attempt is another subtask; one that lives is never set back under itself.

    Ray: JobWorker.rollback
    """
    task = TaskDriver(restored=3)
    task.checkpoint(barrier(4))
    with wording.raises(Exception):
        task.life.restore(CheckpointId(3))
    assert task.coordinator.pending_ids == {4}


def test_a_trigger_while_a_checkpoint_is_pending_is_refused_immediately(job: SparklessJob) -> None:
    """The same session gets its own checkpoint again; another session gets the name of the holder.

    Ray: JobWorker.triggerCheckpoint
    Ray defect: a trigger that is refused blocks until the master's timeout.
    """
    session = Session.cli()
    pending = job.trigger(session)
    with wording.raises(Busy):
        job.master.triggers.trigger(Session.cli())
    again = job.master.triggers.trigger(session)
    assert getattr(again, "checkpoint_id", None) == pending.checkpoint_id


def test_a_snapshot_that_cannot_be_saved_is_declined_and_not_waited_for() -> None:
    """Ray: JobWorker checkpoint
    Ray defect: a failed save is swallowed, and the master waits out its timeout.
    """
    task = TaskDriver()
    task.freeze_error = Reason.TASK_CHECKPOINT_FAILURE
    task.checkpoint(barrier(4))
    assert DeclineCheckpoint(ID, Reason.TASK_CHECKPOINT_FAILURE, "the state is broken") in task.said
    task.freeze_error = None
    task.checkpoint(barrier(5))
    task.fail_upload(5)
    declined = task.all(DeclineCheckpoint)[-1]
    assert isinstance(declined, DeclineCheckpoint)
    assert (declined.checkpoint_id, declined.reason) == (5, Reason.CHECKPOINT_ASYNC_EXCEPTION)


def test_a_timeout_discards_saved_parts_and_skips_late_ones() -> None:
    """An abort during the upload discards the snapshot; before the barrier it prevents it, and the mark is bounded.

    Ray: JobWorker.notifyCheckpointTimeout
    """
    early, late = TaskDriver(), TaskDriver()
    early.checkpoint(barrier(4))
    early.abort(4, latest_completed=3)
    assert [CancelUpload(ID), DiscardSnapshot(ID)] == [one for one in early.said if one.__class__ in GONE]
    late.abort(4, latest_completed=3)
    late.checkpoint(barrier(4))
    assert late.all(FreezeState) == []
    assert late.all(BroadcastCancelMarker) == [BroadcastCancelMarker(ID)]
    for checkpoint_id in range(5, 50):
        late.abort(checkpoint_id, latest_completed=3)
    assert len(late.coordinator.aborted_ids) == 2
    for task in (early, late):
        assert task.acknowledged() == []


GONE = (CancelUpload, DiscardSnapshot)


def test_state_and_channel_data_of_an_expired_checkpoint_go_separately() -> None:
    """State is carried on by reference as long as a later checkpoint needs it; rows in flight belong to one alone.

    Ray: JobWorker.clearExpiredCheckpoint
    """
    prefix = token_prefix(CheckpointId(1), FencingToken(3))
    state, channel = f"{prefix}state/u/run.parquet", f"{prefix}channel/rows.arrow"
    own = f"{token_prefix(CheckpointId(2), FencingToken(7))}state/u/run.parquet"
    assert unreferenced([[state, own]], [[state, channel]]) == (channel,)
    assert unreferenced([[own]], [[state, channel]]) == (prefix,)


def test_copies_of_a_subtasks_request_count_once() -> None:
    """Ray: JobWorker.requestRollback, JobWorker.checkIfNeedRollback"""
    requests = Declines()
    assert not requests.has_requests
    assert [requests.request(asks(1, 0)) for _ in range(3)] == [True, False, False]
    assert requests.request(asks(0, 0))
    assert not requests.request(asks(1, 0)), "not by time: it is the same request, also after another one"
    assert requests.has_requests
    assert [(one.subtask, one.copies) for one in requests.requests()] == [(SubtaskKey(0, 0), 1), (SubtaskKey(1, 0), 4)]


def test_the_context_is_saved_before_anything_runs_and_survives_the_process(job: SparklessJob) -> None:
    """Plan, base and expected subtasks are in the manifest; a process that starts cold continues from them.

    Ray: JobWorker.saveContext
    """
    session = Session.cli()
    pending = job.trigger(session)
    cold = SparklessJob(job.folder)
    assert cold.pending == pending
    assert (pending.base, len(pending.expected)) == (1, 1 + 2)
    runner = SparklessRunner()
    cold.master.epochs.run_epoch(session, pending.checkpoint_id, runner)
    assert [plan.base for plan in runner.plans] == [1]


# -- the masters --------------------------------------------------------------------------------------------------


def test_the_first_cause_is_reported_instead_of_its_consequences(job: SparklessJob) -> None:
    """A cancel marker that was passed on is a consequence; upstream comes before downstream.

    Ray: the master's queue of rollback requests
    """
    answers = declining((1, 0, ECHO), (0, 0, Reason.BAD_RECORD), (1, 1, Reason.OPERATOR_ERROR))
    error = fails(job, SparklessRunner(answers=answers))
    assert (error.details["level"], error.details["subtask"], error.details["reason"]) == (0, 0, "BAD_RECORD")
    shown = job.master.reports.show(2)
    assert (shown.status, shown.failure_reason) == ("aborted", "BAD_RECORD")


def test_a_rollback_interrupts_the_pending_checkpoint_once(job: SparklessJob) -> None:
    """For any number of requests: one abort, one counted failure; a repeated request finds nothing pending.

    Ray: the master's interruption of a checkpoint
    """
    session = Session.cli()
    answers = declining((0, 0, Reason.BAD_RECORD), (1, 0, ECHO), (1, 1, ECHO))
    with pytest.raises(SubtaskDeclined):
        job.master.epochs.run(session, SparklessRunner(answers=answers))
    state = job.context.head().state
    assert state.timeline(TimelineId("main")).pending is None
    assert state.failures.consecutive == 1
    again = job.master.epochs.abort(session, 2, "TASK_FAILURE", "a second request")
    assert again.outcome == "nothing_pending"
    assert job.context.head().state.failures.consecutive == 1


def test_answers_of_another_checkpoint_or_of_unknown_subtasks_are_ignored() -> None:
    """Ray: the master's commits must equal its last id; an unknown actor is ignored"""
    good = Acknowledgement(ID, TOKEN, 0, 0, "d", ())
    stray: list[SubtaskAnswer] = [
        replace(good, checkpoint_id=CheckpointId(3)),
        replace(good, token=FencingToken(8)),
        replace(good, level=7),
        replace(asks(0, 0), checkpoint_id=CheckpointId(3)),
    ]
    verified = verify(ID, TOKEN, [SubtaskKey(0, 0)], [*stray, good, good])
    assert verified.acknowledgements == (good,)
    assert verified.results == {
        TaskAcknowledgeResult.SUCCESS: 1,
        TaskAcknowledgeResult.DUPLICATE: 1,
        TaskAcknowledgeResult.UNKNOWN: 1,
        TaskAcknowledgeResult.DISCARDED: 3,
    }


def test_an_unfinished_command_is_finished_by_the_next_one(job: SparklessJob) -> None:
    """Commands are the outstanding work in the manifest, and the next session replays them.

    Ray: the master's unfinished commands
    """
    session = Session.cli()
    job.complete(session, job.trigger(session))
    assert job.context.head().state.unconfirmed()
    job.master.triggers.trigger(Session.cli())
    assert not job.context.head().state.unconfirmed()
    job.master.savepoints.cancel()
    assert [result.clean_up for result in job.context.head().state.results] == [CleanUp.CLEAN]


def test_nothing_old_is_dropped_before_the_new_checkpoint_is_durable(job: SparklessJob) -> None:
    """With one retained checkpoint, the old one is dropped in a later transition, which also confirms the new head.

    Ray defect: the old checkpoint is deleted before the new id is persisted.
    """
    seen: list[list[int]] = []

    def look(plan: EpochPlan) -> None:
        seen.append([one.checkpoint_id for one in job.context.head().state.checkpoints])

    job.master.epochs.run(Session.cli(), SparklessRunner(after=look))
    subsumed, completed = job.master.reports.history(None)[:2]
    assert seen == [[1]]
    assert (subsumed["event"], completed["event"]) == ("CheckpointsSubsumed", "CheckpointCompleted")
    assert subsumed["confirmed"]["checkpoint_id"] == completed["checkpoint_id"] == 2


def test_a_failure_before_the_first_checkpoint_is_recovered_from_the_empty_state(tmp_path: Path) -> None:
    """Ray defect: a failure before the first checkpoint cannot be recovered from."""
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 5"})
    job.land("a.csv")
    fails(job, SparklessRunner(answers=declining((0, 0, Reason.BAD_RECORD))))
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner)
    assert [plan.base for plan in runner.plans] == [0]
    assert rows(job) == [{"k": 1, "rows": 1}]


def test_a_rollback_whose_request_is_lost_is_made_by_the_next_start(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The abort could not be written: the next session sweeps, and rolls back to the same base.

    Ray defect: a rollback request that fails is never sent again.
    """
    outage = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, times=0)

    def fail(plan: EpochPlan) -> None:
        outage.times = 100
        raise StoreUnavailable("planned outage")

    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, outage)
        with pytest.raises(StoreUnavailable):
            job.master.epochs.run(Session.cli(), SparklessRunner(before=fail))
    assert job.pending.checkpoint_id == 2
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner, take_over=True)
    assert [(plan.checkpoint_id, plan.base) for plan in runner.plans] == [(3, 1)]
    assert rows(job) == [{"k": 1, "rows": 2}, {"k": 2, "rows": 1}]


@pytest.mark.long
def test_an_error_that_is_not_a_decline_ends_the_attempt_and_the_next_starts_from_the_same_base(tmp_path: Path) -> None:
    """Nothing of the attempt that broke is taken over: the next one gives what an undisturbed one gives.

    Ray: JobWorker.rollback of a recreated worker
    """
    store = LocalStore(StoreConfig((tmp_path / "broken").as_uri()))
    fault = Fault(at("put", f"{FIRST}state/"), Effect.UNAVAILABLE, error=RuntimeError("a bug"))
    broken, whole = DataPlane(FaultyStore(store, [fault])), DataPlane(LocalStore(StoreConfig(tmp_path.as_uri())))
    with pytest.raises(RuntimeError, match="a bug"):
        broken.epoch(events(7, 0, 60))
    assert broken.epochs == 0
    for plane in (broken, whole):
        plane.epoch(events(7, 0, 60))
    assert broken.acks == whole.acks
