"""An epoch inside a team's own DAG: their tasks before and after it, ids of its own, and the DAG's schedule."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags import MilepostTaskGroup
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.task_output.outcome import FAILURE_KEY
from milepost.errors import Fenced, InvalidRequest, NotFound
from milepost.jobmaster import CheckpointDetails, Session, Triggered
from milepost.storage.requests import StoreRequests
from milepost_testkit import wording
from milepost_testkit.airflow.kept_dags import jobs_on_the_page, keep_dags
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

NOTHING = {"requests": {"puts": 0, "gets": 0, "deletes": 0, "sent_bytes": 0, "received_bytes": 0}}


LEASE = {r"\b\d+(\.\d+)? (ms|s)\b": "{time}"}
"""What differs from run to run in the message about the session that leads."""


class TeamTask(BaseOperator):
    """A task of the team's."""

    def execute(self, context: Any) -> None:
        raise NotImplementedError


def team_dag(spec: Path, **group: Any) -> DAG:
    with DAG("ours", schedule=None, default_args={"owner": "team", "retries": 7}) as dag:
        TeamTask(task_id="land") >> MilepostTaskGroup(job=spec, **group) >> TeamTask(task_id="report")
    return dag


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    return SparklessJob.create(tmp_path)


def spec_of(job: SparklessJob) -> Path:
    return job.folder / "config" / "small.yaml"


def test_what_follows_the_group_waits_for_the_published_epoch_and_not_for_the_abort(job: SparklessJob) -> None:
    """The task that aborts is skipped when all is well, and tasks downstream of it would be skipped with it."""
    dag = team_dag(spec_of(job))
    assert dag.get_task("report").upstream_task_ids == {"small.subsume"}
    assert dag.get_task("land").downstream_task_ids == {"small.trigger_checkpoint"}
    assert dag.get_task("small.abort_checkpoint").downstream_task_ids == set()


