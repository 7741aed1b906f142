"""What each of Airflow's roles may see and do: viewer, user, op and admin log in at the real server, and a stranger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from milepost.jobmaster import Session
from milepost_testkit.airflow.airflow_instance import ROLES, AirflowInstance
from milepost_testkit.airflow.e2e_job import E2eJob, has_line
from milepost_testkit.airflow.form_run import FormRun
from milepost_testkit.airflow.kept_dags import new_team
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from scripts.airflow_home import LOCK_S
from scripts.airflow_rest import AirflowRest

OPERATE = "shared__operate"
PAGES = ("", "/checkpoints", "/checkpoints/1", "/charts", "/summary", "/rewind", "/configuration", "/log")
CLOSED = "from milepost.airflow.dags import load_jobs\n\nload_jobs(globals(), '.')\n"
ACTORS = ("user", "op", "admin")
"""The roles that may trigger a DAG."""


@dataclass(frozen=True)
class Jobs:
    """Attributes: shared: of no team. closed: of a team that only the admin is allowed to see.

    waiting: a rollback that waits for its approval.
    """

    shared: E2eJob
    closed: str
    waiting: FormRun


def roles(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[Jobs | None]:
    shared = airflow.write_job("shared")
    for name in ("a", "b"):
        shared.land(name, {"AA": 1})
        shared.master.epochs.run(Session.cli(), SparklessRunner())
    (airflow.team / "closed.yaml").write_text(airflow.spec("closed"))
    (airflow.team / "closed.py").write_text(CLOSED)
    yield None
    yield Jobs(shared, "closed__epoch", FormRun(airflow, OPERATE, what="rollback", rollback_to="1"))


pytestmark = pytest.mark.scenario(begins=roles)


@contextmanager
def team_of_its_own(airflow: AirflowInstance, bundle: str) -> Iterator[None]:
    """Give a bundle of DAGs to a team in which no user is: none but the admin may see or trigger its DAGs.

    By the tables alone: Airflow's setting of several teams would also change how tasks are scheduled.
    """
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from sqlalchemy import create_engine, select
    from sqlalchemy.orm import Session as Database

    engine = create_engine(f"sqlite:///{airflow.stack.home / 'airflow.db'}", connect_args={"timeout": LOCK_S})
    with Database(engine) as session:
        session.add(new_team(bundle, session.get_one(DagBundleModel, bundle)))
        session.commit()
    try:
        yield
    finally:
        with Database(engine) as session:
            session.delete(session.scalars(select(Team).where(Team.name == bundle)).one())
            session.commit()
        engine.dispose()


@pytest.fixture(scope="module")
def closed_to_most(airflow: AirflowInstance) -> Iterator[None]:
    with team_of_its_own(airflow, "team"):
        airflow.until(lambda: "closed__epoch" in airflow.rest.dags(), "the DAGs of the team's file")
        yield
        (airflow.team / "closed.py").unlink()


@pytest.fixture
def jobs(scenario: Jobs, closed_to_most: None) -> Jobs:
    return scenario


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_each_page_of_a_job_and_the_form(airflow: AirflowInstance, jobs: Jobs, role: str) -> None:
    for page in PAGES:
        answer = airflow.page(f"/milepost/jobs/{jobs.shared.dag_id}{page}", login=role)
        assert answer.status_code == 200 and "shared" in answer.text, page
    form = airflow.page(f"/milepost/jobs/{OPERATE}/form?job=shared&what=rollback&rollback_to=1", login=role)
    assert form.status_code == 200 and "&#34;rollback_to&#34;: &#34;1&#34;" in form.text
    assert airflow.page("/milepost/runbook/not-found", login=role).status_code == 200


def test_users_outside_a_team_neither_see_nor_trigger_its_job(airflow: AirflowInstance, jobs: Jobs) -> None:
    """Neither on the page of all jobs nor by its address. The admin sees it."""
    for role in ROLES:
        listed = airflow.page("/milepost/jobs", login=role)
        assert listed.status_code == 200 and ">shared</a>" in listed.text
        page = airflow.page(f"/milepost/jobs/{jobs.closed}", login=role)
        if role == "admin":
            assert ">closed</a>" in listed.text and page.status_code == 200
        else:
            assert "closed" not in listed.text, role
            assert page.status_code == 403 and "closed" not in page.text, role
            run = {"logical_date": None, "conf": {}}
            refused(airflow.rest_of(role), "POST", f"/dags/{jobs.closed}/dagRuns", json=run)


def test_a_stranger_sees_no_page_and_starts_nothing(airflow: AirflowInstance, jobs: Jobs) -> None:
    paths = [f"/milepost/jobs/{jobs.shared.dag_id}{page}" for page in PAGES]
    for path in (*paths, f"/milepost/jobs/{OPERATE}/form", "/milepost/jobs", "/milepost/runbook/not-found"):
        answer = airflow.page(path, login=None)
        assert answer.status_code == 401 and "shared" not in answer.text, path
    body = {"logical_date": None, "conf": {"what": "verify"}}
    url = f"{airflow.stack.airflow_url}/api/v2/dags/{OPERATE}/dagRuns"
    assert httpx.post(url, json=body, trust_env=False, timeout=60).status_code == 401


def refused(rest: AirflowRest, method: str, path: str, **kwargs: object) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        rest.request(method, path, **kwargs)


def test_a_viewer_reads_a_plan_and_changes_nothing(airflow: AirflowInstance, jobs: Jobs) -> None:
    """Neither an act, nor an approval, nor an epoch, nor a pause is his; the plan that waits he may read."""
    history, viewer = jobs.shared.master.reports.history(), airflow.rest_of("viewer")
    runs = {dag_id: len(airflow.rest.runs(dag_id)) for dag_id in (OPERATE, jobs.shared.dag_id)}
    for dag_id, conf in ((OPERATE, {"what": "verify"}), (jobs.shared.dag_id, {})):
        refused(viewer, "POST", f"/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
        refused(viewer, "PATCH", f"/dags/{dag_id}", json={"is_paused": True})
    assert {dag_id: len(airflow.rest.runs(dag_id)) for dag_id in runs} == runs

    waiting = jobs.waiting
    waiting.asked()
    assert has_line(waiting.shown_to(viewer)["subject"], "shared", "checkpoint 1")
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        waiting.answer("Approve", person=viewer)
    waiting.answer("Reject")
    assert waiting.wait() == "success" and has_line(waiting.log("approve"), "admin")
    assert jobs.shared.master.reports.history() == history


@pytest.mark.parametrize("role", [ACTORS[0], *(pytest.param(role, marks=pytest.mark.deep) for role in ACTORS[1:])])
def test_a_user_who_may_trigger_acts_and_is_named_in_the_history(
    airflow: AirflowInstance, jobs: Jobs, role: str
) -> None:
    name = f"of-{role}"
    made = FormRun(airflow, OPERATE, login=role, what="savepoint_create", savepoint_create_name=name)
    waiting = FormRun(airflow, OPERATE, login=role, what="rollback", rollback_to="1")

    assert made.wait() == "success"
    assert airflow.rest.run(OPERATE, made.run_id)["triggering_user_name"] == role
    assert name in [savepoint.name for savepoint in jobs.shared.master.list_savepoints()]
    waiting.asked()
    waiting.answer("Reject")
    assert waiting.wait() == "success"
    assert has_line(waiting.note(), "milepost: shared", "checkpoint 1", role)
