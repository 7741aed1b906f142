"""What cancel, start and abort from `<job>__operate` do to a job, one by one, without a scheduler."""

from __future__ import annotations

from typing import Any

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


def epoch(job: SparklessJob) -> None:
    job.master.epochs.run(Session.cli(), SparklessRunner())


def planned_run(job: SparklessJob, what: str, **form: Any) -> InProcessRun:
    """A run whose plan is made and approved."""
    own = {name if name in ("approve", "dry_run") else f"{what}_{name}": value for name, value in form.items()}
    run = InProcessRun(job_dags(job.folder / "config")["small__operate"], "manual__9", what=what, **own)
    run.execute("plan")
    if "approve" not in run.skipped:
        run.approve("ann")
    return run


def test_a_canceled_job_ends_with_a_savepoint_and_begins_again_from_it(job: SparklessJob) -> None:
    canceled = planned_run(job, "cancel", savepoint=True)
    job.land("c.csv")
    epoch(job)  # the schedule goes on while a person thinks: it ends at the head of then
    done = canceled.execute("act")
    wording.matches("cancel", done["text"])
    assert (job.master.reports.job_state().job_status, done["follows"]) == ("canceled", False)
    newest = next(entry for entry in job.master.reports.history() if entry["event"] == "JobCanceled")
    assert newest["session_id"] == "airflow:small__operate/manual__9"
    assert "ann" in newest["detail"]
    wording.matches("history", newest["detail"])

    started = planned_run(job, "start", **{"from": "checkpoint-3"})
    assert started.execute("act")["follows"]
    started.execute("reconcile")
    ((_, extra),) = started.outlets.emitted
    assert extra["checkpoint_id"] == job.master.reports.status().head
    job.land("d.csv")
    epoch(job)


def test_a_job_is_started_at_its_head_or_at_a_checkpoint(job: SparklessJob) -> None:
    for form, head, follows in (({}, 2, False), ({"from": "1"}, 1, True)):
        planned_run(job, "cancel").execute("act")
        done = planned_run(job, "start", **form).execute("act")
        assert (done["checkpoint_id"], done["follows"]) == (head, follows)
        assert job.master.reports.status().head == head


def test_a_retried_start_or_cancel_that_had_landed_is_done(job: SparklessJob) -> None:
    for what, status in (("cancel", "canceled"), ("start", "initializing")):
        run = planned_run(job, what)
        run.execute("act")
        history = job.master.reports.history()
        run.skipped.clear()
        run.execute("act", try_number=2)
        assert job.master.reports.history() == history
        assert job.master.reports.job_state().job_status == status


def test_a_running_job_is_not_started_and_an_ended_one_not_canceled(job: SparklessJob) -> None:
    with wording.raises(AirflowFailException):
        planned_run(job, "start")
    planned_run(job, "cancel").execute("act")
    again = planned_run(job, "cancel")
    assert again.skipped == {"approve", "act", "reconcile"}


def test_a_cancel_of_an_incarnation_that_has_ended_since_ends_no_other(job: SparklessJob) -> None:
    """What is approved is what is done."""
    run = planned_run(job, "cancel")
    job.master.savepoints.cancel()
    job.master.restores.start()
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.job_state().incarnation == 2


def test_an_abort_aborts_only_the_planned_epoch(job: SparklessJob) -> None:
    job.land("c.csv")
    other = Session.cli()
    pending = job.master.triggers.trigger(other).checkpoint_id
    run, late = planned_run(job, "abort"), planned_run(job, "abort")
    assert f"checkpoint {pending}" in run.execute("act")["text"][0]
    assert job.master.reports.show(pending).status == "aborted"
    run.skipped.clear()
    wording.matches("abort", run.execute("act", try_number=2)["text"])
    newer = job.master.triggers.trigger(Session.cli()).checkpoint_id
    with wording.raises(AirflowFailException) as refused:
        late.execute("act")
    assert str(pending) in str(refused.value)
    assert job.master.reports.show(newer).status == "pending"


def test_without_a_running_epoch_an_abort_needs_no_approval(job: SparklessJob) -> None:
    assert planned_run(job, "abort").skipped == {"approve", "act", "reconcile"}
