"""Bookkeeping of the coordinator: reports, deadlines, and state shared between checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import Fenced, JobNotRunnable, StoreUnavailable, SubtaskDeclined
from milepost.jobmaster import Session
from milepost.jobmaster.reports.checkpoint.document import Acks
from milepost.protocol.manifest.transaction.events import CheckpointAborted
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import checkpoint_prefix
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost.state.layers.key_groups import key_group_range
from milepost.storage.notices import AbortNotice, read_notice
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store, later


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10s, tolerable_failures: 1"})
    job.land("a.csv")
    return job


def run(job: SparklessJob, runner: SparklessRunner | None = None) -> int:
    return int(job.master.epochs.run(Session.cli(), runner or SparklessRunner()).checkpoint_id)


def decline(plan: EpochPlan) -> None:
    raise SubtaskDeclined("checkpoint: refused", reason="SQL_ERROR", detail="division by zero in `clean`")


def test_a_pending_checkpoint_is_shown_while_it_runs(job: SparklessJob) -> None:
    """Case: CheckpointCoordinatorTest.testCheckpointStatsTrackerPendingCheckpointCallback"""
    seen = []
    run(job, SparklessRunner(before=lambda plan: seen.append(job.master.reports.show(int(plan.checkpoint_id)))))
    (pending,) = seen
    assert (pending.status, pending.epoch, pending.duration_ms) == ("pending", 1, None)
    assert pending.acks == Acks(0, 3)
    assert job.master.reports.show(1).acks == Acks(3, 3)


def test_the_restored_checkpoint_is_shown(job: SparklessJob) -> None:
    """Case: CheckpointCoordinatorTest.testCheckpointStatsTrackerRestoreCallback"""
    runner = SparklessRunner()
    run(job, runner)
    job.land("b.csv")
    run(job, runner)
    assert job.master.reports.show(2).base == 1
    assert [plan.base for plan in runner.plans] == [0, 1]
    restored = [plan.states.get("latest", {}) for plan in runner.plans]
    assert [[len(table.handles) for table in tables.values()] for tables in restored] == [[], [2]]


def test_an_aborted_checkpoint_is_shown_with_its_reason(job: SparklessJob) -> None:
    """Case: CheckpointCoordinatorTest.testAbortedCheckpointStatsUpdatedAfterFailure"""
    with pytest.raises(SubtaskDeclined):
        run(job, SparklessRunner(before=decline))
    shown = job.master.reports.show(1)
    assert (shown.status, shown.failure_reason) == ("aborted", "SQL_ERROR")
    assert shown.failure_detail == "division by zero in `clean`"
    assert shown.duration_ms >= 0
    assert (job.master.reports.status().last_failure, job.master.reports.list_checkpoints("pending")) == (
        "SQL_ERROR",
        [],
    )


def test_a_checkpoint_that_could_not_be_finalized_is_shown_with_its_reason(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: CheckpointCoordinatorTest.testCheckpointStatsUpdatedAfterFailure"""
    fault = Fault(lambda operation, key: operation == "put" and key.endswith("/_metadata"), Effect.UNAVAILABLE)
    break_store(monkeypatch, job.context.store_config.url, fault)
    with pytest.raises(StoreUnavailable):
        run(job)
    assert (job.master.reports.show(1).status, job.master.reports.show(1).failure_reason) == (
        "aborted",
        "FINALIZE_CHECKPOINT_FAILURE",
    )


