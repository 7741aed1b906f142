"""An epoch that is given up, or whose Spark is killed, while Spark works on it ends there and then (I3, I4)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.processes.processes import stop_tree, wait_until
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: held
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {k: int64}}
operators:
  - {uid: held, kind: process, inputs: [rows], key: [k], function: "held_ops:Held"}
sinks:
  - {name: held, input: held, format: parquet, path: ../lake/held, mode: append}
spark: {master: "local[2]", parallelism: 2}
"""
GIVE_UP_S = 900
FUNCTION = """\
import time
from pathlib import Path


class Held:
    state = {{"seen": "int64"}}
    output = {{"k": "int64"}}

    def on_rows(self, key, rows, state, ctx):
        Path("{folder}/started").touch()
        give_up = time.monotonic() + {give_up_s}
        while not Path("{folder}/go").exists() and time.monotonic() < give_up:
            time.sleep(0.1)
        state["seen"] = (state["seen"] or 0) + rows.num_rows
        yield {{"k": key}}
"""


@contextmanager
def held(folder: Path, more: str = "") -> Iterator[tuple[Path, psutil.Popen]]:
    """The spec of a job, and a run of it whose process function waits for the file `go`."""
    for name in ("config", "landing"):
        (folder / name).mkdir()
    spec = folder / "config" / "held.yaml"
    spec.write_text(SPEC + more)
    (folder / "config" / "held_ops.py").write_text(FUNCTION.format(folder=folder, give_up_s=GIVE_UP_S))
    (folder / "landing" / "a.csv").write_text("k\n1\n2\n")
    running = psutil.Popen(
        [sys.executable, "-m", "milepost", "run", str(spec), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((folder / "started").exists, seconds=240, what="the process function", process=running)
        yield spec, running
    finally:
        stop_tree(running, kill=True)


def published(spec: Path) -> list[int]:
    return sorted(row["k"] for row in json.loads(milepost("read", spec, "held", "--format", "json").stdout))


@pytest.mark.deep
def test_a_run_whose_jvm_is_killed_starts_another_one_and_ends_well(tmp_path: Path) -> None:
    """A machine short of memory kills it: no failure of the job, and nothing of the lost epoch is visible."""
    more = "checkpointing: {restart: {strategy: fixed_delay, attempts: 1, delay: 0s}}\n"
    with held(tmp_path, more) as (spec, running):
        (jvm,) = [child for child in running.children(recursive=True) if child.name() == "java"]
        jvm.kill()
        (tmp_path / "go").touch()
        _, stderr = running.communicate(timeout=480)
    assert running.returncode == 0, stderr
    wording.matches("run", [line for line in stderr.splitlines() if re.search(r"\b1 \w+ 1\b", line)])
    newest, lost = milepost("list", spec, "--json").document()["checkpoints"]
    assert (newest["status"], lost["status"], lost["failure_reason"]) == (
        "completed",
        "aborted",
        "ENVIRONMENT_UNUSABLE",
    )
    assert published(spec) == [1, 2]


@pytest.mark.deep
def test_a_cancel_stops_the_run_that_waits_for_spark_and_the_next_incarnation_reads_its_input(
    tmp_path: Path, in_process: Plane
) -> None:
    """The driver sees at its next heartbeat that it was fenced, and cancels its Spark job: no worker is waited for."""
    with held(tmp_path) as (spec, running):
        status = milepost("status", spec, "--json").document()
        assert (status["job_status"], status["pending"]) == ("running", 1)
        assert status["leader"]["holder"]["pid"] == running.pid
        assert milepost("cancel", spec, "--yes", "--json").document()["aborted_checkpoint"] == 1
        stdout, _ = running.communicate(timeout=GIVE_UP_S / 2)  # it does not wait for its workers
    assert running.returncode == 4
    (line,) = stdout.splitlines()
    error = json.loads(line)["error"]
    assert error["class"] == "Fenced"
    assert "CHECKPOINT_COORDINATOR_SHUTDOWN" in error["message"]
    wording.matches("Fenced", error["message"])
    (tmp_path / "go").touch()
    assert milepost("run", spec).exit_code == 1
    assert milepost("start", spec, "--json").document()["incarnation"] == 2
    outcome = milepost("run", spec, "--json")
    assert outcome.document()["checkpoint_id"] == 2, outcome.stderr
    assert published(spec) == [1, 2]
