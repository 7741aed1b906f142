"""What making and disposing of savepoints from `<job>__operate` do to a job, one by one, without a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def run(job: SparklessJob, what: str, **form: Any) -> Any:
    """Plan and act. Returns what the act left."""
    own = {f"savepoint_{what}_{name}": value for name, value in form.items()}
    dag: DAG = job_dags(job.folder / "config")["small__operate"]
    dag_run = InProcessRun(dag, what=f"savepoint_{what}", approve=False, **own)
    dag_run.execute("plan")
    result = dag_run.execute("act")
    assert "reconcile" in dag_run.skipped, "no table has to follow"
    return result


def names(job: SparklessJob) -> list[tuple[str, int]]:
    return [(one.name, one.checkpoint_id) for one in job.master.list_savepoints()]


def test_a_savepoint_is_made_of_the_head_or_of_the_given_checkpoint_and_disposed_of(job: SparklessJob) -> None:
    wording.matches("savepoint", run(job, "create")["text"], replace=wording.SIZES)
    run(job, "create", name="before-the-fix", at=1)
    assert sorted(names(job)) == [("before-the-fix", 1), ("checkpoint-2", 2)]
    wording.matches("savepoint", run(job, "dispose", name="before-the-fix")["text"])
    assert names(job) == [("checkpoint-2", 2)]


def test_creating_a_savepoint_needs_no_approval_and_disposing_does(job: SparklessJob) -> None:
    dag = job_dags(job.folder / "config")["small__operate"]
    made = InProcessRun(dag, what="savepoint_create", savepoint_create_name="v1")
    made.execute("plan")
    assert made.skipped == {"approve"}
    made.execute("act")
    gone = InProcessRun(dag, what="savepoint_dispose", savepoint_dispose_name="v1")
    gone.execute("plan")
    assert gone.skipped == set()
    gone.approve()
    gone.execute("act")
    assert names(job) == []


@pytest.mark.parametrize(
    ("what", "form"),
    [
        ("create", {"at": 99}),
        (
            "create",
            {"at": 0},
        ),
        ("create", {"name": "sp one!"}),
        (
            "create",
            {"name": "v1", "at": 1},
        ),
        ("dispose", {}),
        ("dispose", {"name": "v2"}),
    ],
)
def test_an_impossible_act_is_refused_by_the_plan_in_one_line(
    job: SparklessJob, what: str, form: dict[str, Any]
) -> None:
    run(job, "create", name="v1")
    history = job.master.reports.history()
    with wording.raises(AirflowFailException) as failed:
        run(job, what, **form)
    assert "\n" not in str(failed.value)
    assert job.master.reports.history() == history


def test_a_savepoint_that_was_replaced_after_the_plan_stays(job: SparklessJob) -> None:
    """What is approved is what is done."""
    run(job, "create", name="v1")
    dag = job_dags(job.folder / "config")["small__operate"]
    gone = InProcessRun(dag, what="savepoint_dispose", savepoint_dispose_name="v1")
    gone.execute("plan")
    gone.approve()
    run(job, "dispose", name="v1")
    run(job, "create", name="v1", at=1)
    with wording.raises(AirflowFailException):
        gone.execute("act")
    assert names(job) == [("v1", 1)]


def test_a_retried_act_that_had_landed_is_done(job: SparklessJob) -> None:
    dag = job_dags(job.folder / "config")["small__operate"]
    for what, left in (("create", [("v1", 2)]), ("dispose", [])):
        one = InProcessRun(dag, what=f"savepoint_{what}", approve=False, **{f"savepoint_{what}_name": "v1"})
        one.execute("plan")
        one.execute("act")
        one.skipped.clear()
        wording.matches("savepoint", one.execute("act", try_number=2)["text"], name=what)
        assert names(job) == left


def test_of_a_job_that_has_never_run_there_is_nothing_to_save(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    with wording.raises(AirflowFailException):
        run(job, "create")
