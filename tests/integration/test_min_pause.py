"""`min_pause` spaces epochs: several of one command wait for it, a single one says how long it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.cli import epochs
from tests.harness.flights_job import FlightsJob
from tests.harness.milepost_cli import assert_clear_error, milepost

PAUSE_MS = 1_500


def job_with(folder: Path, pause: str) -> FlightsJob:
    edit = {"timeout: 10m}": f"timeout: 10m, min_pause: {pause}}}", "max_files: 4": "max_files: 1"}
    return FlightsJob.create(folder, edit)


def test_until_caught_up_waits_out_the_pause_between_its_epochs(tmp_path: Path) -> None:
    job = job_with(tmp_path, "1500ms")
    job.land([1, 2])
    result = milepost("run", job.spec_path, "--until-caught-up", "--json")
    assert result.exit_code == 0, result.stderr
    first, second, last = (json.loads(line)["data"] for line in result.stdout.splitlines())
    assert (first["checkpoint_id"], second["checkpoint_id"], last["status"]) == (1, 2, "empty")
    shown = {c["checkpoint_id"]: c for c in job.master().list_checkpoints()}
    assert set(shown) == {1, 2}


def test_a_single_run_during_the_pause_says_how_long_it_is(tmp_path: Path) -> None:
    job = job_with(tmp_path, "1h")
    job.land([1, 2])
    assert milepost("run", job.spec_path).exit_code == 0
    assert_clear_error(milepost("run", job.spec_path), 4, "the minimum pause is 3600000 ms", "Run it again in 3")


def test_an_interrupt_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the wait itself: nothing is pending, and the next run is not hindered."""
    job = job_with(tmp_path, "1h")
    job.land([1, 2])
    waited: list[float] = []

    def interrupted(seconds: float) -> None:
        waited.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(epochs.time, "sleep", interrupted)
    assert milepost("run", job.spec_path, "--epochs", "2").exit_code == 130
    assert len(waited) == 1 and 3500 < waited[0] <= 3600
    assert [c["status"] for c in job.master().list_checkpoints()] == ["completed"]
