"""The page of all jobs: each that the user may see once, the most urgent first, and none waits for another's store."""

from __future__ import annotations

import re
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from threading import Event

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.errors import StoreUnavailable
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.job_stores import hook_stores, later


def job_named(folder: Path, name: str, epochs: int = 0) -> SparklessJob:
    job = SparklessJob.create(folder / name, {"name: small": f"name: {name}"})
    for number in range(epochs):
        job.land(f"{number}.csv")
        run(job, name)
    return job


def run(job: SparklessJob, name: str) -> None:
    """One epoch of a job that is not named `small`, as its command line would run it."""
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load.load import load_job
    from milepost_testkit.runners.sparkless_runner import SparklessRunner

    JobMaster(load_job(job.folder / "config" / "small.yaml")).epochs.run(Session.cli(), SparklessRunner())


def client_of(
    patch: pytest.MonkeyPatch, *jobs: SparklessJob, readable: list[str] | None = None, role: str = "user"
) -> PageClient:
    dags = [dag for job in jobs for dag in job_dags(job.folder / "config").values()]
    return page_client(patch, *dags, readable=readable, role=role)


HEALTHY = "healthy</span>"


def first_line(page: str) -> str:
    """Return the table's line of the first job."""
    return page_text(page, "tr").splitlines()[1]


