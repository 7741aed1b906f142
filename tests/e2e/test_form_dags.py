"""The DAG of forms, in a real scheduler: values, refusals and approvals by REST; DESIGN 8.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from milepost.jobmaster import Session
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import E2eJob, has_line
from milepost_testkit.airflow.form_run import FormRun
from milepost_testkit.runners.sparkless_runner import SparklessRunner

TABLES = {1: {"AA": (1, 1)}, 2: {"AA": (2, 21), "UA": (1, 300)}, 3: {"AA": (2, 21), "UA": (2, 4_300)}}


def epoch(job: E2eJob) -> None:
    """One epoch outside Airflow, without Spark."""
    job.master.epochs.run(Session.cli(), SparklessRunner())


class Back(NamedTuple):
    """A job with three epochs, each of one object, and two runs that plan to roll it back to the first."""

    job: E2eJob
    rejected: FormRun
    outdated: FormRun


def back(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[Back | None]:
    job = airflow.write_job("back")
    for name, rows in {"a": {"AA": 1}, "b": {"AA": 20, "UA": 300}, "c": {"UA": 4_000}}.items():
        job.land(name, rows)
        epoch(job)
    assert job.table() == TABLES[3]
    yield None
    rejected, outdated = (FormRun(airflow, "back__operate", what="rollback", rollback_to="1") for _ in range(2))
    yield Back(job, rejected, outdated)


pytestmark = pytest.mark.scenario(begins=back)


@pytest.fixture
def job(scenario: Back) -> E2eJob:
    return scenario.job


@pytest.mark.deep
def test_the_first_task_refuses_an_argument_that_is_no_checkpoint_with_a_reason(
    airflow: AirflowInstance, job: E2eJob
) -> None:
    """Airflow's form would only say "Bad Request"."""
    history = job.master.reports.history()
    mistyped = FormRun(airflow, "back__operate", what="rollback", rollback_to="1; drop")
    assert (mistyped.wait(), mistyped.executions("plan")) == ("failed", 1)
    assert has_line(mistyped.log("plan"), "rollback_to", "'1; drop'")

    run = FormRun(airflow, "back__operate", what="rollback", rollback_to="99")

    assert run.wait() == "failed"
    assert (run.executions("plan"), run.states()["approve"]) == (1, "upstream_failed")
    assert has_line(run.log("plan"), "checkpoint 99", "1, 2, 3")
    assert job.master.reports.history() == history


@pytest.mark.deep
def test_an_edited_plan_is_not_the_approved_one(airflow: AirflowInstance, job: E2eJob) -> None:
    history = job.master.reports.history()
    edited = FormRun(airflow, "back__operate", what="rollback", rollback_to="1")
    edited.asked()
    edited.edit_plan(checkpoint_id=2)
    edited.answer("Approve")
    assert edited.wait() == "failed"
    assert has_line(edited.log("approve"), "XCom", "digest")
    assert job.master.reports.history() == history


