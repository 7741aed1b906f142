"""The page of all tables: each table of each job that the user may see, those with problems first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.specs.spec_edits import edit_spec

RULE = (
    "quality:\n  - sink: seen\n    expectations:\n"
    "      - {type: expect_column_values_to_be_between, column: k, min_value: 0, severity: warning}\ncheckpointing:"
)


def counted(folder: Path, name: str, epochs: int = 1, **edit: str) -> CountedJob:
    job = CountedJob.with_epochs(folder / name, epochs, edit or None)
    edit_spec(job.spec_path, {"name: small": f"name: {name}"})
    if epochs:
        (job.small.folder / "store" / "small").rename(job.small.folder / "store" / name)
    return job


def client_of(patch: pytest.MonkeyPatch, *jobs: CountedJob, readable: list[str] | None = None) -> PageClient:
    dags = [dag for job in jobs for dag in job_dags(job.small.folder / "config").values()]
    return page_client(patch, *dags, readable=readable, role="viewer")


def order_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r'<th scope="row"><a href="/jobs/[^"]+\?job=(\w+)">([^<]+)</a>', page)


def test_each_table_is_listed_with_its_rows_rules_and_freshness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with problems first, then by name, so that the same table of several jobs is together."""
    jobs = [counted(tmp_path, "calm", 2), counted(tmp_path, "warned", 1, **{"checkpointing:": RULE})]
    jobs += [counted(tmp_path, "new", 0), counted(tmp_path, "torn")]
    (head,) = (tmp_path / "torn" / "store").rglob("chk-*1/t*/_metadata")
    head.write_bytes(b"{")
    client = client_of(monkeypatch, *jobs)
    page = client.get("/tables")
    assert page.status_code == 200 and 'href="/tables"' in client.get("/jobs").text
    assert order_of(page.text) == [
        *(("torn", "seen"), ("torn", "table"), ("warned", "seen")),
        *(("calm", "seen"), ("calm", "table"), ("warned", "table"), ("new", "seen"), ("new", "table")),
    ]
    wording.matches("page_tables", page_text(page.text, "#main"), replace=FIGURES)
    for job, sink in order_of(page.text):
        address = f"/jobs/{job}__epoch/tables/{sink}?job={job}"
        assert f'href="{address}"' in page.text
        assert client.get(address).status_code == (503 if job == "torn" else 200)


def test_tables_of_dags_that_the_user_may_not_read_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [counted(tmp_path, "mine"), counted(tmp_path, "theirs")]
    client = client_of(monkeypatch, *jobs, readable=["mine__epoch", "mine__operate"])
    assert {job for job, _ in order_of(client.get("/tables").text)} == {"mine"}
    none = client_of(monkeypatch, *jobs, readable=[])
    wording.matches("page_tables", page_text(none.get("/tables").text, "#main"))
    assert client.logged_out().get("/tables").status_code == 401
