"""`run` tells its phase, what it is to read, and how many rows came of it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from milepost.cli.terminal import progress as module
from milepost.cli.terminal.progress import EpochProgress
from milepost.epoch.timing.task_times import JOB_PHASES
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SECONDS = {r"\b\d+ s\b": "{time} s"}


def test_each_phase_of_an_epoch_is_reported_with_objects_and_rows(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,a\n2,b\n2,c\n")
    told: list[str] = []
    job.master.epochs.run(Session.cli(), SparklessRunner(), progress=told.append)
    wording.matches("run", told)


def test_the_remaining_input_of_an_epoch_is_reported_with_its_input(tmp_path: Path) -> None:
    """By a limit, or because it has landed just now: without a word it would seem to be read."""
    job = SparklessJob.create(tmp_path)
    for name in ("a.csv", "b.csv"):
        job.land(name, "k,v\n1,a\n")
    told: list[str] = []
    job.master.epochs.run(Session.cli(), SparklessRunner(), progress=told.append)
    wording.matches("run", told)


def test_off_a_terminal_a_long_step_is_reported_repeatedly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_LINE_EVERY_S", 0.0)
    with EpochProgress() as progress:
        progress("data plane: 1 object, 16 bytes")
        while "data plane: 1 object, 16 bytes (0 s)\n" not in capsys.readouterr().err:
            pass


@pytest.mark.long
def test_an_epoch_that_reads_as_much_as_the_one_before_is_expected_to_take_as_long(tmp_path: Path) -> None:
    class Progress:
        """Attributes: expected: the estimates of the epochs, in ms. steps: the steps that were estimated."""

        def __init__(self) -> None:
            self.expected: list[int | None] = []
            self.steps: list[str] = []

        def __call__(self, step: str) -> None:
            self.step = step

        def expect(self, estimate: Callable[[], int | None]) -> None:
            self.steps.append(self.step)
            self.expected.append(estimate())

    job, progress = SparklessJob.create(tmp_path, {"last: 1": "last: 5"}), Progress()
    small, large = "1,a\n", "1,a\n" * 260_000
    for number, text in enumerate((small, small, large, large, large * 2)):
        job.land(f"{number}.csv", "k,v\n" + text)
        job.master.epochs.run(Session.cli(), SparklessRunner(), progress=progress)
    wording.matches("run", progress.steps, replace=wording.SIZES)
    took = [job.master.reports.show(number).phases for number in (1, 2, 3, 4)]
    job_ms = [sum(one[f"{name}_ms"] or 0 for name in JOB_PHASES) for one in took]
    first, second, third, fourth, fifth = progress.expected
    assert first is None, "nothing is known yet"
    assert second == job_ms[0]
    assert third is None, "a few bytes say nothing of the pace of many"
    assert fourth == pytest.approx(job_ms[2], abs=2)
    assert fifth is not None and job_ms[3] < fifth <= 2 * job_ms[3] + 2


def test_a_step_whose_time_is_expected_has_percent_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_LINE_EVERY_S", 0.0)
    seen = ""

    def wait_for(pattern: str) -> re.Match[str]:
        nonlocal seen
        while (found := re.search(pattern, seen)) is None:
            seen += capsys.readouterr().err
        return found

    with EpochProgress() as progress:
        progress("data plane: 1 object, 16 bytes")
        progress.expect(lambda: 100_000)
        first = wait_for(r"data plane: 1 object, 16 bytes \(0 s, 0%, (.+)\)\n")
        progress("data plane: 2 objects, 32 bytes")
        progress.expect(lambda: 1)
        second = wait_for(r"32 bytes \(0 s, 99%, (.+)\)\n")
        progress("write: 3 rows in, 2 rows out")
        wait_for(r"write: 3 rows in, 2 rows out \(0 s\)\n")
    wording.matches("run", [first[1], second[1]], replace=SECONDS)


def test_an_estimate_that_cannot_be_read_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_LINE_EVERY_S", 0.0)
    asked = Event()

    def refuse() -> int:
        asked.set()
        raise StoreUnavailable("the store is down")

    with EpochProgress() as progress:
        progress("data plane: 1 object, 16 bytes")
        progress.expect(refuse)
        assert asked.wait(60)
        capsys.readouterr()
        while "data plane: 1 object, 16 bytes (0 s)\n" not in capsys.readouterr().err:
            pass


def test_a_terminal_has_one_live_line_that_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as screen:  # noqa: PTH123 - a descriptor has no path
        monkeypatch.setattr(module.sys, "stderr", screen)
        monkeypatch.setattr(module, "_MOVE_EVERY_S", 0.0)
        with EpochProgress() as progress:
            progress("data plane: 1 object, 16 bytes")
            progress.expect(lambda: 50_000)
            while not (estimate := progress._bar.tasks[0].fields["estimate"]):
                pass
            progress._bar.refresh()
            progress("write: 3 rows in, 2 rows out")
    shown = b""
    with contextlib.suppress(OSError):  # Linux answers EIO once nobody holds the other end
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    wording.matches("run", estimate, replace=SECONDS)
    assert b"0%, " in shown
    assert b"write: 3 rows in, 2 rows out" in shown and shown.rstrip().endswith(b"\x1b[2K")
