"""The page of a checkpoint tells what its document does, by operator and subtask, and names no level."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.epoch.quantities import counted
from milepost.jobmaster import CheckpointDetails, Session
from milepost.storage.requests import StoreRequests
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

GATE = (
    "quality:\n  - sink: table\n    expectations:\n"
    "      - {type: expect_column_values_to_be_between, column: k, max_value: 90}\n"
    "checkpointing:"
)


def client_of(job: SparklessJob, patch: pytest.MonkeyPatch) -> PageClient:
    return page_client(patch, *job_dags(job.folder / "config").values())


class _Tables(HTMLParser):
    """The cells of a page's tables, row by row; of a row that has a table in it those of that one are apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._open: list[list[str]] = []
        self._cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self._open.append([])
        elif tag in ("td", "th") and self._open:
            self._open[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self.rows.append([" ".join(cell.split()) for cell in self._open.pop()])

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1]:
            self._open[-1][-1] += data


def rows_of(page: str) -> list[list[str]]:
    return _Tables(page).rows


@pytest.mark.deep
def test_operators_are_rows_that_fold_out_their_subtasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the figures of the document; a level is nowhere named."""
    job = CountedJob.with_epochs(tmp_path / "job", 2).small
    page = client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/2")
    assert page.status_code == 200 and not re.search(r"\blevel\b", page.text.lower())
    report, rows = job.master.reports.show(2), rows_of(page.text)
    assert isinstance(report, CheckpointDetails) and report.published is not None
    for uid, one in report.operators.items():
        (row,) = [row for row in rows if row[:2] == [uid, one.kind]]
        assert row[2:6] == [f"{value:,}" for value in (one.rows_in, one.rows_out, one.late_rows, one.state_rows)]
        assert re.search(rf"<summary>{len(one.subtasks)} [\w ]+ {uid}\b", page.text)
    for name, sink in report.published.items():
        (row,) = [row for row in rows if sink.table in row]
        assert row[:3] == [name, str(sink.rows), str(sink.files)] and row[4] == "committed"
    assert {row[0] for row in rows if row} >= {"min", "median", "max"}
    assert f'<a href="/jobs/small__epoch/checkpoints/{report.base}?job=small">' in page.text


@pytest.mark.deep
def test_a_vetoed_checkpoint_shows_the_reason_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rows that failed, as the gate keeps them, escaped."""
    job = SparklessJob.create(tmp_path, {"checkpointing:": GATE})
    job.land("a.csv", "k,v\n1,a\n99,b\n")
    with wording.raises(Exception):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    page = client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/1").text
    assert (
        "QUALITY_GATE_FAILED" in page_text(page, ".banner")
        and '<h2 id="refused-by-the-quality-gate">' in page
        and ["99"] in rows_of(page)
    )
    wording.matches("page_checkpoint", page_text(page, ".banner", "h2", ".empty"))


def test_an_aborted_checkpoint_has_its_remedy_in_the_document_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\nnot a number,a\n")
    with wording.raises(Exception):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    report = job.master.reports.show(1)
    assert report.meaning is not None and report.remedy is not None and "dead_letter" in report.remedy
    page = client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/1").text
    assert 'href="/runbook/epoch-failed"' in page
    shown = page_text(page, ".banner")
    assert report.meaning in shown and report.remedy in shown
    wording.matches("page_checkpoint", shown)


def test_the_page_of_a_damaged_checkpoint_shows_what_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2).small
    next((job.folder / "store").rglob("chk-*2/t*/_metadata")).write_bytes(b"{")
    answer = client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/2")
    assert answer.status_code == 200 and 'href="/runbook/state-corrupt"' in answer.text
    assert '<h2 id="operators">' not in answer.text and 'class="empty"' not in answer.text
    rows_in = job.master.reports.list_checkpoints(limit=1)[0].rows_in
    assert rows_in == 3 and f"</dt><dd>{counted(rows_in, 'row')} in" in answer.text
    wording.matches("page_checkpoint", page_text(answer.text, ".banner"))


def test_requests_and_money_are_those_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an epoch on S3 whose spec has prices; no subtask of it is known."""
    job = SparklessJob.create(tmp_path, {"checkpointing:": "prices: {get_per_1000: 500.0}\ncheckpointing:"})
    job.land("a.csv")
    asked = StoreRequests(1, 2, 0, 700, 5_000)
    job.epoch(lambda metadata: replace(metadata, requests={"begin": asked}))
    rows = rows_of(client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/1").text)
    assert ["begin", "1", "2", "0", "700 B", "5.0 kB"] in rows
    report = job.master.reports.show(1)
    assert isinstance(report, CheckpointDetails) and report.cost is not None
    page = client_of(job, monkeypatch).get("/jobs/small__epoch/checkpoints/1").text
    assert f"</dt><dd>USD {report.cost.total:.2f} (" in page


@pytest.mark.deep
def test_the_summary_has_the_percentiles_of_the_newest_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3).small
    client = client_of(job, monkeypatch)
    rows = rows_of(client.get("/jobs/small__epoch/summary").text)
    assert ["3"] * 7 in [row[1:] for row in rows]
    assert [row for row in rows if row[0] == "notify"]
    empty = SparklessJob.create(tmp_path / "empty")
    page = client_of(empty, monkeypatch).get("/jobs/small__epoch/summary").text
    wording.matches("page_summary", page_text(page, "#main"))


def test_rewind_points_lead_to_the_form_of_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each but the head, which changes nothing, and what cannot be used, which says why."""
    job = CountedJob.with_epochs(tmp_path / "job", 3).small
    keys = {int(one.checkpoint_id): one.metadata.key for one in job.context.head().state.checkpoints}
    (job.folder / "store" / "small" / keys[1]).unlink()
    page = client_of(job, monkeypatch).get("/jobs/small__epoch/rewind").text
    rows = {row[0]: row for row in rows_of(page)[1:]}
    assert list(rows) == ["3", "2", "1", "0"]
    assert "StateCorrupt" in rows["1"][3] and "seen: 9 → 6" in rows["2"][3] and "rows: 1 object" in rows["2"][4]
    assert page.count("what=rollback&amp;rollback_to=") == 2
    wording.matches("page_rewind", page_text(page, "#main"), replace=FIGURES)