def test_a_rollback_waits_for_its_approval_and_carries_out_the_approved_plan(
    airflow: AirflowInstance, scenario: Back
) -> None:
    """Rejected: nothing is changed. The head has moved: plan again. Approved: every table is back, and epochs go on."""
    job, rejected, outdated = scenario
    history = job.master.reports.history()
    shown = rejected.asked()
    assert has_line(shown["subject"], "back", "checkpoint 1")
    assert has_line(shown["body"], 2, "checkpoints 2, 3") and has_line(shown["body"], "digest")

    beside = FormRun(airflow, "back__operate", what="verify")
    assert beside.wait() == "success", "no act waits for another one's approval"
    assert has_line(beside.log("act"), "checkpoints 1, 2, 3")

    rejected.answer("Reject")
    assert rejected.wait() == "success"
    assert rejected.states() == {
        "plan": "success", "approve": "success", "act": "skipped", "reconcile": "skipped",
    }  # fmt: skip
    assert has_line(rejected.log("approve"), "admin")
    assert has_line(rejected.note(), "milepost: back", "checkpoint 1", "admin")
    assert job.master.reports.history() == history

    outdated.asked()
    job.land("d", {"DL": 7})
    epoch(job)
    history = job.master.reports.history()
    outdated.answer("Approve")
    assert outdated.wait() == "failed"
    assert (outdated.executions("act"), outdated.states()["reconcile"]) == (1, "upstream_failed")
    assert "runbook/plan-outdated" in outdated.log("act")
    assert job.master.reports.history() == history

    back = FormRun(airflow, "back__operate", what="rollback", rollback_to="2")
    back.asked()
    back.answer("Approve")
    assert back.wait() == "success"
    assert job.table() == TABLES[2]
    for task_id in ("plan", "approve", "act", "reconcile"):
        assert has_line(back.log(task_id), "checkpoint 2", task_id)
    assert [event["extra"]["rows"] for event in airflow.asset_events("back__operate")] == [2]
    assert has_line(back.note(), "milepost: back", "checkpoint 2") and "rejected" not in back.note()

    epoch(job)
    assert job.table() == TABLES[3], "the next epoch takes up what the rollback gave back"


@pytest.mark.deep
def test_fields_of_another_act_are_refused_before_anything_is_done(airflow: AirflowInstance, job: E2eJob) -> None:
    history = job.master.reports.history()
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        FormRun(airflow, "back__operate", dry_run=True)  # nothing is done that nobody chose

    run = FormRun(airflow, "back__operate", what="verify", rollback_to="1")

    assert (run.wait(), run.executions("plan")) == ("failed", 1)
    assert has_line(run.log("plan"), "verify", "rollback_to (1)")
    assert job.master.reports.history() == history


@pytest.mark.deep
def test_a_savepoint_is_made_and_disposed_of(airflow: AirflowInstance, job: E2eJob) -> None:
    outside = FormRun(airflow, "back__operate", what="savepoint_create", savepoint_create_name="../../elsewhere")
    assert outside.wait() == "failed"
    assert has_line(outside.log("plan"), "savepoint_create_name", "'../../elsewhere'")

    made = FormRun(
        airflow, "back__operate", what="savepoint_create", savepoint_create_name="kept", savepoint_create_at=1
    )

    done = {"plan": "success", "approve": "skipped", "act": "success", "reconcile": "skipped"}
    assert (made.wait(), made.states()) == ("success", done)
    assert has_line(made.log("act"), "kept", "checkpoint 1")
    assert [(one.name, one.checkpoint_id) for one in job.master.list_savepoints()] == [("kept", 1)]

    gone = FormRun(airflow, "back__operate", what="savepoint_dispose", savepoint_dispose_name="kept", approve=False)

    assert (gone.wait(), gone.states()) == ("success", done)
    assert job.master.list_savepoints() == []


def test_a_backfill_replays_with_the_rule_of_now_and_the_tables_follow(airflow: AirflowInstance, job: E2eJob) -> None:
    """One real Spark session replays both epochs; what landed since is still the next scheduled run's."""
    unread = job.master.reports.status().unread_objects
    text = job.spec_path.read_text()
    job.spec_path.write_text(text.replace("format: csv", 'format: csv\n    options: {null_values: ["300"]}'))

    before = len(airflow.asset_events("back__operate"))
    run = FormRun(airflow, "back__operate", what="backfill", backfill_from_checkpoint=1, approve=False)

    assert (run.wait(), run.states()["approve"]) == ("success", "skipped")
    assert job.table() == {"AA": (2, 21), "UA": (2, 4_000)}
    assert "2 ranges, 2 objects" in run.log("plan")
    replay = run.log("act")
    assert has_line(replay, "checkpoint 1", "act") and has_line(replay, job.master.reports.job_state().timeline)
    (event,) = airflow.asset_events("back__operate")[before:]
    assert event["extra"]["checkpoint_id"] == job.published_checkpoint() == job.master.reports.status().head
    assert job.master.reports.status().unread_objects == unread
