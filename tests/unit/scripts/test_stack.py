"""`make status` says what runs of the demo; that nothing does is an answer, not a failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts import stack
from scripts.stack import Stack


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stack, "ROOT", tmp_path)
    return tmp_path


def test_that_nothing_runs_is_no_failure(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first demo, and after `make down`, which leaves its record."""
    assert (stack.status(), capsys.readouterr().out) == (0, "nothing is running\n")
    Stack(clone / ".milepost")
    assert (stack.status(), capsys.readouterr().out) == (0, "nothing is running\n")


def test_a_service_that_has_ended_is_a_failure(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = Stack(clone / ".milepost")
    known._start("s3", [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), None)
    try:
        assert stack.status() == 0 and "running" in capsys.readouterr().out
        running = known.started["s3"].process()
        assert running is not None
        running.kill()
        running.wait()
        assert stack.status() == 1 and "ended" in capsys.readouterr().out
    finally:
        known.stop()
    assert stack.status() == 0
