"""A job that starts from tables reads its landed sources from their `start`, or is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import NothingToDo
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    return LandedJob.create(tmp_path / "job")


@pytest.fixture
def table(job: LandedJob, tmp_path: Path) -> str:
    """The state of another job that has read the rows 1, 2 and 2."""
    other = LandedJob.create(tmp_path / "other")
    other.land_and_run(1, 2, 2)
    file = tmp_path / "totals.parquet"
    pq.write_table(other.master.reports.state("totals"), file)
    return str(file)


def totals(job: LandedJob) -> dict[int, int]:
    rows: pa.Table = job.master.reports.read("totals")
    return dict(zip(rows["k"].to_pylist(), rows["rows"].to_pylist(), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("lands_before", [False, True])
def test_a_bootstrapped_job_reads_the_log_from_its_begin(job: LandedJob, table: str, lands_before: bool) -> None:
    if lands_before:
        job.produce(2, 3)
        job.land()
    job.master.bootstraps.run({"totals": table})
    if not lands_before:
        job.produce(2, 3)
        job.land()
    assert not isinstance(job.epoch(), NothingToDo)
    assert totals(job) == {1: 1, 2: 3, 3: 1}
    assert job.master.reports.fsck().exit_code == 0


def test_a_job_whose_log_was_read_before_is_refused(job: LandedJob, table: str) -> None:
    job.land_and_run(5)
    job.master.savepoints.cancel()
    head = job.context.head().version
    with wording.raises(InvalidRequest) as refused:
        job.master.bootstraps.run({"totals": table})
    assert "source feed" in refused.value.message and job.context.head().version == head


def test_a_job_that_was_made_anew_over_an_old_log_is_refused_until_the_log_is_moved_away(
    job: LandedJob, table: str
) -> None:
    job.produce(5)
    job.land()
    root = job.folder / "store" / "landed"
    shutil.rmtree(root / "manifest")
    with wording.raises(InvalidRequest):
        job.master.bootstraps.run({"totals": table})
    shutil.move(root / "landed", job.folder / "old")
    job.master.bootstraps.run({"totals": table})
