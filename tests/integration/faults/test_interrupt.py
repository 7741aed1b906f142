"""Ctrl-C at a terminal, which reaches every process of the group: one line, exit 130, and the job goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from milepost.jobmaster import JobMaster
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: small
storage: store
sources:
  rows: {format: csv, path: "landing/*.csv", schema: {k: int64, t: "timestamp[us, UTC]"}, event_time: t, settle: 0s}
operators:
  - {uid: waits, kind: process, inputs: [rows], key: [k], function: "waiting:Waits"}
sinks:
  - {name: table, input: waits, format: parquet, path: lake, mode: append}
spark: {master: "local[2]", parallelism: 1}
"""

WAITING = """\
class Waits:
    state = {{}}
    output = {{"k": "int64"}}

    def on_rows(self, key, rows, state, ctx):
        open({gate!r}).read()
        yield {{"k": key}}
"""


class Terminal:
    """`milepost run` in a process group of its own, as a shell starts it; its operator waits at a pipe."""

    def __init__(self, folder: Path) -> None:
        self.spec, self.gate = folder / "small.yaml", folder / "gate"
        (folder / "landing").mkdir()
        (folder / "landing" / "a.csv").write_text("k,t\n1,2026-07-01T00:00:00Z\n")
        self.spec.write_text(SPEC)
        (folder / "waiting.py").write_text(WAITING.format(gate=str(self.gate)))
        os.mkfifo(self.gate)
        command = [sys.executable, "-m", "milepost", "run", str(self.spec)]
        self.process = psutil.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def has_started_java(self) -> bool:
        return any(child.name().startswith("java") for child in self.process.children(recursive=True))

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def said(self) -> tuple[int, list[str]]:
        """Return the exit code, and the output other than progress."""
        out, err = self.process.communicate(timeout=240)
        told = [line for line in err.splitlines() if not line.endswith(" s)")]
        return self.process.returncode, [*out.splitlines(), *told]


def assert_interrupted(terminal: Terminal) -> None:
    code, lines = terminal.said()
    assert code == 130 and str(terminal.spec) in lines[-1]
    wording.matches("run", lines)


@pytest.mark.deep
def test_ctrl_c_while_spark_starts_is_one_error(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    wait_until(terminal.has_started_java, seconds=120, what="the JVM", process=terminal.process)
    terminal.interrupt()
    assert_interrupted(terminal)


def test_ctrl_c_twice_during_the_job_is_one_error_and_the_next_run_reads_its_input(
    tmp_path: Path, in_process: Plane
) -> None:
    terminal = Terminal(tmp_path)
    with terminal.gate.open("w"):  # opens when the operator has, too: a worker is amid the epoch
        terminal.interrupt()
        terminal.interrupt()
        assert_interrupted(terminal)
    terminal.gate.unlink()
    terminal.gate.touch()
    again = milepost("run", terminal.spec)
    assert again.exit_code == 0, again.stderr
    newest = JobMaster(load_job(terminal.spec)).reports.list_checkpoints()[0]
    assert (newest.status, newest.rows_in, newest.rows_out) == ("completed", 1, 1)
    assert JobMaster(load_job(terminal.spec)).reports.status().last_failure is None
