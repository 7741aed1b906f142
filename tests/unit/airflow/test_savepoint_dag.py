"""What the tasks of `<job>__savepoint` do to a job, one by one, without a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster.jobmaster import Session
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless_runner import SparklessRunner
from tests.harness.servers.task_runs import InProcessRun


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """Two epochs."""
    job = SparklessJob.create(tmp_path, {"last: 1": "last: 20"})
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.master.run(Session.cli(), SparklessRunner())
    return job


def run(job: SparklessJob, task_id: str, **form: Any) -> Any:
    dag: DAG = job_dags(job.folder / "config")["small__savepoint"]
    dag_run = InProcessRun(dag, **form)
    result = dag_run.execute(task_id)
    if result is None:
        assert dag_run.skipped == {task_id}
    return result


def names(job: SparklessJob) -> list[tuple[str, int]]:
    return [(one.name, one.checkpoint_id) for one in job.master.list_savepoints()]


def test_a_savepoint_is_made_of_the_head_or_of_the_given_checkpoint_and_disposed_of(job: SparklessJob) -> None:
    made = run(job, "create_savepoint")
    assert (made["name"], made["checkpoint_id"]) == ("checkpoint-2", 2)
    run(job, "create_savepoint", name="before-the-fix", at=1)
    assert sorted(names(job)) == [("before-the-fix", 1), ("checkpoint-2", 2)]
    run(job, "dispose_savepoint", action="dispose", name="before-the-fix")
    assert names(job) == [("checkpoint-2", 2)]


def test_each_task_leaves_to_the_other_what_the_form_asks_of_it(job: SparklessJob) -> None:
    assert run(job, "dispose_savepoint", name="v1") is None
    assert run(job, "create_savepoint", action="dispose", name="v1") is None
    assert names(job) == []


@pytest.mark.parametrize(
    ("task_id", "form", "why"),
    [
        ("create_savepoint", {"at": 99}, "no checkpoint 99; the next one is 3"),
        ("create_savepoint", {"name": "v1", "at": 1}, "v1"),
        ("dispose_savepoint", {"action": "dispose"}, "expected its name and no checkpoint id, got name None"),
        ("dispose_savepoint", {"action": "dispose", "name": "v1", "at": 1}, "and checkpoint 1. Nothing was changed"),
        ("dispose_savepoint", {"action": "dispose", "name": "v2"}, "has no savepoint v2; it has: v1"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once_in_one_line(
    job: SparklessJob, task_id: str, form: dict[str, Any], why: str
) -> None:
    run(job, "create_savepoint", name="v1")
    history = job.master.history()
    with pytest.raises(AirflowFailException, match=why) as failed:
        run(job, task_id, **form)
    assert "\n" not in str(failed.value)
    assert job.master.history() == history


def test_of_a_job_that_has_never_run_there_is_nothing_to_save(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    with pytest.raises(AirflowFailException, match="job small has no completed checkpoint yet"):
        run(job, "create_savepoint")