def order_of(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/jobs/[^"]+">([^<]+)</a>', page)


@pytest.mark.deep
def test_each_job_is_listed_once_with_freshness_and_suggested_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reached through the DAG of its epochs, although each of its DAGs documents its spec."""
    fresh = job_named(tmp_path, "fresh", epochs=2)
    fresh.land("unread.csv")
    page = client_of(monkeypatch, fresh, job_named(tmp_path, "new")).get("/jobs").text
    assert order_of(page) == ["fresh", "new"]
    assert 'href="/jobs/fresh__epoch?job=fresh"' in page and 'href="/jobs/fresh__epoch/checkpoints/2?job=fresh"' in page
    assert HEALTHY in page and page.count("</time>") == 1 and "milepost run" not in page
    wording.matches("page_deployment", page_text(page, "#main"), replace=FIGURES)


def test_jobs_with_problems_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed jobs first, then unreadable ones, then those that need attention, then the others by name."""
    calm, failed, lost, torn = (job_named(tmp_path, name, epochs=1) for name in ("calm", "failed", "lost", "torn"))
    fail(failed, "<b>broken</b>")
    min((lost.folder / "store").rglob("manifest/*.json")).write_text("{")  # the head: versions count down
    next((torn.folder / "store").rglob("chk-*1/t*/_metadata")).write_bytes(b"{")
    page = client_of(monkeypatch, calm, failed, lost, torn).get("/jobs").text
    assert order_of(page) == ["failed", "lost", "torn", "calm"]
    assert "&lt;b&gt;broken&lt;/b&gt;" in page and "<b>" not in page
    wording.matches("page_deployment", page_text(page, "#main"), replace=FIGURES)
    for form in ("/failed__operate/form?job=failed&amp;what=resume", "torn&amp;what=rollback&amp;rollback_to=0"):
        assert f'{form}" data-method="POST"' in page


def fail(job: SparklessJob, detail: str) -> None:
    """Let the job's next epoch fail, which it does not tolerate."""
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load.load import load_job

    job.land("bad.csv")
    session, master = Session.cli(), JobMaster(load_job(job.folder / "config" / "small.yaml"))
    pending = master.triggers.trigger(session)
    master.epochs.abort(session, pending.checkpoint_id, "SUBTASK_DECLINED", detail)


def test_a_store_that_does_not_answer_delays_no_other_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is read once for several requests of the page: the second one shares the read of the first.

    The time limit passes when the other job has been read, however long that takes on a busy machine.
    """
    from milepost.airflow.page.jobs import job_reader

    slow, quick = job_named(tmp_path, "slow", epochs=1), job_named(tmp_path, "quick", epochs=1)
    answers, is_held, requests = Event(), Event(), []

    def hold(operation: str, key: str) -> None:
        requests.append(key)
        is_held.set()
        assert answers.wait(60)

    def wait_for_the_quick_job(running: list[Future[None]], timeout: float) -> None:
        assert timeout == job_reader.TIMEOUT_S and is_held.wait(60)
        done, others = wait(running, 60, FIRST_COMPLETED)
        assert (len(done), len(others)) == (1, 1)

    client = client_of(monkeypatch, slow, quick)
    with pytest.MonkeyPatch.context() as held:
        hook_stores(held, before=hold, only=str(slow.folder / "store"))
        held.setattr(job_reader, "TIMEOUT_S", 0.4)
        held.setattr(job_reader, "wait", wait_for_the_quick_job)
        pages = [client.get("/jobs").text for _ in range(2)]
        assert len(requests) == 1
        answers.set()
        running = [reading.running for reading in job_reader.JOB_READER._newest_readings.values()]
        for future in running:
            future.result(timeout=60)
    for shown in pages:
        assert order_of(shown) == ["slow", "quick"]
        assert HEALTHY in shown
        wording.matches("page_deployment", first_line(shown))
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 60.0)
    assert client.get("/jobs").text.count(HEALTHY) == 1 + 2, "one in the count"


def test_a_store_that_answers_after_the_page_has_waited_is_not_called_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.airflow.page.jobs import job_reader

    slow, answers = job_named(tmp_path, "slow", epochs=1), Event()

    def hold(operation: str, key: str) -> None:
        assert answers.wait(60)

    hook_stores(monkeypatch, before=hold, only=str(slow.folder / "store"))
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 0.1)
    (reading,) = job_reader.JobReader().read([DagJob("slow__epoch", slow.loaded())])
    answers.set()
    reading.running.result(timeout=60)
    assert reading.badge.word == "no answer"


def test_a_store_that_failed_and_now_hangs_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that only hangs may be slow, or the server busy."""
    from milepost.airflow.page.jobs import job_reader

    down = job_named(tmp_path, "down", epochs=1)
    client, answers = client_of(monkeypatch, down), Event()

    def refuse(operation: str, key: str) -> None:
        raise StoreUnavailable("the store is down")

    def hold(operation: str, key: str) -> None:
        assert answers.wait(60)

    pages = []
    for before, timeout_s in ((refuse, 60.0), (hold, 0.1)):
        with pytest.MonkeyPatch.context() as hooked:
            hook_stores(hooked, before=before, only=str(down.folder / "store"))
            hooked.setattr(job_reader, "TIMEOUT_S", timeout_s)
            pages.append(page_text(client.get("/jobs").text, "#main"))
    answers.set()
    wait([reading.running for reading in job_reader.JOB_READER._newest_readings.values()], timeout=60)
    assert all(page.count("down | unreachable since ") and "The store does not answer" in page for page in pages), pages


def test_an_outage_is_dated_from_the_first_of_the_failed_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from milepost.airflow.page.jobs import job_reader

    down = job_named(tmp_path, "down", epochs=1)
    client, reader = client_of(monkeypatch, down), job_reader.JOB_READER
    dated: list[float | None] = []

    def refuse(operation: str, key: str) -> None:
        raise StoreUnavailable("the store is down")

    with pytest.MonkeyPatch.context() as hooked:
        hook_stores(hooked, before=refuse, only=str(down.folder / "store"))
        for _ in range(2):
            assert "), as far as this server knows" in client.get("/jobs").text
            (own,) = (one for key, one in reader._newest_readings.items() if str(tmp_path) in str(key[-1]))
            dated.append(own.failing_since_s)
        page = page_text(client.get("/jobs/down__epoch?job=down").text, ".banner")
    assert len({*dated}) == 1 and dated[0] is not None
    assert "The store does not answer since " in page and "), as far as this server knows" in page
    assert "as far as this server knows" not in client.get("/jobs").text


@pytest.mark.deep
def test_an_outage_shows_in_the_line_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    down, up = job_named(tmp_path, "down", epochs=1), job_named(tmp_path, "up", epochs=1)

    def refuse(operation: str, key: str) -> None:
        raise StoreUnavailable("the store is <i>down</i>.", hint="Wait.")

    client = client_of(monkeypatch, down, up)
    hook_stores(monkeypatch, before=refuse, only=str(down.folder / "store"))
    page = client.get("/jobs").text
    assert order_of(page) == ["down", "up"]
    assert "the store is &lt;i&gt;down&lt;/i&gt;.</div>" in page and ">Wait.</td>" in page and HEALTHY in page


def test_a_user_sees_only_jobs_of_readable_dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job of which only the form is open, that one leads to it."""
    jobs = [job_named(tmp_path, name) for name in ("secret", "form", "seen")]
    page = client_of(monkeypatch, *jobs, readable=["seen__epoch", "form__operate"]).get("/jobs").text
    assert order_of(page) == ["form", "seen"] and "secret" not in page
    assert 'href="/jobs/form__operate?job=form"' in page
    viewed = client_of(monkeypatch, *jobs, readable=["seen__epoch"], role="viewer").get("/jobs").text
    assert order_of(viewed) == ["seen"], "one who may start nothing sees what may be read"
    nothing = client_of(monkeypatch, *jobs, readable=[]).get("/jobs").text
    assert order_of(nothing) == []
    wording.matches("page_deployment", page_text(nothing, "#main"))


def test_an_invalid_spec_is_shown_above_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_named(tmp_path, "fine")
    (job.folder / "config" / "wrong.yaml").write_text("name: wrong\nstorages: <b>\n")
    page = client_of(monkeypatch, job).get("/jobs").text
    assert page.index("wrong.yaml") < page.index("fine__epoch")
    wording.matches("page_deployment", page_text(page, ".banner"))
    assert 'href="/dags/wrong__broken" data-airflow' in page


@pytest.mark.deep
def test_neither_all_jobs_nor_one_of_them_reads_its_retained_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each job the head's metadata is read: what a month costs, for which all are, stands on neither page."""
    edit = {"name: small": "name: priced", "checkpointing:": "prices: {put_per_1000: 1}\ncheckpointing:"}
    job = SparklessJob.create(tmp_path, {**edit, "last: 1": "last: 9"})
    for number in range(4):
        job.land(f"{number}.csv")
        run(job, "priced")
    client, read = client_of(monkeypatch, job), list[str]()
    hook_stores(monkeypatch, before=lambda operation, key: read.append(key))
    for address in ("/jobs", "/jobs/priced__epoch"):
        read.clear()
        assert HEALTHY in client.get(address).text
        (metadata,) = (key for key in read if key.endswith("_metadata"))
        assert metadata.startswith("chk-00000000000000000004/")


@pytest.mark.deep
def test_rows_duration_and_late_share_of_the_newest_epochs_are_drawn_and_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job without figures the row says so, and the others are drawn."""
    client = client_of(monkeypatch, job_named(tmp_path, "busy", epochs=3), job_named(tmp_path, "new"))
    page = client.get("/jobs").text
    assert re.findall(r'aria-label="(\w+) of 3 epochs: ', page) == ["rows", "took", "late"]
    assert page.count('class="sparkline"') == 3 and "0.0% in the newest" in page
    busy, new = client.get("/jobs.json").json()["data"]["jobs"]
    assert [epoch["rows_in"] for epoch in busy["recent"]] == [1, 1, 1] and new["recent"] == []
    assert (busy["job"], busy["state"], busy["status"]["head"]) == ("busy", "healthy", 3)
    assert [epoch["late_share"] for epoch in busy["recent"]] == [0.0] * 3


@pytest.mark.deep
def test_the_document_of_all_tables_has_their_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(monkeypatch, job_named(tmp_path, "busy", epochs=1))
    (table,) = client.get("/tables.json").json()["data"]["tables"]
    assert (table["job"], table["table"]) == ("busy", "table") and table["health"]
    document = client.with_role("admin").get("/jobs/busy__epoch/tables/table.json")
    assert document.status_code == 200 and document.json()["data"]


def test_a_job_that_needs_a_person_comes_before_those_that_are_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused DAG, and an epoch that runs for longer than nine of ten took."""
    well, paused, slow = (job_named(tmp_path, name, epochs=2) for name in ("a_well", "b_paused", "c_slow"))
    schedule = 'schedule: {cron: "*/10 * * * *", timezone: UTC}\ncheckpointing:'
    edit_spec(paused.folder / "config" / "small.yaml", {"checkpointing:": schedule})
    client = client_of(monkeypatch, well, paused, slow)
    unpause("a_well__epoch", "c_slow__epoch")
    slow.land("more.csv")
    trigger(slow)
    later(monkeypatch, 300_000)
    page = client.get("/jobs").text
    assert order_of(page) == ["b_paused", "c_slow", "a_well"]
    assert "2 to look at" in page and "1 healthy" in page
    assert page.count("longer than usual</span>") == 1 and "If it hangs, abort it." in page
    assert "unpause it first" not in page, "its input is all read"
    paused.land("unread.csv")
    assert "as its limits allow. The DAG is paused: unpause it first." in client.get("/jobs").text


def trigger(job: SparklessJob) -> None:
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load.load import load_job

    JobMaster(load_job(job.folder / "config" / "small.yaml")).triggers.trigger(Session.cli())


def unpause(*dag_ids: str) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        for dag_id in dag_ids:
            dag = session.get(DagModel, dag_id)
            assert dag is not None
            dag.is_paused = False
