"""What a backfill from `<job>__operate` does to a job, one by one, without a scheduler and without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

DAYS = 4
FROM = {"from": "2026-03-03"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> BackfillJob:
    """Days with the wrong rule from the third on; the rule is corrected, and no epoch was run since."""
    job = BackfillJob.create(tmp_path_factory.mktemp("prepared") / "job", DAYS)
    job.fix()
    return job


@pytest.fixture
def job(prepared: BackfillJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackfillJob:
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    return prepared.copy(tmp_path / "job")


def dag_run(job: BackfillJob, **form: Any) -> InProcessRun:
    own = {name if name == "approve" else f"backfill_{name}": value for name, value in form.items()}
    return InProcessRun(job_dags(job.small.folder / "config")["small__operate"], what="backfill", **own)


@pytest.mark.deep
def test_an_approved_backfill_replays_and_every_table_follows(job: BackfillJob) -> None:
    run = dag_run(job, **FROM)
    plan = run.execute("plan")
    assert (plan["checkpoint_id"], plan["timeline"], run.skipped) == (2, "main", set())
    run.approve()
    job.next_day(DAYS + 1)  # the schedule goes on while the plan waits
    done = run.execute("act")
    run.execute("reconcile")
    assert done["outcome"] == "fast_forwarded"
    job.assert_table(DAYS + 1, fixed=True, fixed_from=3)
    ((_, extra),) = run.outlets.emitted
    assert (extra["checkpoint_id"], extra["timeline"]) == (done["checkpoint_id"], job.state.live)
    assert extra["watermark"] == job.master.reports.show(done["checkpoint_id"]).watermark is not None


def test_a_plan_for_another_spec_is_refused_for_good(job: BackfillJob) -> None:
    run = dag_run(job, **FROM, approve=False)
    run.execute("plan")
    job.edit("watermark_delay: 2h", "watermark_delay: 3h")
    history = job.master.reports.history()
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.history() == history


def test_a_plan_that_was_edited_in_xcom_is_refused(job: BackfillJob) -> None:
    """After an approval: by its digest. Without one: by the form's request."""
    history = job.master.reports.history()
    approved = dag_run(job, **FROM)
    plan = approved.execute("plan")
    approved.approve()
    approved.pushed["plan", "return_value"] = plan | {"approved": plan["approved"] | {"fork_point": 1}}
    with wording.raises(AirflowFailException):
        approved.execute("act")

    unasked = dag_run(job, **FROM, approve=False)
    unasked.execute("plan")
    unasked.pushed["plan", "return_value"] = plan | {"approved": plan["approved"] | {"fork_point": 1}}
    with wording.raises(AirflowFailException):
        unasked.execute("act")
    assert job.master.reports.history() == history


def test_a_retried_backfill_that_had_landed_is_not_done_again(job: BackfillJob) -> None:
    """Its own switch made another timeline live: to the retry the plan would look outdated."""
    run = dag_run(job, **FROM, approve=False)
    run.execute("plan")
    first = run.execute("act")
    job.next_day(DAYS + 1)
    history = job.master.reports.history()
    again = run.execute("act", try_number=2)
    assert (again["checkpoint_id"], again["timeline"]) == (first["checkpoint_id"], first["timeline"])
    assert job.master.reports.history() == history


@pytest.mark.parametrize(
    "form",
    [
        {},
        {**FROM, "from_checkpoint": 1},
        {**FROM, "to": "2026-03-01"},
        {"from_checkpoint": 99},
        {"from_checkpoint": DAYS},
    ],
)
def test_what_cannot_be_replayed_fails_in_the_first_task_in_one_line(job: BackfillJob, form: dict[str, Any]) -> None:
    history = job.master.reports.history()
    with wording.raises(AirflowFailException) as failed:
        dag_run(job, **form).execute("plan")
    assert "\n" not in str(failed.value)
    assert job.master.reports.history() == history
