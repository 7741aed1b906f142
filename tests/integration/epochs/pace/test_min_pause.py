"""`min_pause` spaces epochs: several of one command wait for it, a single one says how long it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality, without_sql
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.planes import Plane


def job_with(folder: Path, pause: str, edit: Mapping[str, str] | None = None) -> FlightsJob:
    edit = {
        **(edit or {}),
        without_quality(): "",
        "timeout: 10m}": f"timeout: 10m, min_pause: {pause}}}",
        "max_files: 4": "max_files: 1",
    }
    return FlightsJob.create(folder, edit)


def test_until_caught_up_waits_out_the_pause_between_its_epochs(tmp_path: Path, in_process: Plane) -> None:
    job = job_with(tmp_path, "1500ms")
    job.land([1, 2])
    result = milepost("run", job.spec_path, "--until-caught-up", "--json")
    assert result.exit_code == 0, result.stderr
    first, second, last = (json.loads(line)["data"] for line in result.stdout.splitlines())
    assert (first["checkpoint_id"], second["checkpoint_id"], last["status"]) == (1, 2, "empty")
    began, ended = (datetime.fromisoformat(c["trigger_time"]) for c in (second, first))
    ended += timedelta(milliseconds=first["duration_ms"])
    assert began - ended >= timedelta(milliseconds=1500)


def test_a_single_run_during_the_pause_says_how_long_it_is(tmp_path: Path, in_process: Plane) -> None:
    job = job_with(tmp_path, "1h")
    job.land([1, 2])
    assert milepost("run", job.spec_path).exit_code == 0
    assert_clear_error(milepost("run", job.spec_path), 4, "the minimum pause is 3600000 ms", "Run it again in 3")


def test_an_interrupt_ends_the_wait(tmp_path: Path) -> None:
    """Ctrl-C reaches the wait itself: nothing is pending, and the next run is not hindered."""
    job = job_with(tmp_path, "1h", without_sql())
    job.land([1, 2])
    without_spark = [sys.executable, "-m", "milepost_testkit.commands.mortal_run", '{"spark": false}']
    command = [*without_spark, "run", str(job.spec_path), "--epochs", "2"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waits = next((line for line in process.stderr if line.startswith("waiting ")), "")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        code = process.wait(240)
    assert waits.startswith("waiting 3") and "for the minimum pause" in waits
    assert (code, "interrupted" in rest) == (130, True), rest
    assert [c.status for c in job.master().list_checkpoints()] == ["completed"]
