"""What each role sees of each page, by Airflow's own permissions: spec, log, runs, data values, buttons, the login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.task_output.outcome import Failure
from milepost.codec import to_json
from milepost.errors import CheckpointError
from milepost_testkit.airflow.kept_runs import keep_run
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.specs.spec_edits import edit_spec

JOB = "/jobs/small__epoch"
ROUTES = {
    "": None,
    "/checkpoints": None,
    "/checkpoints/1": None,
    "/compare?before=1&after=1": None,
    "/job.json": None,
    "/log.json": DagAccessEntity.AUDIT_LOG,
    "/charts": None,
    "/summary": None,
    "/rewind": None,
    "/tables/table": None,
    "/form": None,
    "/configuration": DagAccessEntity.CODE,
    "/log": DagAccessEntity.AUDIT_LOG,
    "/run?run=manual__1": DagAccessEntity.XCOM,
}
"""Route -> what it needs besides the permission to read the DAG."""


@pytest.fixture
def job(tmp_path: Path) -> CountedJob:
    return CountedJob.with_epochs(tmp_path / "job", 1)


@pytest.fixture
def pages(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> PageClient:
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    keep_run("small__epoch")
    return client


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[DagAccessEntity]]:
    """The entities of a DAG that no user may read: Airflow's simple auth manager does not distinguish them."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    entities: set[DagAccessEntity] = set()
    whole = SimpleAuthManager.is_authorized_dag

    def is_authorized_dag(
        self: SimpleAuthManager, *, access_entity: DagAccessEntity | None = None, **about: Any
    ) -> bool:
        return access_entity not in entities and whole(self, access_entity=access_entity, **about)

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)
    yield entities


@pytest.mark.deep
@pytest.mark.parametrize("route", ROUTES)
def test_each_route_needs_its_permission_and_no_other(
    pages: PageClient, refused: set[DagAccessEntity], route: str
) -> None:
    needed = ROUTES[route]
    for role in ("viewer", "user", "op", "admin"):
        assert pages.with_role(role).get(f"{JOB}{route}").status_code == 200, role
    refused.update({DagAccessEntity.CODE, DagAccessEntity.AUDIT_LOG, DagAccessEntity.XCOM} - {needed})
    assert pages.get(f"{JOB}{route}").status_code == 200
    if needed is not None:
        refused.clear()
        refused.add(needed)
        answer = pages.get(f"{JOB}{route}")
        assert answer.status_code == 403 and "small" not in answer.text


def test_a_tab_that_the_user_may_not_open_is_not_there(pages: PageClient, refused: set[DagAccessEntity]) -> None:
    assert "/configuration?" in pages.get(JOB).text and "/log?" in pages.get(JOB).text
    refused.update((DagAccessEntity.CODE, DagAccessEntity.AUDIT_LOG))
    page = pages.get(f"{JOB}/checkpoints/1").text
    assert "/configuration?" not in page and "/log?" not in page
    assert '<h2 id="log">' not in pages.get(JOB).text
    document = pages.get(f"{JOB}/job.json").json()["data"]
    assert document["log"] is None and "audit log" in document["problems"]["log"]
    assert "name: small" not in page, "the spec of the checkpoint"
    refused.clear()
    assert "name: small" in pages.get(f"{JOB}/checkpoints/1").text


def test_only_who_may_trigger_a_dag_is_offered_an_act(pages: PageClient, refused: set[DagAccessEntity]) -> None:
    for address in (JOB, "/jobs", f"{JOB}/rewind", "/jobs/small__operate/form?job=small&what=verify"):
        assert "data-url" not in pages.with_role("viewer").get(address).text, address
    assert "data-url" in pages.get(JOB).text
    refused.add(DagAccessEntity.RUN)
    assert "dagRuns" not in pages.get(JOB).text


