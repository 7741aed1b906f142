"""What `resume` from `<job>__operate` does to a job, without a scheduler; and that a failed run names it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.operators import tasks
from milepost.airflow.runs.facts import run_facts
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun, TaskInstance, trigger_vetoed
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

VETO = {
    "reason": "QUALITY_GATE_FAILED",
    "detail": "sink table: 1 critical expectation is not met",
    "step": "",
    "runbook": "",
}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    return job


def vetoed(job: SparklessJob, veto: dict[str, str] = VETO, left: dict[tuple[str, str], Any] | None = None) -> str:
    """Fail an epoch as a gate's veto does, by its Airflow tasks. Returns what its last task says.

    Args:
        left: receives what the tasks left in XComs.
    """
    run = SimpleNamespace(
        dag_id="small__epoch", run_id=f"manual__{veto['detail']}", run_type="manual", logical_date=None
    )
    pushed: dict[tuple[str, str], Any] = {} if left is None else left
    abort = trigger_vetoed(str(job.folder / "config" / "small.yaml"), run, veto, pushed)
    with pytest.raises(AirflowFailException) as failed:
        abort(TaskInstance(tasks.ABORT, pushed))
    return str(failed.value)


def test_a_veto_that_fails_the_job_names_the_dag_that_resumes_it_and_so_does_every_later_run(job: SparklessJob) -> None:
    told = vetoed(job)
    assert "small__operate: resume" in told
    wording.matches("AirflowFailException", told)
    with wording.raises(AirflowFailException):
        vetoed(job)


def test_the_notification_of_a_veto_that_failed_the_job_names_resume(job: SparklessJob) -> None:
    left: dict[tuple[str, str], Any] = {}
    vetoed(job, left=left)
    facts = run_facts("small__epoch", True, left)
    assert facts.reason == "QUALITY_GATE_FAILED"
    assert "small__operate: resume" in facts.step
    wording.matches("run_facts", facts.step)


def test_the_form_shows_why_the_job_failed_and_lets_it_run_again(
    job: SparklessJob, caplog: pytest.LogCaptureFixture
) -> None:
    vetoed(job)
    dag = job_dags(job.folder / "config")["small__operate"]
    history = job.master.reports.history()
    with caplog.at_level(logging.INFO):
        shown = InProcessRun(dag, what="resume", dry_run=True)
        shown.execute("plan")
    assert shown.skipped == {"approve", "act", "reconcile"}
    plan = shown.pushed["plan", "return_value"]["text"]
    assert any("QUALITY_GATE_FAILED" in line and VETO["detail"] in line for line in plan)
    assert all(line in caplog.text for line in plan)
    wording.matches("resume", plan)
    assert job.master.reports.history() == history

    run = InProcessRun(dag, "manual__7", what="resume")
    run.execute("plan")
    run.approve()
    wording.matches("resume", run.execute("act")["text"])
    newest = job.master.reports.history(limit=1)[0]
    assert (newest["event"], newest["session_id"]) == ("JobResumed", "airflow:small__operate/manual__7")
    again = InProcessRun(dag, what="resume")
    again.execute("plan")
    assert again.skipped == {"approve", "act", "reconcile"}, "nobody is asked to do nothing"
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).status == "completed"


def test_a_job_that_has_failed_for_another_reason_since_is_not_resumed(job: SparklessJob) -> None:
    """What is approved is what is done: the cause that a person has looked at."""
    vetoed(job)
    run = InProcessRun(job_dags(job.folder / "config")["small__operate"], what="resume")
    run.execute("plan")
    run.approve()
    job.master.lifecycle.resume()
    vetoed(job, VETO | {"detail": "sink table: another rule"})
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.job_state().job_status == "failed"
