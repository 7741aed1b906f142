"""What Airflow shows of a job that has ended, and of an epoch that was given up under it (I4, DESIGN 8.3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.airflow.compat import AirflowFailException, DownstreamTasksSkipped
from milepost.airflow.operators import tasks
from milepost.airflow.task_output.outcome import FAILURE_KEY, translate_errors
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import TaskInstance
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


class DagRun:
    """One run of the job's epoch DAG, whose tasks are executed here."""

    def __init__(self, job: SparklessJob, run_id: str = "manual__1") -> None:
        self.job, self.pushed = job, dict[tuple[str, str], Any]()
        self.run = SimpleNamespace(dag_id="small__epoch", run_id=run_id, run_type="manual", logical_date=None)
        self.session = Session.airflow("small__epoch", run_id, "manual", None)

    def execute(self, kind: type[tasks.EpochOperator], task_id: str) -> Any:
        operator = kind(task_id=task_id, spec_path=str(self.job.folder / "config" / "small.yaml"))
        ti = TaskInstance(task_id, self.pushed)
        context: Any = {"ti": ti, "dag_run": self.run, "params": {}}
        with translate_errors(ti, tasks.log):
            result = operator.act(context)
            ti.xcom_push(tasks.RETURN_VALUE, result)
            return result

    def trigger(self) -> Any:
        return self.execute(tasks.TriggerCheckpointOperator, tasks.TRIGGER)


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    job.land("b.csv")
    return job


def finish(job: SparklessJob) -> None:
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    job.master.lifecycle.finish(session)


def test_an_xcom_of_another_shape_is_refused_by_the_next_task(job: SparklessJob) -> None:
    """Of another version, or edited in XCom."""
    dag_run = DagRun(job)
    dag_run.trigger()
    dag_run.pushed[(tasks.TRIGGER, tasks.RETURN_VALUE)] = {"checkpoint_id": 2}
    with wording.raises(AirflowFailException):
        dag_run.execute(tasks.ValidateOperator, tasks.VALIDATE)


ENDS: dict[str, Callable[[SparklessJob], object]] = {
    "canceled": lambda job: job.master.savepoints.cancel(),
    "finished": finish,
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_run_of_a_job_that_has_ended_fails_at_once_with_the_reason_and_the_command(
    job: SparklessJob, end: str
) -> None:
    """Red, without retries: a green run would hide that the schedule no longer does anything."""
    ENDS[end](job)
    dag_run = DagRun(job)
    with pytest.raises(AirflowFailException) as failed:
        dag_run.trigger()
    text = str(failed.value)
    assert end.upper() in text and "small__operate: start" in text and "milepost start small" in text
    wording.describes(failed.value)
    with wording.raises(AirflowFailException):
        dag_run.execute(tasks.AbortCheckpointOperator, tasks.ABORT)
    job.master.restores.start()
    job.land("c.csv")
    assert DagRun(job, "manual__2").trigger()["epoch"] == len(job.context.head().state.completed_sessions) + 1


@pytest.mark.parametrize(
    ("give_up", "reason"),
    [
        (lambda job: job.master.savepoints.cancel(), "CHECKPOINT_COORDINATOR_SHUTDOWN"),
        (lambda job: job.master.lifecycle.abort_running(), "ABORTED_BY_USER"),
    ],
)
def test_a_run_whose_epoch_was_aborted_meanwhile_fails_as_fenced(
    job: SparklessJob, give_up: Callable[[SparklessJob], object], reason: str
) -> None:
    """Rule 3: in every task that is still to come, without retries; and its abort has nothing left to discard."""
    dag_run = DagRun(job)
    acting = dag_run.trigger()
    assert acting["checkpoint_id"] == 2
    job.stage(job.rebind(dag_run.session))
    give_up(job)
    for kind, task_id in (
        (tasks.RunEpochOperator, tasks.RUN),
        (tasks.ValidateOperator, tasks.VALIDATE),
        (tasks.CompleteCheckpointOperator, tasks.COMPLETE),
    ):
        with wording.raises(AirflowFailException):
            dag_run.execute(kind, task_id)
    assert dag_run.pushed[(tasks.RUN, FAILURE_KEY)]["reason"] == "TASK_FAILURE"
    with wording.raises(AirflowFailException):
        dag_run.execute(tasks.AbortCheckpointOperator, tasks.ABORT)
    shown = job.master.reports.show(2)
    assert (shown.status, shown.failure_reason, shown.airflow.run_id) == ("aborted", reason, "manual__1")
    assert job.staged_files(2) == []


def test_a_cleared_run_of_an_ended_job_that_had_completed_is_covered(job: SparklessJob) -> None:
    """Rule 2 comes first: its work is in a checkpoint, so there is nothing that would have to run."""
    dag_run = DagRun(job)
    dag_run.trigger()
    pending = job.rebind(dag_run.session)
    completed = job.complete(dag_run.session, pending)
    job.master.epochs.notify_complete(dag_run.session, completed.checkpoint_id, "table")
    job.master.savepoints.cancel()
    with pytest.raises(DownstreamTasksSkipped):
        dag_run.trigger()
    assert dag_run.pushed[(tasks.TRIGGER, tasks.RETURN_VALUE)] == {"nothing_to_do": "covered"}


def test_a_scheduled_run_of_an_ended_job_fails_whatever_its_date(job: SparklessJob) -> None:
    job.master.savepoints.cancel()
    dag_run = DagRun(job, "scheduled__1")
    dag_run.run = SimpleNamespace(
        dag_id="small__epoch",
        run_id="scheduled__1",
        run_type="scheduled",
        logical_date=datetime(2026, 1, 1, tzinfo=UTC),
    )
    with wording.raises(AirflowFailException):
        dag_run.trigger()
