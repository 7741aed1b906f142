"""Jobs whose epochs join small files of their tables: compared with the oracle, rolled back, and when collected."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.epoch.plan import EpochPlan
from milepost.jobmaster import Session
from milepost.sinks.staging import small_files
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import later

pytestmark = pytest.mark.long

DELTA = {"format: parquet, path: ../lake/seen": "format: delta, path: ../lake/seen"}
EPOCHS = 9


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are joined 3 by 3, so that a short history meets it."""
    monkeypatch.setattr(small_files, "GROWTH", 3)


@pytest.fixture
def job(tmp_path: Path, few: None) -> CountedJob:
    job = CountedJob.create(tmp_path / "job", DELTA)
    job.land(range(1, 2 * EPOCHS))
    return job


def seen(job: CountedJob) -> DeltaTable:
    return DeltaTable(str(job.small.folder / "lake" / "seen"))


@pytest.mark.deep
def test_a_table_of_many_epochs_has_few_files_and_equals_the_oracle_at_every_checkpoint(
    job: CountedJob, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.14: back and forth, by its own reader and by engines."""
    ids = job.run(EPOCHS)
    job.assert_tables_equal_the_oracle()
    staged = len(list((job.small.folder / "lake" / "seen" / "_milepost" / "data").rglob("*.parquet")))
    assert len(seen(job).file_uris()) <= 8 < staged
    for at in (ids[-2], ids[2]):
        job.rollback(at)
        job.assert_tables_equal_the_oracle()
        for engine in ENGINES:
            found = reading_engines.read(engine, job.small.folder / "lake" / "seen")
            assert_same_rows(found, job.expected()["seen"], engine)
    job.run(EPOCHS // 2)
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_originals_go_when_no_retained_checkpoint_names_them(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: they are garbage like anything that contents named before; what is retained is shown again."""
    job.edit("last: 20", "last: 2")
    for number in range(EPOCHS):
        later(monkeypatch, 2 * 3_600_000 * number)
        job.run()
    data = job.small.folder / "lake" / "seen" / "_milepost" / "data"
    assert not list((data / f"chk-{1:020d}").rglob("*.parquet"))
    assert job.master.reports.fsck().exit_code == 0
    job.assert_tables_equal_the_oracle()
    job.rollback(EPOCHS - 1)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_an_engine_that_puts_the_same_files_together_meanwhile_is_no_conflict(job: CountedJob) -> None:
    """Nothing depends on what was joined: the engine's files stay, ours are garbage."""
    while True:
        runner = SparklessRunner(after=lambda plan: seen(job).optimize.compact() if plan.maintenance else None)
        job.master.epochs.run(Session.cli(), runner)
        if runner.plans[0].maintenance:
            break
    assert not any("/j0-" in uri for uri in seen(job).file_uris())
    job.assert_tables_equal_the_oracle()
    job.run(4)
    job.assert_tables_equal_the_oracle()
    head = job.small.context.head().state.checkpoints[-1]
    sink, contents = job.small.context.sink("seen"), job.small.context.metadata(head).tables["seen"]
    assert sink.verify(contents, deep=True) == [] and job.master.reports.fsck().exit_code == 0
    job.master.savepoints.create("after", target="../others")


def test_subtasks_share_the_joining_and_tables_of_latest_rows_have_nothing_to_join(job: CountedJob) -> None:
    plans = list[EpochPlan]()
    for _ in range(EPOCHS):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=plans.append))
    joined = [plan.maintenance for plan in plans if plan.maintenance]
    assert joined and all(set(joins) == {"seen"} for joins in joined)
    assert plans[0].maintenance == {}
