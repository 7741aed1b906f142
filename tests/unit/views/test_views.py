"""A document is the same in the terminal and on its page, and neither lets a name through that would act there."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.views import plain, show_view
from milepost.jobmaster import Session
from milepost.views import Fold, View, checkpoint_view, status_view
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def on_terminal(view: View, capsys: pytest.CaptureFixture[str], *folds: Fold) -> str:
    capsys.readouterr()
    show_view(view, Output(), folds)
    return capsys.readouterr().out


def on_page(job: SparklessJob, patch: pytest.MonkeyPatch, *parts: str) -> str:
    client = page_client(patch, *job_dags(job.folder / "config").values())
    return client.get("/".join(("/jobs/small__epoch", *parts))).text


def texts(view: View) -> set[str]:
    """Return the labels, values and notes that no fold hides, without times that pass."""
    found = set()
    for section in view.sections:
        if section.fold is None:
            found |= {section.title, section.about, *section.lines, *(fact.label for fact in section.facts)}
            found |= {plain(fact.value) for fact in section.facts if fact.label not in ("lag", "runbook")}
        for table in section.tables:
            found |= {table.title, *table.columns, *(row.note for row in table.rows)}
            found |= {plain(cell) for row in table.rows for cell in row.cells if "█" not in plain(cell)}
    return found - {""}


@pytest.mark.deep
def test_every_figure_is_in_the_terminal_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    job = CountedJob.with_epochs(tmp_path / "job", 2).small
    view = checkpoint_view(job.master.reports.show(2, with_cost=False))
    printed, page = on_terminal(view, capsys), html.unescape(on_page(job, monkeypatch, "checkpoints", "2"))
    assert {section.title for section in view.sections} >= {"Sources", "Sinks", "Operators", "Time", "Quality"}
    for text in texts(view):
        assert text in printed and text in page, text


@pytest.mark.deep
def test_what_pages_fold_away_is_printed_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2).small
    view = checkpoint_view(job.master.reports.show(2))
    folds = [fold for section in view.sections for table in section.tables for row in table.rows for fold in row.folds]
    subtasks = [fold for fold in folds if fold.fold is Fold.SUBTASKS]
    assert subtasks and len(subtasks) < len(folds)
    page, printed = on_page(job, monkeypatch, "checkpoints", "2"), on_terminal(view, capsys, Fold.SUBTASKS)
    plainly = on_terminal(view, capsys)
    for fold in folds:
        assert f"<summary>{fold.title}</summary>" in page and fold.title not in plainly
        assert (fold.title in printed) is (fold in subtasks)
    assert "\nname: small\n" in on_terminal(view, capsys, Fold.SPEC) and "\nname: small\n" not in printed


@pytest.mark.long
def test_names_are_escaped_in_the_terminal_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an object that was read, of one that is left out, and of what failed an epoch."""
    job = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 0s\n    on_bad_name: skip"})
    job.land("a<b>.csv")
    job.land("left<b>\x1b[2J.csv")
    job.epoch()
    job.land("c.csv")
    session = Session.cli()
    pending = job.master.triggers.trigger(session)
    job.master.epochs.abort(session, pending.checkpoint_id, "SUBTASK_DECLINED", "line <b>\x1b[2J")
    for view, named, parts in (
        (checkpoint_view(job.master.reports.show(1)), "checkpoint 1", ("checkpoints", "1")),
        (checkpoint_view(job.master.reports.show(2)), r"line <b>\x1b[2J", ("checkpoints", "2")),
        (status_view(job.master.reports.status()), r"line <b>\x1b[2J", ()),
    ):
        printed, page = on_terminal(view, capsys, *Fold), on_page(job, monkeypatch, *parts)
        assert named in printed and "\x1b" not in printed
        assert "&lt;b&gt;" in page and "<b>" not in page
    assert "left<b>" in printed and "left&lt;b&gt;" in page


def test_columns_of_numbers_are_right_aligned(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1).small
    view = checkpoint_view(job.master.reports.show(1))
    tables = {section.title: table for section in view.sections for table in section.tables}
    right = dict(zip(tables["Operators"].columns, tables["Operators"].right, strict=True))
    assert right["rows in"] and right["state"] and not right["operator"] and not right["kind"]
    assert not re.search(r"[A-Z]", "".join(tables["Operators"].columns))