@pytest.mark.parametrize("staged", [False, True], ids=["its subtasks still run", "its sinks have staged"])
def test_a_checkpoint_past_its_deadline_expires_even_if_a_session_works_on_it(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    """The next session aborts it, counted; what it wrote is discarded, and what it answers then is too late.

    Case: CheckpointCoordinatorTest.testCheckpointTimeoutIsolated
    Case: CheckpointCoordinatorTest.testTimeoutWhileCheckpointOperatorCoordinatorNotFinishing
    """
    newcomer = Session.cli()

    def deadline_passes(plan: EpochPlan) -> None:
        later(monkeypatch, 11_000)
        assert bool(job.staged_files(1)) is staged
        job.master.triggers.trigger(newcomer)

    hooks = {"after" if staged else "before": deadline_passes}
    with pytest.raises(Fenced):
        job.master.epochs.run(Session.cli(), SparklessRunner(**hooks))
    aborted = job.master.reports.show(1)
    assert (aborted.status, aborted.failure_reason) == ("aborted", "CHECKPOINT_EXPIRED")
    state = job.context.head().state
    assert (state.failures.consecutive, state.timeline().head) == (1, 0)
    listed = [entry.prefix for entry in state.garbage]
    late = [stat.key for stat in job.context.store.list(checkpoint_prefix(CheckpointId(1)))]
    assert all(any(key.startswith(prefix) for prefix in listed) for key in late)
    job.complete(newcomer, job.rebind(newcomer))
    assert job.context.head().state.timeline().head == 2


def test_an_abort_says_which_checkpoint_is_the_newest_completed_one(job: SparklessJob) -> None:
    """I11: in the log, and to the subtasks of every try that still runs, which may have missed that completion.

    Case: CheckpointCoordinatorTest.testReportLatestCompletedCheckpointIdWithAbort
    """
    told = []
    for name in ("b", "c"):
        with pytest.raises(SubtaskDeclined):
            run(job, SparklessRunner(before=decline))
        event = job.context.log.entry(job.context.head().version).event
        assert isinstance(event, CheckpointAborted)
        pending = event.pending
        notices = {read_notice(job.context.store, pending.checkpoint_id, token) for token in pending.prefixes}
        assert notices == {AbortNotice(event.reason, pending.base)}
        told.append((pending.checkpoint_id, pending.base))
        run(job)
        job.land(f"{name}.csv")
    assert told == [(1, 0), (3, 2)]


def test_state_shared_with_an_aborted_checkpoint_is_retained(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: the abort lists its own prefixes only; the runs that it carried on by reference belong to its base.

    Case: CheckpointCoordinatorTest.testSharedStateNotDiscaredOnAbort
    """
    run(job)
    shared = [stat.key for stat in job.context.store.list(checkpoint_prefix(CheckpointId(1)))]
    job.land("b.csv", "k,v\n2,b\n")
    with pytest.raises(SubtaskDeclined):
        run(job, SparklessRunner(after=decline))
    garbage = [entry.prefix for entry in job.context.head().state.garbage]
    assert any(prefix.startswith(checkpoint_prefix(CheckpointId(2))) for prefix in garbage)
    state_runs = [key for key in shared if "/state/" in key]
    assert state_runs and not any(key.startswith(prefix) for key in state_runs for prefix in garbage)
    later(monkeypatch, minimum_grace_ms(TIMEOUT_MS))
    assert run(job) == 3
    assert sorted(row["k"] for row in job.master.reports.state("latest").to_pylist()) == [1, 2]


def test_state_of_a_subsumed_checkpoint_lives_as_long_as_a_later_one_refers_to_it(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restored, carried on, and checked by a process that never saw the first checkpoint complete.

    Case: CheckpointCoordinatorTest.testSharedStateRegistrationOnRestore
    """
    job.land("a.csv", "k,v\n" + "".join(f"{key},x\n" for key in range(100)))  # so that one more key is a delta
    run(job)
    first = {stat.key for stat in job.context.store.list(checkpoint_prefix(CheckpointId(1))) if "/state/" in stat.key}
    for name, key in (("b", 2), ("c", 3)):
        job.land(f"{name}.csv", f"k,v\n{key},x\n")
        later(monkeypatch, minimum_grace_ms(TIMEOUT_MS) * key)
        run(job)
    assert [item.status for item in job.master.reports.list_checkpoints()] == ["completed", "subsumed", "subsumed"]
    left = {stat.key for stat in job.context.store.list(checkpoint_prefix(CheckpointId(1)))}
    head = job.context.head().state.head()
    assert head is not None
    referenced = set(job.context.metadata(head).references())
    assert first & referenced, "a run of the first checkpoint is still part of the third"
    assert first & left == first & referenced
    assert job.master.reports.verify(deep=True).checkpoints == (3,)
    assert sorted(row["k"] for row in job.master.reports.state("latest").to_pylist()) == list(range(100))


def test_completed_checkpoints_outlive_the_job_that_made_them(job: SparklessJob) -> None:
    """Failed or canceled: state and tables stay readable, until a person decides otherwise.

    Case: CheckpointCoordinatorTest.testExternalizedCheckpoints
    """
    run(job)
    job.land("b.csv")
    for _ in range(2):
        with pytest.raises(SubtaskDeclined):
            run(job, SparklessRunner(before=decline))
    for end in (lambda: None, job.master.savepoints.cancel):
        end()
        with pytest.raises(JobNotRunnable):
            job.master.triggers.trigger(Session.cli())
        assert job.master.reports.verify(1, deep=True).checkpoints == (1,)
        assert job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 1}]
        assert job.master.reports.state("latest").num_rows == 1


@pytest.mark.parametrize(("groups", "parallelism"), [(1, 1), (10, 3), (128, 7), (128, 128), (4096, 5), (32_768, 1000)])
def test_key_groups_are_dealt_out_without_gap_or_overlap(groups: int, parallelism: int) -> None:
    """Case: CheckpointCoordinatorTest.testCreateKeyGroupPartitions"""
    ranges = [key_group_range(groups, parallelism, subtask) for subtask in range(parallelism)]
    assert [group for owned in ranges for group in owned] == list(range(groups))
    sizes = {len(owned) for owned in ranges}
    assert max(sizes) - min(sizes) <= 1
