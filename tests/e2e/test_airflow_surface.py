"""What a person meets in Airflow: the Checkpoints page, a broken spec, the form. No Spark is needed for these."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from milepost.jobmaster import Session
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import E2eJob


def shown(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[E2eJob | None]:
    job = airflow.write_job("shown")
    job.land("a", {"AA": 1})
    job.master.triggers.trigger(Session.cli())
    yield None
    yield job


def escaped(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[E2eJob | None]:
    job = airflow.write_job("escaped")
    job.land("a", {"AA": 1})
    session = Session.cli()
    checkpoint_id = job.master.triggers.trigger(session).checkpoint_id
    job.master.epochs.abort(session, checkpoint_id, "ABORTED_BY_USER", "<script>alert(1)</script>")
    yield None
    yield job


def broken(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[tuple[E2eJob, str] | None]:
    job = airflow.write_job("broken", spec="name: broken\nstorages: nowhere\n")
    yield None
    job.unpause()
    yield job, job.trigger()


@pytest.mark.scenario(begins=shown)
def test_the_checkpoints_page_needs_a_login_and_shows_the_job(airflow: AirflowInstance, scenario: E2eJob) -> None:
    """DESIGN 9: a plugin's routes have no login of their own; each carries Airflow's."""
    job = scenario
    path = f"/milepost/jobs/{job.dag_id}/checkpoints"

    assert airflow.page(path, login=None).status_code == 401
    page = airflow.page(path)

    assert page.status_code == 200
    assert "pending</span>" in page.text
    assert "began epoch 1 as checkpoint 1" in airflow.page(f"/milepost/jobs/{job.dag_id}/log").text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert airflow.page(f"{path}/1", login=None).status_code == 401
    sheet = airflow.page("/milepost/static/page.css", login=None)
    assert sheet.status_code == 200 and sheet.headers["content-type"].startswith("text/css")
    one = airflow.page(f"{path}/1")
    assert one.status_code == 200 and "<h1>shown</h1>" in one.text
    assert "default-src 'none'" in one.headers["content-security-policy"]
    assert [airflow.page(f"{path}/{number}").status_code for number in ("2", "0", "x")] == [404, 422, 422]


def test_the_page_of_all_jobs_needs_a_login_and_shows_each_job_of_airflow_once(airflow: AirflowInstance) -> None:
    assert airflow.page("/milepost/jobs", login=None).status_code == 401
    page = airflow.page("/milepost/jobs")
    assert page.status_code == 200
    assert page.text.count('href="/milepost/jobs/idle__epoch?job=idle"') == 1
    assert 'class="badge ' in page.text
    one = airflow.page("/milepost/jobs/idle__epoch")
    assert one.status_code == 200 and 'href="/dags/idle__epoch" data-airflow' in one.text


@pytest.mark.scenario(begins=escaped)
def test_the_page_of_a_checkpoint_escapes_what_it_shows(airflow: AirflowInstance, scenario: E2eJob) -> None:
    page = airflow.page(f"/milepost/jobs/{scenario.dag_id}/checkpoints/1")

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "<script>" not in page.text


@pytest.mark.parametrize("dag_id", ["unknown__epoch", "..%2F..%2Fetc%2Fpasswd", "%3Cb%3E"])
def test_the_checkpoints_page_of_another_dag_is_not_found(airflow: AirflowInstance, dag_id: str) -> None:
    page = airflow.page(f"/milepost/jobs/{dag_id}/checkpoints")
    assert page.status_code == 404
    assert "<b>" not in page.text


def test_the_page_only_reads(airflow: AirflowInstance) -> None:
    url = f"{airflow.stack.airflow_url}/milepost/jobs/idle__epoch/checkpoints"
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = httpx.request(method, url, headers=airflow.rest.authorization(), trust_env=False, timeout=60)
        assert answer.status_code == 405


@pytest.mark.scenario(begins=broken)
def test_a_broken_spec_is_a_red_run_of_its_own_job_only(airflow: AirflowInstance, scenario: tuple[E2eJob, str]) -> None:
    job, run_id = scenario
    assert job.wait(run_id) == "failed"
    assert "storages" in job.log(run_id, "trigger_checkpoint")
    assert airflow.rest.import_errors() == []
    assert "idle__epoch" in airflow.rest.dags()


@pytest.mark.deep
def test_a_spec_that_cannot_be_parsed_turns_red_by_itself_and_its_tab_shows_the_reason(
    airflow: AirflowInstance,
) -> None:
    (airflow.config / "torn.yaml").write_text("sources: [\n")
    airflow.parsed_until(lambda: "torn__broken" in airflow.rest.dags(), "the DAG of a torn spec is listed")

    def states() -> list[str]:
        return [run["state"] for run in airflow.rest.runs("torn__broken")]

    airflow.until(lambda: states() == ["failed"], "its run has failed")

    page = airflow.page("/milepost/jobs/torn__broken/checkpoints")
    assert "torn.yaml:2:1: " in page.text
    assert airflow.rest.import_errors() == []
    assert "idle__epoch" in airflow.rest.dags()


def test_the_form_refuses_a_checkpoint_that_is_no_switch(airflow: AirflowInstance) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=r"until_caught_up|boolean"):
        airflow.rest.trigger("idle__epoch", {"until_caught_up": "as long as it takes"})
