"""Rights on the pages with Airflow's FAB auth manager, in Airflow's own API server: routes, documents and acts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from milepost.airflow.page_urls import URL_PREFIX
from milepost_testkit.airflow.fab_server import ONE_JOB, PASSWORD, USERS
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.processes.processes import REPOSITORY, free_ports, stop_tree, wait_until
from scripts import fab
from scripts.airflow_home import write_home
from scripts.processes import PYTHON_PATH, clean_environ

pytestmark = pytest.mark.deep

BOOT_S, ANSWER_S = 900, 120
FAB = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
ALLOWED, FORBIDDEN = httpx.codes.OK, httpx.codes.FORBIDDEN

ROUTES = (
    *("", "/checkpoints", "/checkpoints/1", "/compare?before=1&after=1", "/charts", "/summary", "/rewind"),
    *("/tables/table", "/form", "/job.json", "/checkpoints.json", "/charts.json"),
    *("/compare.json?before=1&after=1", "/summary.json", "/rewind.json", "/tables/table.json", "/form.json"),
)
"""Pages and documents of a job that need the right to read its DAG, and no other."""

CODE, LOG = ("/configuration", "/configuration.json"), ("/log", "/log.json")
"""Those that show the spec, and those that show the audit log."""


@dataclass(frozen=True)
class FabAirflow:
    """A running API server, and the logins of its users."""

    url: str
    _tokens: dict[str, str] = field(default_factory=dict)

    def headers(self, user: str | None) -> dict[str, str]:
        if user is None:
            return {}
        if user not in self._tokens:
            answer = self._ask("POST", "/auth/token", None, {"username": user, "password": PASSWORD})
            self._tokens[user] = answer.raise_for_status().json()["access_token"]
        return {"Authorization": f"Bearer {self._tokens[user]}"}

    def page(self, user: str | None, path: str, **headers: str) -> httpx.Response:
        return self._ask("GET", f"{URL_PREFIX}{path}", user, **headers)

    def act(self, user: str | None, job: str) -> int:
        """Trigger the act `verify` as the button of its form does. Returns the status of the answer."""
        body = {"logical_date": None, "conf": {"what": "verify"}}
        return self._ask("POST", f"/api/v2/dags/{job}__operate/dagRuns", user, body).status_code

    def _ask(self, method: str, path: str, user: str | None, body: object = None, **headers: str) -> httpx.Response:
        with httpx.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False) as client:
            return client.request(method, path, headers=self.headers(user) | headers, json=body)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabAirflow]:
    """An API server with the jobs `small` and `other`."""
    if fab.FAB.unreached.reason() is not None:  # the last line of `make test-all` says so
        pytest.skip(f"no package index was reached: {fab.FAB.unreached.reason()}")
    folder = tmp_path_factory.mktemp("fab")
    job = CountedJob.with_epochs(folder / "jobs", 2)
    config = job.spec_path.parent
    (config / "other.yaml").write_text(job.spec_path.read_text().replace("name: small", "name: other"))
    (port,) = free_ports(1)
    core = {"auth_manager": FAB}
    write_home(folder / "airflow", dags=folder, plugins=folder / "none", port=port, settings={"core": core})
    python = str(fab.FAB.interpreter(fab.ENVIRONMENT))
    command = [python, "-m", "milepost_testkit.airflow.fab_server", str(config), "small", str(port)]
    environ = clean_environ({"AIRFLOW_HOME": str(folder / "airflow"), "PYTHONPATH": PYTHON_PATH})
    with (folder / "log.txt").open("w") as log:
        process = psutil.Popen(command, cwd=REPOSITORY, env=environ, stdout=log, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(url), seconds=BOOT_S, what="the API server answers", process=process)
            yield FabAirflow(url)
        finally:
            stop_tree(process)
            print((folder / "log.txt").read_text()[-8000:])


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/version", timeout=ANSWER_S, trust_env=False).is_success
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("user", USERS)
def test_each_page_and_document_needs_the_right_to_read_its_dag(airflow: FabAirflow, user: str) -> None:
    for route in ROUTES:
        answer = airflow.page(user, f"/jobs/small__epoch{route}")
        assert answer.status_code == ALLOWED, (route, answer.text[:500])
        other = airflow.page(user, f"/jobs/other__epoch{route}")
        if user == ONE_JOB:
            assert other.status_code == FORBIDDEN, route
        else:
            assert other.status_code != FORBIDDEN, route


@pytest.mark.parametrize("user", USERS)
def test_spec_and_log_need_the_rights_of_code_and_audit_log(airflow: FabAirflow, user: str) -> None:
    """In FAB a viewer may read code, only an admin the audit log, and a role of one team neither unless it is given."""
    reads_code, reads_log = user != ONE_JOB, user == "admin"
    for routes, may in ((CODE, reads_code), (LOG, reads_log)):
        for route in routes:
            answer = airflow.page(user, f"/jobs/small__epoch{route}")
            assert answer.status_code == (ALLOWED if may else FORBIDDEN), (route, answer.text[:500])
    document = airflow.page(user, "/jobs/small__epoch/checkpoints/1.json")  # it has the spec, and data values
    assert document.status_code == (ALLOWED if user in ("user", "admin") else FORBIDDEN)
    overview = airflow.page(user, "/jobs/small__epoch").text
    assert ("/configuration?" in overview) is reads_code and ("/log?" in overview) is reads_log


@pytest.mark.parametrize("user", USERS)
def test_the_lists_of_jobs_and_tables_have_the_jobs_that_the_user_may_read(airflow: FabAirflow, user: str) -> None:
    readable = {"small"} if user == ONE_JOB else {"small", "other"}
    jobs = airflow.page(user, "/jobs.json").json()["data"]["jobs"]
    assert {job["job"] for job in jobs} == readable
    page = airflow.page(user, "/jobs").text
    assert {name for name in ("small", "other") if f"/jobs/{name}__epoch" in page} == readable
    tables = airflow.page(user, "/tables.json")
    assert tables.status_code == ALLOWED and ("other__epoch" in tables.text) is ("other" in readable)


@pytest.mark.parametrize("user", USERS)
def test_a_button_is_shown_exactly_if_airflow_accepts_its_request(airflow: FabAirflow, user: str) -> None:
    acts = user != "viewer"
    assert (airflow.act(user, "small") == ALLOWED) is acts
    assert airflow.act(user, "small") in ((ALLOWED,) if acts else (FORBIDDEN,))
    overview = airflow.page(user, "/jobs/small__epoch").text
    assert ("Run an epoch</button>" in overview) is acts
    assert (airflow.act(user, "other") == ALLOWED) is (acts and user != ONE_JOB)


@pytest.mark.parametrize("user", USERS)
def test_data_values_are_for_users_who_may_trigger_the_dag(airflow: FabAirflow, user: str) -> None:
    table = airflow.page(user, "/jobs/small__epoch/tables/table.json").json()["data"]
    assert (table.get("sample") is not None) is (user != "viewer")


def test_nothing_is_shown_without_a_login(airflow: FabAirflow) -> None:
    for route in ("/jobs", "/tables", "/runbook/failed", *(f"/jobs/small__epoch{one}" for one in ROUTES + CODE + LOG)):
        script = airflow.page(None, route)
        assert script.status_code == httpx.codes.UNAUTHORIZED and "0001.csv" not in script.text, route
    browser = airflow.page(None, "/jobs/small__epoch/checkpoints?timeline=main", accept="text/html")
    assert browser.status_code == httpx.codes.SEE_OTHER
    login = httpx.URL(browser.headers["location"])
    assert login.path == "/api/v2/auth/login"
    assert login.params["next"] == f"{URL_PREFIX}/jobs/small__epoch/checkpoints?timeline=main"
    assert airflow.act(None, "small") == httpx.codes.UNAUTHORIZED
