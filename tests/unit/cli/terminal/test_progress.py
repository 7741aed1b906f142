"""`run` tells its phase, what it is to read, and how many rows came of it."""

from __future__ import annotations

import contextlib
import os
import pty
from pathlib import Path

import pytest

from milepost.cli.terminal import progress as module
from milepost.cli.terminal.progress import EpochProgress
from milepost.jobmaster.jobmaster import Session
from tests.harness.jobs.sparkless.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless.sparkless_runner import SparklessRunner


def test_each_phase_of_an_epoch_is_told_with_objects_and_rows(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,a\n2,b\n2,c\n")
    told: list[str] = []
    job.master.run(Session.cli(), SparklessRunner(), progress=told.append)
    assert told == [
        "trigger", "begin", "session", "data plane: 1 object, 16 bytes", "gate", "prepare: 2 rows out",
        "write: 3 rows in, 2 rows out", "validate", "complete", "notify: table", "subsume",
    ]  # fmt: skip


def test_what_an_epoch_leaves_is_told_with_what_it_reads(tmp_path: Path) -> None:
    """By a limit, or because it has landed just now: without a word it would seem to be read."""
    job = SparklessJob.create(tmp_path)
    for name in ("a.csv", "b.csv"):
        job.land(name, "k,v\n1,a\n")
    told: list[str] = []
    job.master.run(Session.cli(), SparklessRunner(), progress=told.append)
    assert "data plane: 1 object, 8 bytes; 1 object left for a later epoch" in told


def test_off_a_terminal_a_long_step_is_said_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_LINE_EVERY_S", 0.0)
    with EpochProgress() as progress:
        progress("data plane: 1 object, 16 bytes")
        while "data plane: 1 object, 16 bytes (0 s)\n" not in capsys.readouterr().err:
            pass


def test_a_terminal_has_one_live_line_that_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as screen:  # noqa: PTH123 - a descriptor has no path
        monkeypatch.setattr(module.sys, "stderr", screen)
        with EpochProgress() as progress:
            progress("data plane: 1 object, 16 bytes")
            progress("write: 3 rows in, 2 rows out")
    shown = b""
    with contextlib.suppress(OSError):  # Linux answers EIO once nobody holds the other end
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert b"write: 3 rows in, 2 rows out" in shown and shown.rstrip().endswith(b"\x1b[2K")