def test_the_tasks_of_a_group_run_an_epoch_between_them(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds what the others left under their ids in the group; the session is the run of the team's DAG."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    job.land("a.csv")
    run = InProcessRun(team_dag(spec_of(job)))
    for name in ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint"):
        run.execute(f"small.{name}")
    run.execute("small.notify_complete")
    run.execute("small.subsume")
    (checkpoint,) = job.master.reports.list_checkpoints()
    led = checkpoint.airflow
    assert (checkpoint.status, led.dag_id, led.run_id) == ("completed", "ours", "manual__1")
    assert led.bundle == "jobs-repository@731c834", "which version of the DAG file triggered it"
    assert [extra["checkpoint_id"] for _, extra in run.outlets.emitted] == [1]


def test_an_unmapped_notify_publishes_all_sinks_and_is_skipped_without_any(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleared `complete_checkpoint` of a published epoch leaves nothing; what was no list of sinks is refused."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    job.land("a.csv")
    run = InProcessRun(team_dag(spec_of(job)))
    for name in ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint"):
        run.execute(f"small.{name}")
    (told,) = run.execute("small.notify_complete")
    assert told == {"checkpoint_id": 1, "timeline": "main", "watermark": None, "rows": 1, "sink": "table"}
    run.execute("small.complete_checkpoint", try_number=2)
    run.execute("small.notify_complete", try_number=2)
    wording.matches("task_log", run.skip_reasons["small.notify_complete"])
    assert len(run.outlets.emitted) == 1
    run.skipped.clear()
    run.pushed["small.complete_checkpoint", RETURN_VALUE] = {"sink": "table"}
    with wording.raises(AirflowFailException):
        run.execute("small.notify_complete", try_number=3)


def test_a_cleared_run_epoch_of_a_completed_checkpoint_logs_that_nothing_was_done_again(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    run = run_up_to_validate(job)
    run.execute("small.complete_checkpoint")
    caplog.clear()
    with caplog.at_level("INFO", "milepost.airflow"):
        run.execute("small.run_epoch", try_number=2)
    (line,) = (message for message in caplog.messages if "rows in" in message)
    assert "acknowledged" not in line
    wording.matches("task_log", line)


def run_up_to_validate(job: SparklessJob) -> InProcessRun:
    job.land("a.csv")
    run = InProcessRun(team_dag(spec_of(job)))
    for name in ("trigger_checkpoint", "run_epoch", "validate"):
        run.execute(f"small.{name}")
    return run


@pytest.mark.deep
def test_a_validate_result_of_an_older_try_does_not_apply_to_the_completed_one(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `run_epoch` was cleared, or `validate` was cleared and marked as a success: its XCom is of another token."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    run = run_up_to_validate(job)
    again = run.execute("small.run_epoch", try_number=2)
    (left,) = run.execute("small.complete_checkpoint")
    (completed,) = job.context.head().state.checkpoints
    assert left["token"] == again["token"] == completed.token != run.pushed["small.validate", RETURN_VALUE]["token"]
    run.execute("small.notify_complete")
    run.execute("small.subsume")
    report = job.master.reports.show(1)
    assert isinstance(report, CheckpointDetails)
    measured = [report.phases[f"{step}_ms"] for step in ("commit", "notify", "subsume")]
    assert None not in measured, "of the token that was completed"


@pytest.mark.parametrize(
    "left",
    [
        {"checkpoint_id": 1},
        {"checkpoint_id": 1, "timeline": "main", "token": 3, "unrecorded": {"requests": {"puts": -1}}},
        {"checkpoint_id": 1, "timeline": "main", "token": 3, "unrecorded": None},
        ["checkpoint_id"],
        7,
        {"checkpoint_id": 8, "timeline": "main", "token": 3, "unrecorded": NOTHING},
    ],
)
def test_an_edited_validate_result_commits_nothing_and_validate_can_be_rerun(
    left: object, job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    run = run_up_to_validate(job)
    run.pushed["small.validate", RETURN_VALUE] = left
    before = job.context.head().version
    with wording.raises(AirflowFailException):
        run.execute("small.complete_checkpoint")
    assert job.context.head().version == before
    run.execute("small.validate", try_number=2)
    run.execute("small.complete_checkpoint", try_number=2)
    run.execute("small.notify_complete")
    assert [one.status for one in job.master.reports.list_checkpoints()] == ["completed"]


def test_unrecorded_requests_of_run_epoch_are_billed_once_despite_retries(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory receives no requests: what is passed on is all there is."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    run = run_up_to_validate(job)
    run.pushed["small.run_epoch", RETURN_VALUE]["unrecorded"]["requests"] |= {"puts": 5, "received_bytes": 70}
    for name in ("validate", "validate", "complete_checkpoint", "complete_checkpoint"):
        run.execute(f"small.{name}")
    report = job.master.reports.show(1)
    assert isinstance(report, CheckpointDetails)
    assert {phase: made for phase, made in report.requests.items() if made.total} == {
        "commit": StoreRequests(puts=5, received_bytes=70)
    }


def test_a_validate_that_was_marked_successful_by_hand_does_not_block_the_commit(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left nothing: whom `complete_checkpoint` acts for is what `run_epoch` left."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    run = run_up_to_validate(job)
    del run.pushed["small.validate", RETURN_VALUE]
    (left,) = run.execute("small.complete_checkpoint")
    assert left["token"] == run.pushed["small.run_epoch", RETURN_VALUE]["token"]
    assert [one.status for one in job.master.reports.list_checkpoints()] == ["completed"]


def test_a_group_with_nothing_to_do_skips_its_own_tasks_and_not_what_follows(job: SparklessJob) -> None:
    run = InProcessRun(team_dag(spec_of(job)))
    run.execute("small.trigger_checkpoint")
    assert run.skipped == {"small.run_epoch"}
    run.execute("small.subsume")  # what follows the group waits for this one
    covered = InProcessRun(team_dag(spec_of(job)))
    covered.pushed["small.trigger_checkpoint", RETURN_VALUE] = {"nothing_to_do": "covered"}
    covered.execute("small.subsume")
    wording.matches("task_log", covered.skip_reasons["small.subsume"])


def test_a_run_during_another_session_is_skipped_until_it_takes_over(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pending checkpoint is a lease. The next run skips, or takes over when a person says so."""
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    job.land("a.csv")
    other = Session.cli()
    held = job.master.triggers.trigger(other)
    assert isinstance(held, Triggered)
    beside = InProcessRun(team_dag(spec_of(job)))
    beside.execute("small.trigger_checkpoint")
    wording.matches("task_log", beside.skip_reasons["small.trigger_checkpoint"], replace=LEASE)
    taking_over = InProcessRun(team_dag(spec_of(job)), "manual__2", take_over=True)
    for name in ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint"):
        taking_over.execute(f"small.{name}")
    taken, completed = sorted(job.master.reports.list_checkpoints(), key=lambda one: one.checkpoint_id)
    assert (taken.status, taken.failure_reason) == ("aborted", "LEADER_TAKEN_OVER")
    assert (completed.status, completed.airflow.run_id) == ("completed", "manual__2")
    for too_late in (job.master.epochs.validate, job.master.epochs.complete):
        with pytest.raises(Fenced):
            too_late(other, held.checkpoint_id)


def test_a_failed_task_of_a_group_aborts_the_checkpoint_with_what_it_left(job: SparklessJob) -> None:
    job.land("a.csv")
    run = InProcessRun(team_dag(spec_of(job)))
    run.execute("small.trigger_checkpoint")
    run.pushed["small.run_epoch", FAILURE_KEY] = {
        "reason": "TASK_FAILURE",
        "detail": "out of luck",
        "step": "",
        "runbook": "",
    }
    with wording.raises(AirflowFailException):
        run.execute("small.abort_checkpoint")
    assert [one.status for one in job.master.reports.list_checkpoints()] == ["aborted"]


def test_a_group_takes_the_settings_that_its_spec_states_and_the_dag_s_for_the_rest(job: SparklessJob) -> None:
    spec = spec_of(job)
    spec.write_text(spec.read_text() + "airflow: {retries: 3, tags: [money]}\n")
    dag = team_dag(spec, default_args={"pool": "heavy"})
    task = dag.get_task("small.run_epoch")
    assert (task.retries, task.owner, task.pool) == (3, "team", "heavy")
    assert task.execution_timeout < timedelta(minutes=10)
    assert "money" in dag.tags


def test_a_spec_with_a_schedule_is_refused_for_the_dag_has_one(job: SparklessJob) -> None:
    spec = spec_of(job)
    spec.write_text(spec.read_text() + 'schedule: {cron: "@daily", timezone: UTC}\n')
    with wording.raises(InvalidRequest):
        team_dag(spec)


def test_a_missing_or_invalid_spec_is_an_error_of_the_dag_file(job: SparklessJob) -> None:
    with wording.raises(NotFound):
        team_dag(Path("jobs/small.yaml"))
    spec_of(job).write_text("name: small\nstorages: x\n")
    with pytest.raises(InvalidRequest, match="storages"):
        team_dag(spec_of(job))


def test_a_relative_spec_path_is_relative_to_the_folder_of_the_dag_file(tmp_path: Path) -> None:
    SparklessJob.create(tmp_path)
    file = tmp_path / "ours.py"
    file.write_text(
        "from airflow.sdk import DAG\n"
        "from milepost.airflow.dags import MilepostTaskGroup\n"
        "with DAG('ours', schedule=None) as dag:\n"
        "    MilepostTaskGroup(job='config/small.yaml')\n"
    )
    namespace: dict[str, Any] = {"__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert namespace["dag"].get_task("small.trigger_checkpoint").spec_path == str(tmp_path / "config" / "small.yaml")


def test_the_page_of_a_dag_with_two_jobs_has_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = SparklessJob.create(tmp_path / "one"), SparklessJob.create(tmp_path / "two")
    edit_spec(spec_of(second), {"name: small": "name: other"})
    with DAG("ours", schedule=None) as dag:
        MilepostTaskGroup(job=spec_of(first)) >> MilepostTaskGroup(job=spec_of(second), group_id="second")
    keep_dags(monkeypatch, dag)
    found = jobs_on_the_page("ours")
    assert {name: job.path for name, job in found.items()} == {"other": spec_of(second), "small": spec_of(first)}
