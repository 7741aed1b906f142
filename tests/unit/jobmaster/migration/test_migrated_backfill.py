"""A backfill of a migrated table: as usual from the migration on, also over buckets, and never to an earlier point."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.tables.records.table_address import TableAddress
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.long

THERE = TableAddress("delta", "../lake/open")


@pytest.fixture
def job(tmp_path: Path) -> BackfillJob:
    """Two days, a migration, and three more days with the wrong rule."""
    job = BackfillJob.create(tmp_path / "job", 2)
    job.master.migrations.run(job.master.migrations.plan("table", THERE))
    job.edit("format: parquet, path: ../lake/table", "format: delta, path: ../lake/open")
    for day in (3, 4, 5):
        job.next_day(day)
    return job


def assert_engines_agree(job: BackfillJob, engines: ReadingEngines) -> None:
    for engine in ENGINES:
        read = engines.read(engine, job.small.folder / "lake" / "open").select(["k", "rows", "total"])
        assert_same_rows(read, job.table(), engine)


@pytest.mark.deep
def test_a_backfill_from_after_a_migration_writes_the_new_table(
    job: BackfillJob, reading_engines: ReadingEngines
) -> None:
    job.fix()
    done = job.backfill()
    assert done.fork_point >= 3, "the checkpoint of the migration, or a later one"
    job.assert_table(5, fixed=True, fixed_from=3)
    assert_engines_agree(job, reading_engines)
    job.next_day(6)
    job.assert_table(6, fixed=True, fixed_from=3)
    assert_engines_agree(job, reading_engines)
    assert job.master.reports.fsck().exit_code == 0
    roll_back(job.master, 2)
    job.assert_table(2, fixed=False)
    job.edit("format: delta, path: ../lake/open", "format: parquet, path: ../lake/table")
    job.epoch()
    assert job.master.reports.fsck().exit_code == 0


def test_a_backfill_to_before_a_migration_is_refused_and_says_where_to_begin(job: BackfillJob) -> None:
    job.fix()
    with wording.raises(InvalidRequest):
        job.backfill(from_="2026-03-01")
