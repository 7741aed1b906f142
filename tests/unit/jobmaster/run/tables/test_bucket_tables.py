"""Jobs whose table of the latest rows is a Delta table: read by engines that had no part in it, forward and back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from milepost.epoch.plan import EpochPlan
from milepost.errors import CommitConflict, InvalidRequest, StateCorrupt
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.long

DELTA = {"format: parquet, path: ../lake/table": "format: delta, path: ../lake/table"}
BUCKETS = {"format: parquet, path: ../lake/table": "format: delta, buckets: 8, path: ../lake/table"}
FIRST = {r"subtask \d/\d declined": "subtask {n} declined", r" \(also subtask [^)]*\)": ""}
"""Which of two subtasks declines first differs."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Five epochs of a job whose table has eight buckets. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("buckets") / "job", 5, BUCKETS)
    job.land(range(6, 12))
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def lake(job: CountedJob) -> Path:
    return job.small.folder / "lake" / "table"


def others(job: CountedJob) -> DeltaTable:
    return DeltaTable(str(lake(job)))


def assert_engines_see_the_oracle(job: CountedJob, engines: ReadingEngines) -> None:
    job.assert_tables_equal_the_oracle()
    expected = job.expected()["table"]
    for engine in ENGINES:
        assert_same_rows(engines.read(engine, lake(job)).select(["k", "rows"]), expected, engine)
        filtered = engines.read(engine, lake(job), where=("k", "=", "0"))
        with duckdb.cursor() as db:
            db.register("expected", expected)
            assert_same_rows(filtered, db.sql("SELECT * FROM expected WHERE k = 0").to_arrow_table(), engine)


@pytest.mark.deep
def test_engines_see_the_latest_rows_at_every_checkpoint_back_and_forward(
    job: CountedJob, reading_engines: ReadingEngines
) -> None:
    assert_engines_see_the_oracle(job, reading_engines)
    job.rollback(3)
    assert_engines_see_the_oracle(job, reading_engines)
    job.run(2)
    assert_engines_see_the_oracle(job, reading_engines)
    job.rollback(0)
    assert reading_engines.read("duckdb", lake(job)).num_rows == 0
    job.run(3)
    assert_engines_see_the_oracle(job, reading_engines)
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_an_epoch_writes_the_buckets_of_its_keys_alone(job: CountedJob) -> None:
    """Three keys change, so at most three of eight buckets are written again; no row is in two files."""
    before = set(others(job).file_uris())
    job.run()
    after = set(others(job).file_uris())
    assert 1 <= len(after - before) <= 3
    assert len(after) <= 8 and after & before


@pytest.mark.deep
def test_subtasks_of_another_number_write_the_buckets_that_their_cuts_cross(
    job: CountedJob, reading_engines: ReadingEngines
) -> None:
    """TABLES 2: key groups move between subtasks; no row is lost or doubled, and the next epochs go on."""
    for old, new in [
        ("checkpointing:", "spark: {parallelism: 3}\ncheckpointing:"),
        ("parallelism: 3", "parallelism: 1"),
    ]:
        job.edit(old, new)
        job.run(2)
        assert_engines_see_the_oracle(job, reading_engines)
    job.rollback(4)
    assert_engines_see_the_oracle(job, reading_engines)


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.deep), 5, pytest.param(100, marks=pytest.mark.deep)]
)
def test_another_number_of_buckets_takes_effect_file_by_file(
    job: CountedJob, reading_engines: ReadingEngines, count: int
) -> None:
    job.edit("buckets: 8", f"buckets: {count}")
    job.run(3)
    assert_engines_see_the_oracle(job, reading_engines)


@pytest.mark.deep
def test_an_epoch_goes_on_from_files_that_an_engine_put_together(
    job: CountedJob, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.7: a managed table compacts by itself; going back removes what it made of our rows."""
    others(job).optimize.compact()
    assert len(others(job).file_uris()) == 1
    job.run()
    assert_engines_see_the_oracle(job, reading_engines)
    others(job).optimize.compact()
    job.rollback(4)
    assert_engines_see_the_oracle(job, reading_engines)


def test_files_that_are_put_together_while_the_epoch_runs_end_it_and_the_next_one_succeeds(job: CountedJob) -> None:
    """Its subtasks have built on deleted files; nothing of it was published."""

    def compact(plan: EpochPlan) -> None:
        others(job).optimize.compact()

    with wording.raises(CommitConflict):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=compact))
    job.run(2)
    job.assert_tables_equal_the_oracle()
    assert_same_rows(pa.table(others(job).to_pyarrow_table()), job.expected()["table"], "table")


def test_a_missing_file_that_a_subtask_builds_on_is_no_fault_of_the_store(job: CountedJob) -> None:
    """The job says which file, once, and that it is corrupt, which trying again does not mend."""
    kept = {file: file.read_bytes() for file in (lake(job) / "_milepost" / "data").rglob("*.parquet")}
    gone = {Path(unquote(urlsplit(uri).path)) for uri in others(job).file_uris()}
    for file in gone:
        file.unlink()
    with wording.raises(StateCorrupt, replace=FIRST) as told:
        job.run_one()
    assert told.value.message.count("sink table:") == 1 and "STATE_CORRUPT" in told.value.message
    for file in gone:
        file.write_bytes(kept[file])
    job.master.lifecycle.resume()
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_table_without_any_object_is_refused_and_not_started_anew(job: CountedJob) -> None:
    """As when the spec names another catalog, or the folder was moved away: nothing is made where it was looked for."""
    lake(job).rename(job.small.folder / "moved")
    with wording.raises(InvalidRequest):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    assert not (lake(job) / "_delta_log").exists()


@pytest.mark.deep
def test_a_foreign_delete_of_our_rows_is_refused_before_anything_is_read(job: CountedJob) -> None:
    others(job).delete("k = 0")
    ran: list[EpochPlan] = []

    with wording.raises(InvalidRequest):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=ran.append))
    assert not ran
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("table"))
    job.master.lifecycle.resume()
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_fork_stages_changes_and_its_last_epoch_writes_the_buckets(tmp_path: Path) -> None:
    """TABLES 1.13: no reader waits for the switch, and what can fail of it fails before."""
    job = BackfillJob.create(tmp_path / "job", 5, DELTA)
    job.fix()
    runner = SparklessRunner()
    job.backfill(runner, ranges_per_epoch=1)
    rewrites = [plan.buckets["table"].rewrites for plan in runner.plans]
    assert rewrites == [False] * (len(rewrites) - 1) + [True] and len(rewrites) >= 3
    job.assert_table(5, fixed=True)
    seen = pa.table(DeltaTable(str(job.small.folder / "lake" / "table")).to_pyarrow_table())
    assert seen.select(["k", "rows", "total"]).sort_by("k").to_pylist() == job.expected(range(1, 6), 0).to_pylist()
    job.next_day(6)
    job.assert_table(6, fixed=True)
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_a_rollback_into_the_middle_of_a_fork_is_refused_before_anything_and_to_its_ends_is_done(
    tmp_path: Path,
) -> None:
    """Only the fork's last epoch wrote the buckets; no engine could read what those before it staged."""
    job = BackfillJob.create(tmp_path / "job", 5, DELTA)
    job.fix()
    runner = SparklessRunner()
    job.backfill(runner, ranges_per_epoch=1)
    middle, last = (int(plan.checkpoint_id) for plan in runner.plans[-2:])
    before = job.state
    with wording.raises(InvalidRequest):
        roll_back(job.master, middle)
    assert job.state == before
    job.next_day(6)
    roll_back(job.master, last)
    job.assert_table(5, fixed=True)
