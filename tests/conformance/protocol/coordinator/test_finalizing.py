"""Failures to complete a checkpoint after all acknowledgements: what is deleted, and what must be retained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import CommitOutcomeUnknown, EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster import Session
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import MANIFEST_PREFIX, checkpoint_prefix
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store, later

READS_BACK = 5
"""Number of read-backs of a put without an answer; then the store answers again, so an abort would land."""


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """One published epoch, and input for another."""
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 1"})
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv", "k,v\n1,b\n2,b\n")
    return job


def once_all_is_staged(*faults: Fault) -> Callable[[EpochPlan], None]:
    """The faults strike from the moment on when the data plane has returned."""
    planned = [(fault, fault.times) for fault in faults]
    for fault in faults:
        fault.times = 0

    def arm(plan: EpochPlan) -> None:
        for fault, times in planned:
            fault.times = times

    return arm


def fails(job: SparklessJob, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *faults: Fault) -> None:
    """Run the second epoch into the faults; afterwards the store works again."""
    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, *faults)
        with pytest.raises(error):
            job.master.epochs.run(Session.cli(), SparklessRunner(after=once_all_is_staged(*faults)))
    assert faults[0].reached.is_set()


def assert_given_up(job: SparklessJob, reason: str) -> None:
    """Checkpoint 2 is invisible, its staged files are deleted, and its objects are listed as garbage once."""
    newest, before = job.master.reports.list_checkpoints(limit=2)
    assert (newest.checkpoint_id, newest.status, newest.failure_reason) == (2, "aborted", reason)
    assert (before.checkpoint_id, before.status) == (1, "completed")
    assert job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 1}]
    assert job.staged_files(2) == []
    prefixes = own_garbage(job)
    assert len(prefixes) == len(set(prefixes)) == 1, (
        "the prefix of the trigger's token, under which the same process ran it"
    )


def own_garbage(job: SparklessJob) -> list[str]:
    listed = [entry.prefix for entry in job.context.head().state.garbage]
    return [prefix for prefix in listed if prefix.startswith(checkpoint_prefix(CheckpointId(2)))]


def assert_next_epoch_is_whole(job: SparklessJob, checkpoint_id: int) -> None:
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).checkpoint_id == checkpoint_id
    table = sorted(job.master.reports.read("table").to_pylist(), key=lambda row: row["k"])
    assert table == [{"k": 1, "rows": 2}, {"k": 2, "rows": 1}]


def test_a_commit_that_the_store_refuses_for_good_discards_the_checkpoint(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transition is known not to have landed: the checkpoint's objects are deleted, and the epoch runs again.

    Case: CheckpointCoordinatorFailureTest.testFailingCompletedCheckpointStoreAdd
    """
    full = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, error=EnvironmentUnusable("no space left"))
    fails(job, monkeypatch, EnvironmentUnusable, full)
    assert_given_up(job, "ENVIRONMENT_UNUSABLE")
    assert_next_epoch_is_whole(job, 3)


def test_a_commit_that_cannot_be_made_is_a_counted_failure(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outage begins between `_metadata` and the commit point of an epoch that takes its time: the head is
    looked for before the put.

    Case: CheckpointCoordinatorTest.testExceptionInStoringCompletedCheckpointIsReportedToFailureManager
    """
    monkeypatch.setattr("milepost.storage.log.manifest_log._FRESH_S", 0.0)
    written: list[str] = []

    def once_metadata_is_written(operation: str, key: str) -> bool:
        if key.endswith("/_metadata"):
            written.append(key)
        return bool(written) and at("stat", MANIFEST_PREFIX)(operation, key)

    fails(job, monkeypatch, StoreUnavailable, Fault(once_metadata_is_written, Effect.UNAVAILABLE))
    assert_given_up(job, "FINALIZE_CHECKPOINT_FAILURE")
    failures = job.context.head().state.failures
    assert (failures.consecutive, failures.counted) == (1, (2,))
    assert_next_epoch_is_whole(job, 3)


def test_metadata_that_cannot_be_written_fails_and_discards_the_checkpoint(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: CheckpointCoordinatorFailureTest.testStoringFailureHandling"""
    outage = Fault(lambda operation, key: operation == "put" and key.endswith("/_metadata"), Effect.UNAVAILABLE)
    fails(job, monkeypatch, StoreUnavailable, outage)
    assert_given_up(job, "FINALIZE_CHECKPOINT_FAILURE")
    assert job.context.head().state.failures.consecutive == 1
    assert_next_epoch_is_whole(job, 3)


def test_whatever_else_fails_while_completing_is_cleaned_up_once(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours at the commit point; what is listed is deleted by a later leader, and then listed no more.

    Case: CheckpointCoordinatorFailureTest.testCleanupForGenericFailure
    """
    bug = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, error=RuntimeError("a bug"))
    fails(job, monkeypatch, RuntimeError, bug)
    assert_given_up(job, "TASK_FAILURE")
    assert job.context.head().state.status is JobStatus.RUNNING
    store = job.context.store
    assert any([*store.list(prefix)] for prefix in own_garbage(job)), "listed now, deleted by a later leader"
    later(monkeypatch, minimum_grace_ms(TIMEOUT_MS))
    assert_next_epoch_is_whole(job, 3)
    assert [*store.list(checkpoint_prefix(CheckpointId(2)))] == []
    assert own_garbage(job) == []


@pytest.mark.long
@pytest.mark.parametrize("effect", [Effect.LOST_REPLY, Effect.LOST_REQUEST], ids=["it landed", "it never landed"])
def test_a_commit_of_unknown_outcome_deletes_nothing(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, effect: Effect
) -> None:
    """Neither the reply nor the read-back says whether it landed: files and checkpoint stay unchanged.

    Whoever comes next reads the head: it publishes the checkpoint, or adopts it, as finished as it was.

    Case: CheckpointCoordinatorFailureTest.testCleanupOmissionForPossibleInconsistentStateException
    """
    lost = Fault(at("create", MANIFEST_PREFIX), effect)
    unread = Fault(at("get", MANIFEST_PREFIX), Effect.UNAVAILABLE, times=READS_BACK)
    fails(job, monkeypatch, CommitOutcomeUnknown, lost, unread)
    assert len(job.staged_files(2)) == 2
    assert job.master.reports.list_checkpoints("aborted") == []
    assert job.context.head().state.failures.consecutive == 0
    landed = effect is Effect.LOST_REPLY
    assert (job.context.head().state.timeline().head == 2) is landed
    job.master.triggers.trigger(Session.cli(), take_over=not landed)
    table = sorted(job.master.reports.read("table").to_pylist(), key=lambda row: row["k"])
    assert table == [{"k": 1, "rows": 2}, {"k": 2, "rows": 1}]
    assert [item.status for item in job.master.reports.list_checkpoints(limit=1)] == ["completed"]
