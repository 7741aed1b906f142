"""A trace never replays without the rows that an epoch has read and that became void later."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """A job that has accepted false rows: checkpoint 2 has read row 3, which the source then replaced."""
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 1)
    job.land_and_run(1, 5)
    job.go_back(3)
    job.produce(5, 6)
    job.land()
    job.void()
    job.accept_void()
    job.land()
    job.epoch()
    job.epoch()
    return job


@pytest.mark.long
def test_a_row_of_an_epoch_that_has_read_void_records_is_not_traced(job: LandedJob) -> None:
    refused = "checkpoint 2 has read records of source feed that became void later"
    with pytest.raises(InvalidRequest, match=refused):
        job.master.tracing.origin("totals", {"k": "1"}, duckdb_tracer(), 2)


@pytest.mark.long
def test_the_trace_of_a_later_row_begins_after_the_void_records(job: LandedJob) -> None:
    origin = job.master.tracing.origin("totals", {"k": "6"}, duckdb_tracer())
    assert origin.cut is not None and origin.cut.checkpoint_id == 2
    assert origin.is_proven and [each.listed["n"].to_pylist() for each in origin.inputs] == [[4]]


@pytest.mark.long
def test_a_job_that_went_back_to_before_the_void_records_is_traced_whole(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 1)
    job.land_and_run(1, 2)
    job.go_back(3)
    job.produce(7, 1, 1)
    job.land()
    job.void()
    job.roll_back(1)
    job.land()
    job.epoch()
    origin = job.master.tracing.origin("totals", {"k": "1"}, duckdb_tracer())
    assert origin.is_proven and origin.cut is None
