"""`min_pause` spaces epochs: several of one command wait for it, a single one says how long it is."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
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


WAITED_S = r"\b3[0-9]{3}(\.\d+)? s\b"
WAIT = {WAITED_S: "{time} s", r"\b\d+ ms since": "{time} ms since", r"\(\d+ s\)$": "({time} s)"}


def test_until_caught_up_waits_out_the_pause_between_its_epochs(tmp_path: Path, in_process: Plane) -> None:
    job = job_with(tmp_path, "1500ms")
    job.land([1, 2])
    result = milepost("run", job.spec_path, "--until-caught-up", "--json")
    assert result.exit_code == 0, result.stderr
    first, second, last = (json.loads(line)["data"] for line in result.stdout.splitlines())
    assert (first["checkpoint_id"], second["checkpoint_id"], last["status"]) == (1, 2, "empty")
    before, after = JobMaster(load_job(job.spec_path)).context.head().state.checkpoints
    assert after.trigger_time_ms - before.completed_time_ms >= 1500


@pytest.mark.deep
def test_a_single_run_during_the_pause_says_how_long_it_is(tmp_path: Path, in_process: Plane) -> None:
    job = job_with(tmp_path, "1h")
    job.land([1, 2])
    assert milepost("run", job.spec_path).exit_code == 0
    assert_clear_error(milepost("run", job.spec_path), 4, "3600000 ms", golden="run", replace=WAIT)


def test_an_interrupt_ends_the_wait(tmp_path: Path) -> None:
    """Ctrl-C reaches the wait itself: nothing is pending, and the next run is not hindered."""
    job = job_with(tmp_path, "1h", without_sql())
    job.land([1, 2])
    without_spark = [sys.executable, "-m", "milepost_testkit.commands.mortal_run", '{"spark": false}']
    command = [*without_spark, "run", str(job.spec_path), "--epochs", "2"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waits = next((line for line in process.stderr if re.search(WAITED_S, line)), "")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        code = process.wait(240)
    wording.matches("run", waits, replace=WAIT)
    assert code == 130, rest
    wording.matches("run", rest.splitlines()[-1])
    assert [c.status for c in job.master().reports.list_checkpoints()] == ["completed"]
