"""Jobs whose tables of the latest rows are files of changes, which epochs compact in tasks, whatever became of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.sinks.staging import compaction, small_files
from milepost.sinks.staging.compaction import CompactionPlan
from milepost.sinks.staging.small_files import JoinPlan
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep

EPOCHS = 6


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short history compacts, and joins small files next to its buckets."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    monkeypatch.setattr(compaction, "SHARE", 1)
    monkeypatch.setattr(small_files, "GROWTH", 2)


@pytest.fixture
def job(tmp_path: Path, few: None) -> CountedJob:
    job = CountedJob.create(tmp_path / "job")
    job.land(range(1, 4 * EPOCHS))
    return job


def plans(job: CountedJob, epochs: int) -> list[type]:
    """Run so many epochs; return what their subtasks did to the table's own files."""
    found = []
    for _ in range(epochs):
        runner = SparklessRunner()
        job.master.epochs.run(Session.cli(), runner)
        found.append(type(runner.plans[0].maintenance.get("table")))
        job.assert_tables_equal_the_oracle()
    return found


@pytest.mark.parametrize("rollbacks", [1, pytest.param(3, marks=pytest.mark.deep)])
def test_a_table_that_is_compacted_and_joined_equals_the_oracle_at_every_checkpoint(
    job: CountedJob, rollbacks: int
) -> None:
    """Forward, back to before and after a compaction, and with other numbers of subtasks."""
    did = plans(job, EPOCHS)
    assert {CompactionPlan, JoinPlan} <= set(did)
    first = did.index(CompactionPlan)
    ids = job.live_ids
    for parallelism, at in ((3, ids[first]), (1, ids[first - 1]), (5, ids[-1]))[:rollbacks]:
        job.rollback(at)
        job.assert_tables_equal_the_oracle()
        spec = job.spec_path
        text = spec.read_text().split("spark:")[0]
        spec.write_text(f"{text}spark: {{parallelism: {parallelism}}}\n")
        assert {CompactionPlan, JoinPlan} & set(plans(job, 6))
    assert (
        verified := job.master.reports.verify(deep=True)
    ).unasked == verified.discarded == () and job.master.reports.fsck().exit_code == 0


def test_a_run_of_the_same_epoch_again_compacts_the_same_files(job: CountedJob) -> None:
    """What is planned follows from the base checkpoint."""
    while True:
        first = SparklessRunner(after=_fail)
        with pytest.raises(OSError, match="the driver ends"):
            job.master.epochs.run(Session.cli(), first)
        again = SparklessRunner()
        job.master.epochs.run(Session.cli(), again)
        job.assert_tables_equal_the_oracle()
        assert again.plans[0].maintenance == first.plans[0].maintenance
        if isinstance(first.plans[0].maintenance.get("table"), CompactionPlan):
            break


def _fail(plan: object) -> None:
    raise OSError("the driver ends here")


def test_a_sink_that_was_out_of_the_spec_is_written_anew_and_not_compacted(job: CountedJob) -> None:
    """All its rows come from state; what its old files have is older."""
    table = "  - {name: table, input: latest, format: parquet, path: ../lake/table, mode: upsert}\n"
    plans(job, 3)
    job.edit(table, "")
    job.run(2)
    job.edit(SEEN_SINK, SEEN_SINK + table)
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner)
    assert runner.plans[0].filled == {"table"} and "table" not in runner.plans[0].maintenance
    job.assert_tables_equal_the_oracle()
    plans(job, 2)


def test_a_fork_maintains_nothing_and_after_the_switch_epochs_do(tmp_path: Path, few: None) -> None:
    """Nobody reads its table before; what it replayed is files of changes like any other."""
    job = BackfillJob.create(tmp_path / "job", 5)
    job.fix()
    runner = SparklessRunner()
    job.backfill(runner, ranges_per_epoch=1)
    assert [plan.maintenance for plan in runner.plans] == [{}] * len(runner.plans) and len(runner.plans) >= 3
    job.assert_table(5, fixed=True)
    for day in range(6, 10):
        job.next_day(day)
        job.assert_table(day, fixed=True)
    contents = job.small.context.sink("table").position().contents
    assert contents is not None
    assert any(file.groups for file in job.small.context.sink("table").files(contents))
    assert job.master.reports.fsck().exit_code == 0


def test_a_savepoint_of_a_compacted_table_goes_on_in_another_job(job: CountedJob) -> None:
    """Its state brings the hash that the buckets go by; its subtasks are three."""
    assert CompactionPlan in plans(job, EPOCHS)
    saved = job.master.savepoints.create("before")
    other = OtherJob.beside(job)
    other.master.restores.start(saved.location)
    other.assert_equals(job)
    for _ in range(5):
        job.run()
        other.run(1)
        other.assert_equals(job)
    contents = other.context.sink("table").position().contents
    assert contents is not None and any(file.groups for file in other.context.sink("table").files(contents))
