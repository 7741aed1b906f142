"""A job with a landed source lands before each epoch in Airflow; a failed landing holds no epoch back."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG, TriggerRule

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import epoch_dag
from milepost.errors import SourceUnreachable
from milepost.jobmaster import Session
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EPOCH = ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandedJob:
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    return LandedJob.create(tmp_path / "job")


def dag_of(job: LandedJob) -> DAG:
    return epoch_dag(job.loaded())


def run_epoch(run: InProcessRun) -> None:
    for task in EPOCH:
        run.execute(task)
    for committed in run.pushed["complete_checkpoint", "return_value"]:
        run.execute("notify_complete", committed=committed)
    run.execute("subsume")


def test_only_a_job_with_a_landed_source_has_the_task(job: LandedJob, tmp_path: Path) -> None:
    dag = dag_of(job)
    trigger = dag.get_task("trigger_checkpoint")
    assert trigger.upstream_task_ids == {"land_input"}
    assert trigger.trigger_rule is TriggerRule.ONE_DONE, "it also runs if landing failed"
    assert dag.get_task("input_landed").upstream_task_ids == {"land_input"}
    assert not dag.get_task("input_landed").downstream_task_ids, "a failed landing makes the run fail"
    files = epoch_dag(SparklessJob.create(tmp_path / "files").loaded())
    assert not {"land_input", "input_landed"} & set(files.task_ids)


@pytest.mark.deep
def test_an_epoch_processes_what_its_run_landed(job: LandedJob) -> None:
    job.produce(1, 2, 2)
    run = InProcessRun(dag_of(job))
    run.execute("land_input")
    assert job.left == 0
    run_epoch(run)
    job.assert_tables(3)


def test_a_failed_source_is_retried_and_its_epoch_processes_earlier_landed_rows(job: LandedJob) -> None:
    job.produce(1)
    job.land()
    (job.folder / "feed.json").rename(job.folder / "elsewhere.json")
    run = InProcessRun(dag_of(job))
    with pytest.raises(SourceUnreachable, match=r"source feed: .*FileNotFoundError"):
        run.execute("land_input")
    run_epoch(run)
    job.assert_tables(1)


def test_a_landing_that_needs_a_correction_is_not_tried_again(job: LandedJob) -> None:
    job.produce(1)
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("feeds:Feed", "feeds:Range"))
    with pytest.raises(AirflowFailException, match=r"subclass of pyspark\.sql\.datasource\.DataSource"):
        InProcessRun(dag_of(job)).execute("land_input")


def test_a_run_during_a_running_epoch_lands_nothing(job: LandedJob) -> None:
    job.produce(1)
    job.land()
    job.master.triggers.trigger(Session.cli())
    job.produce(2)
    InProcessRun(dag_of(job)).execute("land_input")
    assert job.left == 1


def test_a_job_that_has_ended_lands_nothing(job: LandedJob) -> None:
    job.land_and_run(1)
    job.master.savepoints.cancel()
    job.produce(2)
    InProcessRun(dag_of(job)).execute("land_input")
    assert job.left == 1
