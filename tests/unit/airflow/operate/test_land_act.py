"""The act `land` from `<job>__operate`: a gap or void records in the log of a source, approved by a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost.protocol.landed.records import Gap
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """A job that has read 3 rows, and whose external system has lost 2 of the 3 rows after that."""
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2, 1)
    job.produce(3, 3, 1)
    job.expire(2)
    return job


def planned(job: LandedJob, **fields: object) -> InProcessRun:
    form = {"land_source": "feed", **(fields or {"land_resume_from": "earliest"})}
    run = InProcessRun(job_dags(job.folder / "config")["landed__operate"], what="land", **form)
    run.execute("plan")
    return run


def gap(job: LandedJob) -> Gap | None:
    newest = SourceLog(job.context.store, "feed").newest()
    assert newest is not None
    return newest.record.gap


@pytest.mark.deep
def test_an_approved_gap_names_who_approved_it_and_the_log_goes_on(job: LandedJob) -> None:
    run = planned(job)
    assert gap(job) is None
    run.approve()
    wording.matches("land", run.execute("act")["text"])
    assert run.skipped == {"reconcile"}, "no table changes"
    approved = gap(job)
    assert approved is not None and "approved by" in approved.approved_by
    assert not job.land().failed and job.left == 0


def test_a_retried_task_finds_the_gap_of_its_earlier_try(job: LandedJob) -> None:
    run = planned(job)
    run.approve()
    first = run.execute("act")
    newest = SourceLog(job.context.store, "feed").newest()
    assert run.execute("act", try_number=2) == first
    assert SourceLog(job.context.store, "feed").newest() == newest


@pytest.mark.deep
def test_an_approval_is_outdated_once_the_log_has_moved(job: LandedJob) -> None:
    run = planned(job)
    run.approve()
    job.approve_gap()
    with wording.raises(AirflowFailException):
        run.execute("act")


@pytest.mark.parametrize("retried", [False, True])
def test_void_records_and_the_acceptance_of_false_rows_are_approved_like_a_gap(tmp_path: Path, retried: bool) -> None:
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2, 3)
    job.go_back(2)
    for form in ({"land_void_from": "auto"}, {"land_accept_void": True}):
        run = planned(job, **form)
        run.approve()
        wording.matches("land_" + next(iter(form)), run.execute("act")["text"])
        newest = SourceLog(job.context.store, "feed").newest()
        if retried:
            run.execute("act", try_number=2)
        assert newest == SourceLog(job.context.store, "feed").newest()
        assert newest is not None and newest.record.void is not None
        assert "approved by" in newest.record.void.approved_by
    assert [span.accepted for span in newest.record.voids] == [True]


def test_the_choices_of_the_form_are_the_landed_sources(job: LandedJob) -> None:
    form = job_dags(job.folder / "config")["landed__operate"].params
    assert form.get_param("land_source").schema["enum"] == [None, "feed"]
