"""A job whose keys come and go: each kind of table shows just the rows that are left, forward, back and aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost.protocol.records.ids import CheckpointId
from milepost.quality.verdict import VerdictStatus
from milepost.tables.records.table_address import TableAddress
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import decided, roll_back
from milepost_testkit.jobs.sparkless.deleting_job import PARQUET, DeletingJob
from milepost_testkit.readers.reading_engines import ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database

pytestmark = pytest.mark.long

SECOND = PARQUET.replace("table", "second")
IN_POSTGRES = SECOND.replace(
    "format: parquet, path: ../lake/second", 'format: postgres, dsn: "${env:PG_DSN}", table: public.second'
)
GATE = """\
quality:
  - sink: table
    expectations: [{type: expect_column_values_to_not_be_null, column: v, severity: critical}]
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeletingJob:
    monkeypatch.setenv("DELETING_CATALOG", f"sqlite:///{tmp_path / 'job' / 'catalog.db'}")
    return DeletingJob.create(tmp_path / "job")


def test_engines_see_the_rows_that_are_left_forward_and_back(job: DeletingJob, reading_engines: ReadingEngines) -> None:
    for day in range(1, 4):
        job.run(day)
        job.assert_tables(reading_engines, range(1, day + 1))
    for checkpoint_id, days in ((2, (1, 2)), (3, range(1, 4)), (0, ())):
        roll_back(job.master, checkpoint_id)
        job.assert_tables(reading_engines, days)


@pytest.mark.deep
def test_a_backfill_and_its_undo_show_their_deletes_with_the_switch(
    job: DeletingJob, reading_engines: ReadingEngines
) -> None:
    """A fork stages changes, deletes among them; its last epoch writes the buckets."""
    job.run(*range(1, 6))
    job.fix()
    result = back_fill(job.master, SparklessRunner(), "2026-03-03")
    assert result.outcome == "fast_forwarded"
    job.assert_tables(reading_engines, range(1, 6), fixed=True)
    job.run(6)
    job.assert_tables(reading_engines, range(1, 7), fixed=True)
    roll_back(job.master, 5)
    job.assert_tables(reading_engines, range(1, 6))


@pytest.mark.deep
def test_a_table_in_postgres_has_the_rows_that_are_left_forward_and_back(job: DeletingJob, database: Database) -> None:
    job.edit(PARQUET, PARQUET + IN_POSTGRES)

    def assert_table(days: range) -> None:
        expected = {row["k"]: row["v"] for row in job.expected(days).to_pylist()}
        assert dict(database.run("SELECT k, v FROM public.second")) == expected
        assert job.master.realignments.plan("second").fault is None

    for day in range(1, 4):
        job.run(day)
        assert_table(range(1, day + 1))
    roll_back(job.master, 2)
    assert_table(range(1, 3))
    database.run("INSERT INTO public.second (k, v, _milepost) VALUES (77, 7, 1)")
    database.run("DELETE FROM public.second WHERE k = (SELECT min(k) FROM public.second)")
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("second"))
    assert_table(range(1, 3))


@pytest.mark.deep
def test_a_table_goes_on_elsewhere_with_the_rows_that_are_left(
    job: DeletingJob, reading_engines: ReadingEngines
) -> None:
    """From files of changes to buckets; the rollback leads to the old table."""
    job.run(1, 2, 3, 4)
    moved = TableAddress("delta", "../lake/moved")
    job.master.migrations.run(job.master.migrations.plan("table", moved), decision=decided("a test"))
    job.edit("format: parquet, path: ../lake/table", "format: delta, path: ../lake/moved")
    job.assert_tables(reading_engines, range(1, 5))
    job.run(5)
    job.assert_tables(reading_engines, range(1, 6))
    seen = reading_engines.read("duckdb", job.small.folder / "lake" / "moved")
    assert_same_rows(seen, job.expected(range(1, 6)), "moved")


@pytest.mark.deep
def test_another_job_starts_from_a_savepoint_with_the_rows_that_are_left(job: DeletingJob, tmp_path: Path) -> None:
    job.run(1, 2, 3)
    saved = job.master.savepoints.create("third")
    spec = (job.small.folder / "config" / "small.yaml").read_text()
    other = job.small.folder / "config" / "other.yaml"
    for old, new in (("name: small\n", "name: other\n"), ("../lake/", "../lake/other-"), ("small.ice", "other.ice")):
        spec = spec.replace(old, new)
    other.write_text(spec)

    def master() -> JobMaster:
        return JobMaster(load_job(str(other)))

    master().restores.start(saved.location)
    for sink in ("table", "delta", "ice"):
        assert_same_rows(master().reports.read(sink), job.expected(range(1, 4)), sink)
    job.land(4)
    master().epochs.run(Session.cli(), SparklessRunner())
    for sink in ("table", "delta", "ice"):
        assert_same_rows(master().reports.read(sink), job.expected(range(1, 5)), sink)


@pytest.mark.deep
def test_the_gate_judges_no_delete_and_the_diff_says_which_rows_went(job: DeletingJob) -> None:
    """Each value is there: a delete, which has none, vetoes nothing."""
    spec = job.small.folder / "config" / "small.yaml"
    spec.write_text(spec.read_text() + GATE)
    job.run(1, 2)
    before, after = (job.expected(range(1, day + 1)).to_pylist() for day in (1, 2))
    found = {item.name: item for item in job.master.reports.diff(1, 2)}
    for sink in ("table", "delta", "ice"):
        gone = {row["k"] for row in found[sink].changes.table.to_pylist() if row["change"] == "removed"}
        assert gone == {row["k"] for row in before} - {row["k"] for row in after} != set()
    metadata = job.small.context.base_metadata(job.small.context.head().state, CheckpointId(2))
    assert metadata is not None and metadata.verdict.status is VerdictStatus.PASSED
    (verdict,) = metadata.verdict.verdicts
    deleted = metadata.sinks["table"].rows - verdict.rows
    assert deleted >= len({row["k"] for row in before} - {row["k"] for row in after})
