"""Sources with `land: {every}` are landed by a DAG of their own, and not by the epochs that process them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG

from milepost.airflow.dags import MilepostTaskGroup
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.operators.dag_ids import is_of_a_job
from milepost.airflow.runs.facts import run_facts, xcom_keys
from milepost.errors import InvalidRequest, SourceUnreachable, SubtaskDeclined
from milepost.jobmaster import Session
from milepost.protocol.records import JobStatus
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EVERY = {"    event_time: at\n": "    event_time: at\n    land: {every: 60s}\n"}
OPERATORS = "operators:\n"
THREE_MORE = """\
  bids: {format: nexmark, events: bid, total: 5, land: {every: 1m, max_rows: 3}}
  people: {format: nexmark, events: person, total: 2}
  slow: {format: nexmark, events: auction, total: 1, land: {every: 90m}}
operators:
"""


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    return LandedJob.create(tmp_path / "job", EVERY)


def dags_of(job: LandedJob) -> dict[str, DAG]:
    return job_dags(job.folder / "config")


def land(job: LandedJob) -> InProcessRun:
    run = InProcessRun(dags_of(job)["landed__land_1m"])
    run.execute("land_input")
    return run


def test_sources_of_one_schedule_share_a_dag_and_the_epoch_lands_only_the_others(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path / "job", {**EVERY, OPERATORS: THREE_MORE})
    dags = dags_of(job)
    assert set(dags) == {"landed__epoch", "landed__operate", "landed__land_1m", "landed__land_90m"}
    dag = dags["landed__land_1m"]
    assert (dag.max_active_runs, dag.catchup, dag.schedule.delta) == (1, False, timedelta(minutes=1))
    assert all(map(is_of_a_job, dags))
    spec = job.loaded().spec
    assert spec.land_schedules == {timedelta(minutes=1): ("bids", "feed"), timedelta(minutes=90): ("slow",)}
    InProcessRun(dags["landed__epoch"]).execute("land_input")
    assert job.master.landings.newest_records() == {"bids": 0, "feed": 0, "people": 2, "slow": 0}
    assert land(job).pushed["land_input", "return_value"] == {"rows": 5, "not_due": None}
    assert job.master.landings.newest_records() == {"bids": 3, "feed": 1, "people": 2, "slow": 0}


def test_an_epoch_has_no_landing_if_every_source_has_a_schedule_of_its_own(job: LandedJob) -> None:
    dag = dags_of(job)["landed__epoch"]
    assert not {"land_input", "input_landed"} & set(dag.task_ids)


def test_a_task_makes_the_landing_dag_alone(job: LandedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    dags_of(job)
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "landed__land_1m")
    assert set(dags_of(job)) == {"landed__land_1m"}


def test_one_epoch_processes_the_landings_of_several_minutes(job: LandedJob) -> None:
    job.land()
    for key in (1, 2):
        job.produce(key)
        land(job)
    assert job.left == 0
    job.epoch()
    job.epoch()
    job.assert_tables(2)


@pytest.mark.deep
def test_a_failed_job_goes_on_landing(job: LandedJob) -> None:
    job.land_and_run(1)
    job.produce(2)
    job.land()

    class Failing(SparklessRunner):
        def run(self, *args: object, **kwargs: object) -> object:
            raise SubtaskDeclined("a row cannot be processed")

    with pytest.raises(SubtaskDeclined):
        job.master.epochs.run(Session.cli(), Failing())
    assert job.context.head().state.status is JobStatus.FAILED
    job.produce(3)
    land(job)
    assert job.left == 0


def test_a_job_that_has_ended_or_was_deleted_lands_nothing(job: LandedJob) -> None:
    job.produce(1)
    run = land(job)
    assert "has not run yet" in run.pushed["land_input", "return_value"]["not_due"]
    assert not (job.folder / "store").exists(), "a job that was deleted is not made anew"
    job.land_and_run(1)
    job.produce(2)
    job.master.savepoints.cancel()
    land(job)
    assert job.left == 1


def test_a_landing_that_fails_is_tried_again_and_notes_why(job: LandedJob) -> None:
    job.land_and_run(1)
    (job.folder / "feed.json").rename(job.folder / "elsewhere.json")
    run = InProcessRun(dags_of(job)["landed__land_1m"])
    with pytest.raises(SourceUnreachable):
        run.execute("land_input")
    facts = run_facts("landed__land_1m", True, run.pushed)
    assert (facts.job, facts.what, facts.checkpoint_id) == ("landed", "landing", None)
    assert "source feed:" in facts.line and facts.runbook


def test_a_run_notes_what_it_landed(job: LandedJob) -> None:
    job.land()
    job.produce(1, 2)
    run = land(job)
    assert set(xcom_keys("landed__land_1m")) >= {("land_input", "return_value")}
    assert run_facts("landed__land_1m", False, run.pushed).line == "landed 2 rows"


def test_a_task_group_cannot_land_on_a_schedule(job: LandedJob) -> None:
    with DAG("ours", schedule=None), pytest.raises(InvalidRequest) as refused:
        MilepostTaskGroup(job=job.folder / "config" / "landed.yaml")
    wording.matches("group", str(refused.value.full_message()).replace(str(job.folder), "FOLDER"))
