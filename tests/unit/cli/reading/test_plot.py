"""`plot` draws the epochs of the live lineage: here, as SVG, as a document."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from milepost.cli.terminal.charts import Part, column_width, columns, stacked
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

PARTS = {"plan": Part("p", "blue"), "data": Part("d", "green")}


def test_columns_are_in_eighths_of_the_largest_and_never_vanish() -> None:
    lines = [str(line) for line in columns([8, 4, None, 0, 0.001, 1], 1, 1, "cyan")]
    assert lines == ["█▄  ▁▁"]
    assert [str(line) for line in columns([2, 1], 2, 3, "")] == ["██    ", "██ ██ "]
    assert [str(line) for line in columns([0, None], 1, 1, "")] == ["  "]


def test_stacked_columns_show_each_part_at_its_middle() -> None:
    lines = [str(line) for line in stacked([{"plan": 3, "data": 5}, None, {"plan": 4}], PARTS, 4, 1)]
    assert lines == ["d  ", "d  ", "p p", "p p"]


def test_columns_share_the_width() -> None:
    assert [column_width(count, 78) for count in (0, 1, 30, 78, 200)] == [4, 4, 2, 1, 1]


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    for number in range(3):
        job.land(f"{number}.csv", "k,v\n" + "1,a\n" * (number + 1))
        job.master.epochs.run(Session.cli(), SparklessRunner())
    return job


@pytest.mark.deep
def test_the_newest_epochs_are_drawn_oldest_first(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    spec = job.folder / "config" / "small.yaml"
    told = milepost("plot", spec)
    assert told.exit_code == 0 and "\x1b" not in told.stdout and max(map(len, told.stdout.splitlines())) <= 80
    lines = told.stdout.splitlines()
    wording.matches("plot", [lines[0], *(line for line in lines if line.startswith("rows"))])
    epochs = milepost("plot", spec, "--limit", "2", "--json").document()["epochs"]
    assert [(one["checkpoint_id"], one["rows_in"]) for one in epochs] == [(2, 2), (3, 3)]
    assert all(epoch["phases"]["total_ms"] > 0 for epoch in epochs), "one is retained, the other has a row"


def test_what_a_rollback_left_is_not_drawn(job: SparklessJob) -> None:
    spec = job.folder / "config" / "small.yaml"
    roll_back(job.master, 3)
    roll_back(job.master, 0)
    assert milepost("plot", spec, "--json").document()["epochs"] == []
    wording.matches("plot", milepost("plot", spec).stderr)


def test_a_picture_is_self_contained_svg_and_overwrites_nothing(job: SparklessJob) -> None:
    spec, file = job.folder / "config" / "small.yaml", job.folder / "chart.svg"
    drawn = milepost("plot", spec, "--output", file)
    assert drawn.exit_code == 0
    wording.matches("plot", drawn.stderr)
    text = file.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg") and "rows&#160;in" in text
    assert "url(http" not in text and "@font-face" not in text
    assert_clear_error(milepost("plot", spec, "--output", file), 2, golden="plot")
    assert_clear_error(milepost("plot", spec, "--output", job.folder / "chart.png"), 2, golden="plot")
    assert file.read_text() == text


def test_a_damaged_checkpoint_is_named_and_the_others_are_drawn(job: SparklessJob) -> None:
    spec = job.folder / "config" / "small.yaml"
    next((job.folder / "store").rglob("chk-*3/t*/_metadata")).write_bytes(b"{")
    told = milepost("plot", spec)
    assert told.exit_code == 0
    wording.matches("plot", told.stdout.splitlines()[0])
    wording.matches("plot", told.stderr, replace=wording.SIZES)
    epochs = milepost("plot", spec, "--json").document()["epochs"]
    assert [one["unreadable"] is not None for one in epochs] == [False, False, True]