@pytest.mark.parametrize(
    ("role", "setting", "seen"), [("viewer", False, False), ("viewer", True, True), ("user", False, True)]
)
def test_refused_rows_are_shown_to_viewers_only_if_the_spec_says_so(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch, role: str, setting: bool, seen: bool
) -> None:
    from milepost.jobmaster import JobMaster

    spec = job.small.folder / "config" / "small.yaml"
    edit_spec(spec, {"name: small": f"name: small\nairflow: {{viewers_see_values: {str(setting).lower()}}}"})
    refusal = {
        "sink": "table",
        "type": "expect_column_values_to_be_between",
        "column": "k",
        "severity": "critical",
        "observed": {"unexpected_count": 1},
        "observed_value": "value-4711",
        "exception": None,
        "rows": [{"k": 4711, "v": "secret-row"}],
    }
    whole = JobMaster(job.small.loaded()).reports.show(1)
    reports = type(JobMaster(job.small.loaded()).reports)
    from dataclasses import replace

    monkeypatch.setattr(reports, "show", lambda self, *args, **options: replace(whole, veto={"refusals": [refusal]}))
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values(), role=role)
    page = client.get(f"{JOB}/checkpoints/1").text
    assert "unexpected count 1" in page
    assert ("secret-row" in page) is seen and ("value-4711" in page) is seen
    assert ("airflow.viewers_see_values" in page.partition("<pre")[0]) is not seen


SECRET = "secret-4711"
DOCUMENTS = (
    *("/jobs", "/tables", JOB, f"{JOB}/checkpoints", f"{JOB}/checkpoints/2", f"{JOB}/log", f"{JOB}/log?kind=failure"),
    *("/jobs.json", "/tables.json", f"{JOB}/job.json", f"{JOB}/checkpoints.json", f"{JOB}/log.json"),
)


@pytest.mark.parametrize("failed", [True, False])
def test_messages_that_quote_rows_are_shown_only_to_who_may_see_values(
    job: CountedJob, pages: PageClient, failed: bool
) -> None:
    """Both after the failure, and when a resume has cleared it: the log still has it."""
    job.small.land("bad.csv", f"k,v\n{SECRET},x\n")
    with pytest.raises(CheckpointError):
        job.run()
    if not failed:
        job.small.land("bad.csv", "k,v\n2,x\n")
        job.master.lifecycle.resume()
        job.run()
    assert (SECRET in milepost("status", job.spec_path).stdout) is failed
    assert SECRET in milepost("history", job.spec_path, "--json").stdout
    viewer, user = pages.with_role("viewer"), pages.with_role("user")
    for address in DOCUMENTS:
        assert SECRET not in viewer.get(address).text, address
    for address in (f"{JOB}/checkpoints/2", f"{JOB}/log", f"{JOB}/log.json", *([JOB, "/jobs.json"] if failed else [])):
        assert SECRET in user.get(address).text, address
    assert "airflow.viewers_see_values" in viewer.get(f"{JOB}/checkpoints/2").text
    search = f"{JOB}/log.json?text={SECRET}"
    assert viewer.get(search).json()["data"]["events"] == [], "a search does not reveal what it does not show"
    assert len(user.get(search).json()["data"]["events"]) == 1


@pytest.mark.parametrize("role", ["viewer", "user"])
def test_a_run_shows_messages_that_quote_rows_only_to_who_may_see_values(pages: PageClient, role: str) -> None:
    reason, step = "BAD_RECORD", f"correct {SECRET}"
    xcoms = {("run_epoch", "failure"): to_json(Failure(reason, f"value {SECRET}", step, ""))}
    keep_run("small__epoch", run_id="manual__2", state="failed", xcoms=xcoms)
    page = pages.with_role(role).get(f"{JOB}/run?run=manual__2").text
    assert reason in page and (SECRET in page) is (role == "user")


def test_a_browser_that_is_not_logged_in_is_led_to_the_login_and_back(pages: PageClient) -> None:
    stranger = PageClient(pages.app, {"Accept": "text/html,application/xhtml+xml"})
    for address in (f"{JOB}/checkpoints?job=small&status=aborted", "/jobs", "/runbook/not-found"):
        answer = stranger.get(address)
        assert answer.status_code == 303 and "small" not in answer.text
        login = urlsplit(answer.headers["location"])
        assert login.path == "/api/v2/auth/login" and parse_qs(login.query) == {"next": [address]}
    assert pages.logged_out().get(JOB).status_code == 401, "a script gets the status"
    assert pages.with_role("viewer").get(JOB).status_code == 200
