"""What waits is on the page of a job and in the list of all: who caused it, since when, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from milepost.acts import ACTS
from milepost.airflow.dags.dag_factory import job_dags
from milepost.codec import to_json
from milepost_testkit import wording
from milepost_testkit.airflow.kept_runs import keep_run
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

OVERVIEW = "/jobs/small__epoch?job=small"


@pytest.fixture
def job(tmp_path: Path) -> CountedJob:
    return CountedJob.with_epochs(tmp_path / "job", 2)


@pytest.fixture
def pages(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> PageClient:
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    pause("small__epoch", False)
    pause("small__operate", False)
    return client


def pause(dag_id: str, paused: bool = True, *, user: str = "") -> None:
    """Pause or unpause a DAG, with the entry that Airflow's API writes into its audit log."""
    from airflow.models.dag import DagModel
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    with create_session() as session:
        session.get_one(DagModel, dag_id).is_paused = paused
        if user:
            extra = f'{{"is_paused": {str(paused).lower()}, "method": "PATCH"}}'
            session.add(Log("patch_dag", owner=user, dag_id=dag_id, extra=extra))


def queued_long_ago(dag_id: str, run_id: str = "manual__1") -> None:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import timezone
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        since = timezone.utcnow() - timedelta(minutes=5)
        session.execute(update(DagRun).where(DagRun.run_id == run_id).values(queued_at=since))


def waits_for_approval(job: CountedJob) -> None:
    plan = ACTS["rollback"].plan(job.small.master, {"to": "1", "take_over": False}).shown
    keep_run("small__operate", xcoms={("plan", "return_value"): to_json(plan)}, asks=plan)


def is_paused(job: CountedJob) -> None:
    pause("small__epoch", user="<b>bo</b>")
    pause("small__epoch", False, user="carl")
    pause("small__epoch", user="<b>anna</b>")
    keep_run("small__epoch", state="queued")


def is_queued(job: CountedJob) -> None:
    keep_run("small__epoch", "manual__0")
    keep_run("small__epoch", state="queued")
    queued_long_ago("small__epoch")


def has_no_slot(job: CountedJob) -> None:
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Pool(pool="default_pool", slots=0, description="", include_deferred=False))
    keep_run("small__epoch", tasks={"trigger_checkpoint": "scheduled"})


CAUSES = (waits_for_approval, is_paused, is_queued, has_no_slot)


@pytest.mark.parametrize("cause", CAUSES)
def test_what_waits_is_shown_with_who_since_when_and_what_to_do(
    job: CountedJob, pages: PageClient, cause: Callable[[CountedJob], None]
) -> None:
    assert "What waits" not in pages.get(OVERVIEW).text
    cause(job)
    page = pages.get(OVERVIEW).text
    wording.matches("page_waiting", page_text(page, ".waits"), replace=FIGURES)
    assert "<b>" not in page
    assert (">Unpause</button>" in page) is (cause is is_paused)
    if cause is not is_paused:
        dag_id = "small__operate" if cause is waits_for_approval else "small__epoch"
        address = f"/jobs/{dag_id}/run?job=small&amp;run=manual__1"
        assert f'href="{address}"' in page and pages.get(address.replace("&amp;", "&")).status_code == 200
    line = page_text(pages.get("/jobs").text, "tbody")
    assert page_text(page, ".waits").split(" | ")[0].split(".")[0].split(" ", 1)[1][:40] in line


def test_a_viewer_sees_what_waits_and_no_button(job: CountedJob, pages: PageClient) -> None:
    is_paused(job)
    page = pages.with_role("viewer").get(OVERVIEW).text
    assert "small__epoch is paused" in page and 'form class="api' not in page


@pytest.mark.deep
def test_of_a_dag_that_the_user_may_not_read_nothing_waits(
    job: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dags = job_dags(job.small.folder / "config").values()
    client = page_client(monkeypatch, *dags, readable=["small__epoch"])
    pause("small__epoch", False)
    waits_for_approval(job)
    for address in (OVERVIEW, "/jobs"):
        assert "approval" not in client.get(address).text, address


@pytest.mark.deep
def test_a_run_that_has_just_been_queued_does_not_wait(job: CountedJob, pages: PageClient) -> None:
    keep_run("small__epoch", state="queued")
    assert "What waits" not in pages.get(OVERVIEW).text


@contextmanager
def queries() -> Iterator[list[str]]:
    from airflow import settings
    from sqlalchemy import event

    seen: list[str] = []
    engine = settings.NonScopedSession().get_bind()  # type: ignore[misc]
    note = lambda connection, cursor, statement, *rest: seen.append(statement)  # noqa: E731 - a listener of SQLAlchemy
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_the_number_of_queries_does_not_depend_on_the_number_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.airflow.page.frame.access import Rights
    from milepost.airflow.page.jobs.waiting import read_waiting

    class Everything(Rights):
        def _may(self, *asked: object) -> bool:
            return True

    jobs = [SparklessJob.create(tmp_path / name, {"name: small": f"name: {name}"}) for name in ("a", "b", "c", "d")]
    page_client(monkeypatch, *(dag for job in jobs for dag in job_dags(job.folder / "config").values()))
    names = [f"{name}__epoch" for name in ("a", "b", "c", "d")]
    for name in names:
        keep_run(name, state="queued")
        keep_run(name, "manual__2", tasks={"trigger_checkpoint": "scheduled"})
    numbers = []
    for some in (names[:1], names):
        with queries() as seen:
            found = read_waiting(some, Everything(None))  # type: ignore[arg-type]
        assert all(found[name] for name in some)
        numbers.append(len(seen))
    assert numbers[0] == numbers[1] <= 10, numbers
