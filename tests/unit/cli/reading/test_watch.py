"""`status --watch` shows the health again whenever it has changed, and nothing in between."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost.cli.reading.health import follow
from milepost.cli.terminal.output import Output
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session, Status
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


class Ended(Exception):
    """The watcher has left."""


def waiting(*steps: Callable[[], object]) -> Callable[[], None]:
    """Events while a person waits: one step each time, until the watcher leaves."""
    left: Iterator[Callable[[], object]] = iter(steps)

    def wait() -> None:
        step = next(left, None)
        if step is None:
            raise Ended
        step()

    return wait


def nothing() -> None:
    """Nothing changes meanwhile."""


def test_without_a_terminal_each_change_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = SparklessJob.create(tmp_path)
    master = job.master
    steps = (
        nothing,
        lambda: job.land("a.csv"),
        nothing,
        lambda: job.master.epochs.run(Session.cli(), SparklessRunner()),
        nothing,
    )
    with pytest.raises(Ended):
        follow(master.reports.status, waiting(*steps), Output())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    wording.matches("status", lines, replace=wording.LAG)


def test_a_terminal_is_cleared_and_shows_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    job, screen = SparklessJob.create(tmp_path), Screen()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(Ended):
        follow(job.master.reports.status, waiting(lambda: job.land("a.csv"), nothing), Output())
    told = screen.getvalue()
    assert told.count("\x1b[2J") == told.count("job small") == 2
    newest = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", told.split("\x1b[2J")[-1])
    wording.matches("status", newest, replace=wording.LAG)


def test_an_unresponsive_store_is_reported_once_and_retried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    health = SparklessJob.create(tmp_path).master.reports.status()
    answers: list[Status | StoreUnavailable] = [health, StoreUnavailable("away"), StoreUnavailable("away"), health]

    def look() -> Status:
        answer = answers.pop(0)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    with pytest.raises(Ended):
        follow(look, waiting(nothing, nothing, nothing), Output())
    printed = capsys.readouterr()
    assert printed.err == "away\n" and len(printed.out.splitlines()) == 2


def test_ctrl_c_ends_it_with_one_line_and_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own clock is interrupted, not the one that the threads of a gateway sleep by."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    job = SparklessJob.create(tmp_path)
    monkeypatch.setattr("milepost.cli.reading.health.time", SimpleNamespace(sleep=interrupted))
    outcome = milepost("status", job.folder / "config" / "small.yaml", "--watch", "--json")
    assert outcome.exit_code == 130
    document, error = outcome.stdout.splitlines()
    assert '"head": null' in document and '"Interrupted"' in error
    plain = milepost("status", job.folder / "config" / "small.yaml", "--watch")
    assert plain.exit_code == 130
    wording.matches("status", plain.stderr)
