"""A store that hangs: no page waits for it indefinitely, each says so, and shows what is known without it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.jobs import job_reader
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.job_page import SECTIONS
from milepost.airflow.page.jobs.job_reader import JobReader
from milepost.errors import StoreUnavailable
from milepost.jobmaster import JobMaster
from milepost.protocol.records.layout import MANIFEST_PREFIX, manifest_key
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import hook_stores

JOB = "/jobs/small__epoch"


@pytest.mark.parametrize(
    "address", ["", *(f"/{section}" for section, _ in SECTIONS if section), "/checkpoints/1", "/tables/table"]
)
def test_every_page_times_out_when_the_store_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    job, answers = CountedJob.with_epochs(tmp_path / "job", 1).small, Event()

    def hold(operation: str, key: str) -> None:
        assert answers.wait(60)

    client = page_client(monkeypatch, *job_dags(job.folder / "config").values())
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 0.4)
    with pytest.MonkeyPatch.context() as held:
        hook_stores(held, before=hold)
        answer = client.get(f"{JOB}{address}")
        answers.set()
    banner = page_text(answer.text, ".banner")
    assert answer.status_code == 503 and "0.4 s" in banner and "<h1>small</h1>" in answer.text
    wording.matches("page_problem", banner)


def test_when_only_the_log_hangs_the_page_shows_the_job_without_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, answers = CountedJob.with_epochs(tmp_path / "job", 2).small, Event()
    head = manifest_key(job.context.head().version)

    def hold(operation: str, key: str) -> None:
        assert operation != "get" or not key.startswith(MANIFEST_PREFIX) or key == head or answers.wait(60)

    client = page_client(monkeypatch, *job_dags(job.folder / "config").values())
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 2.0)
    with pytest.MonkeyPatch.context() as held:
        hook_stores(held, before=hold)
        answer = client.get(JOB)
        answers.set()
    assert answer.status_code == 200 and 'class="badge good"' in answer.text and "checkpoint 2</a>" in answer.text
    banner = page_text(answer.text, ".banner")
    assert "2 s" in banner and 'class="empty"' not in answer.text
    wording.matches("page_overview", banner)


def test_a_query_that_timed_out_in_the_queue_is_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a store that comes back would immediately get all requests that users have given up on."""
    job, answers, begun = CountedJob.with_epochs(tmp_path / "job", 1).small, Event(), list[str]()
    monkeypatch.setattr(job_reader, "_MAX_CONCURRENT_QUERIES", 1)
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 0.1)
    reader = JobReader()

    def query(name: str) -> str:
        def hold(master: JobMaster) -> str:
            begun.append(name)
            assert answers.wait(60)
            return name

        return reader.start(DagJob("small__epoch", job.loaded()), hold)()

    for name in ("first", "second"):
        with wording.raises(StoreUnavailable):
            query(name)
    answers.set()
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 60.0)
    assert query("third") == "third" and begun == ["first", "third"]
