"""Acts by button in a real Airflow: how many clicks they take, what they do, and what a refusal says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.airflow.page_urls import form_url, job_url, jobs_url
from milepost.jobmaster import JobMaster
from milepost.jobspec.load import load_job
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.browser.clicks import DONE, PLANNED, ROLLED_BACK, UNDONE
from milepost_testkit.browser.shown_jobs import FAILED, WELL, shown_airflow
from milepost_testkit.browser.tours import tour_of
from scripts.browser.visits import Walked

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    with shown_airflow(tmp_path_factory.mktemp("acts"), "scheduler", "triggerer") as airflow:
        yield airflow


def walked(airflow: AirflowInstance, address: str, *steps: list[str], theme: str = "light") -> Walked:
    (walk,) = tour_of(airflow, roots=(), walks={"walk": [theme, address, steps]}).walks
    return walk


def master_of(airflow: AirflowInstance, job: str) -> JobMaster:
    return JobMaster(load_job(airflow.config / f"{job}.yaml"))


def test_a_rollback_takes_three_clicks_and_its_undo_three_in_the_tab_of_airflow(airflow: AirflowInstance) -> None:
    """The tab is a sandboxed frame: its requests carry the cookie of the login all the same."""
    reports = master_of(airflow, WELL).reports
    before = reports.status().head
    walk = walked(
        airflow,
        f"/dags/{epoch_dag_id(WELL)}/plugin/checkpoints",
        *ROLLED_BACK,
        *UNDONE,
    )
    assert walk.clicks == 3 + 3
    kinds = [entry for entry in reports.history(20) if entry["event"] == "TimelineSwitched"]
    assert len(kinds) >= 2 and all(f"Airflow run {operate_dag_id(WELL)}/manual__" in str(kinds[n]) for n in (0, 1))
    assert "triggered by admin, approved by admin" in str(kinds[0])
    assert reports.show(reports.status().head or 0).epoch == reports.show(before or 0).epoch


def test_a_table_is_found_in_two_clicks_and_an_incident_names_rule_rows_and_input(airflow: AirflowInstance) -> None:
    walk = walked(
        airflow,
        jobs_url(),
        ["click", "All tables"],
        ["see", "1 of 1"],
        ["click", "seen"],
        ["see", "Newest files"],
        ["see", "the first rows of the newest file"],
        ["see", "Read it with Polars"],
    )
    assert (walk.clicks, walk.complaints) == (2, ())
    walk = walked(
        airflow,
        job_url(epoch_dag_id(FAILED)),
        ["see", "max_value 90"],
        ["see", "1 refused row, by key k"],
        ["see", "0095.csv"],
        ["see", "What readers see now"],
        theme="dark",
    )
    assert walk.complaints == ()


def test_a_row_of_the_sample_is_traced_by_one_click(airflow: AirflowInstance) -> None:
    address = f"{job_url(epoch_dag_id(WELL))}/tables/seen"
    walk = walked(airflow, address, ["click", "Trace"], DONE, ["see", "1 input row of "], ["see", "read by checkpoint"])
    assert (walk.clicks, walk.complaints) == (1, ())


def test_a_resume_takes_two_clicks_and_a_rejected_one_changes_nothing(airflow: AirflowInstance) -> None:
    reports, address = master_of(airflow, FAILED).reports, job_url(epoch_dag_id(FAILED))
    rejected = walked(
        airflow, address, ["click", "Resume"], PLANNED, ["click", "Reject"], ["see", "nothing was changed"]
    )
    assert (rejected.clicks, rejected.complaints) == (2, ()) and reports.job_state().job_status == "failed"
    walk = walked(airflow, address, ["click", "Resume"], PLANNED, ["click", "Approve"], DONE, theme="dark")
    assert (walk.clicks, walk.complaints) == (2, ()) and reports.job_state().job_status != "failed"


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (["refuse", "**/dagRuns", "400"], "Airflow refuses a value of this form. why"),
        (["refuse", "**/dagRuns", "401"], "Your login has ended."),
        (["refuse", "**/dagRuns", "403"], "Airflow's permissions do not allow you to do this."),
        (["refuse", "**/dagRuns", "404"], "Airflow has no such DAG or run"),
        (["refuse", "**/dagRuns", "503"], "Airflow answered with status 503. why"),
        (["no network", "**/dagRuns"], "Airflow did not answer."),
    ],
    ids=lambda value: "-".join(value[::2]) if isinstance(value, list) else "",
)
def test_a_refusal_by_airflow_is_reported_in_a_sentence(
    airflow: AirflowInstance, step: list[str], sentence: str
) -> None:
    runs = len(airflow.rest.runs(operate_dag_id(WELL)))
    walked(airflow, form_url(WELL, "verify"), step, ["click", "Run"], ["see", sentence])
    assert len(airflow.rest.runs(operate_dag_id(WELL))) == runs


def test_a_typed_form_becomes_the_configuration_of_the_run(airflow: AirflowInstance, tmp_path: Path) -> None:
    form = form_url(WELL, "savepoint_create")
    walked(airflow, form, ["fill", "Name", "by-button"], ["fill", "Checkpoint", "3"], ["click", "Run"], DONE)
    assert "by-button" in {savepoint.name for savepoint in master_of(airflow, WELL).list_savepoints()}
    newest = airflow.rest.runs(operate_dag_id(WELL))[0]
    assert newest["conf"]["savepoint_create_at"] == 3 and newest["conf"]["dry_run"] is False


def test_a_link_opened_without_a_login_leads_to_it_and_back(airflow: AirflowInstance) -> None:
    address = f"{job_url(epoch_dag_id(WELL))}/checkpoints"
    walked(airflow, address, ["log out"], ["log in"], ["see", "Newest completed"])


def test_a_run_of_a_paused_dag_is_unpaused_on_its_page(airflow: AirflowInstance) -> None:
    dag_id = epoch_dag_id(WELL)
    airflow.rest.set_paused(dag_id, True)
    walk = walked(
        airflow,
        job_url(dag_id),
        ["click", "Run an epoch"],
        ["see", "this run starts when it is unpaused"],  # of the run: the page before has a button of this name too
        ["click", "Unpause"],
        ["see", "Queued:", "Running", "Back to the job"],  # a busy scheduler starts it late; a short run may have ended
    )
    assert walk.clicks == 2 and not airflow.rest.dags()[dag_id]["is_paused"]
