"""Runs of `milepost` as processes that are killed, whose JVM and Python workers live on until the test ends them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from milepost.state.cache.cache_folder import NODE_CACHE_VARIABLE
from milepost_testkit.commands.mortal_run import run_under
from milepost_testkit.processes.processes import wait_until

SECONDS = 480
FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""A JVM that lives for one epoch: no second compiler, one collector thread, its own classes trusted."""

PRELOADED = (
    "milepost.cli.main",
    "milepost.cli.running.epochs",
    "milepost.jobmaster.compatibility.preflight",
    "milepost.jobmaster.leadership.lifecycle",
    "milepost.jobmaster.metrics.abort_reporter",
    "milepost.jobmaster.reports.checkpoint.details",
    "milepost.jobmaster.reports.reports",
    "milepost.jobmaster.retention.subsumption",
    "milepost.jobmaster.run.epochs",
    "milepost.jobmaster.run.judgement",
    "milepost.jobmaster.run.restarts",
    "milepost.openlineage.settings",
    "milepost.spark.driver.runner_factory",
    "milepost.spark.driver.runner",
    "milepost_testkit.commands.mortal_run",
    "milepost_testkit.runners.sparkless_runner",
    "pyarrow.compute",
    "pyarrow.parquet",
    "ruamel.yaml",
)
"""Modules that a run without Spark inherits from the process that it is forked from, instead of importing them."""


class ForkedProcess:
    """A run without Spark, forked from a process that has imported what it needs. Its interface is that of Popen."""

    def __init__(self, plan: dict[str, Any], words: Sequence[str], environment: dict[str, str], output: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED])
        arguments = (plan, words, environment, output)
        self._process = context.Process(target=_run_forked, args=arguments, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("milepost", timeout)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _run_forked(plan: dict[str, Any], words: Sequence[str], environment: dict[str, str], output: Path) -> None:
    """Become what a new process is: a session, a working directory, an environment and an output of its own."""
    os.setsid()
    os.chdir(output.parent)
    os.environ.clear()
    os.environ.update(environment)
    with output.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.argv[1:] = words
    run_under(plan)


@dataclass(frozen=True)
class MortalProcess:
    """One run, leader of a session of its own: by that its orphans are known after its death.

    Attributes:
        home: its HOME and working directory, its own. output: what it and its JVM printed.
    """

    process: subprocess.Popen[bytes] | ForkedProcess
    home: Path
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def members(self) -> Iterator[psutil.Process]:
        """Every live process of its session, orphans included."""
        for pid in psutil.pids():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.pid:
                    yield psutil.Process(pid)

    def jvm_lives(self) -> bool:
        """Whether its Spark is up and alive: a JVM that listens (one that prepares a start ends by itself)."""
        return any(member.name() == "java" and _listens(member) for member in self.members())

    def wait(self) -> int:
        """Its exit code, negative for a signal. Raises AssertionError when it does not end in time."""
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {SECONDS} s:\n{self.tail()}") from None

    def kill_when(self, due: Callable[[], bool]) -> int:
        """kill -9 from outside as soon as `due`; returns its exit code, which is its own if it ended before."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None and not due():
            assert time.monotonic() < deadline, f"the moment did not come within {SECONDS} s:\n{self.tail()}"
            time.sleep(0.001)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        return self.wait()

    def tail(self) -> str:
        return self.output.read_text(errors="replace")[-3000:]


@dataclass
class MortalProcesses:
    """Starts runs, each in a working directory and HOME of its own, and ends what they leave.

    Attributes:
        folder: location of those directories.
    """

    folder: Path
    started: list[MortalProcess] = field(default_factory=list)

    def start(
        self, *words: str, plan: dict[str, Any] | None = None, environment: Mapping[str, str] | None = None
    ) -> MortalProcess:
        """Start `milepost <words>` under a plan (see `mortal_run`); `environment` goes on top of ours."""
        home = self.folder / f"home {len(self.started) + 1}"
        home.mkdir(parents=True)
        output = home / "output.txt"
        not_here = ("XDG_", NODE_CACHE_VARIABLE)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(not_here)}
        ours = {"HOME": str(home), "JAVA_TOOL_OPTIONS": FAST_JVM}
        plan = plan or {}
        start = _start_program if plan.get("spark", True) else ForkedProcess
        process = start(plan, words, {**inherited, **ours, **(environment or {})}, output)
        run = MortalProcess(process, home, output)
        self.started.append(run)
        return run

    def end(self) -> None:
        """Kill every process that a started run has left, by its id."""
        for run in self.started:
            left = list(run.members())
            for member in left:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            wait_until(lambda ended=left: all(map(_ended, ended)), seconds=60, what="the end of what a run has left")
            if run.process.poll() is None:
                run.process.wait(60)


def _start_program(
    plan: dict[str, Any], words: Sequence[str], environment: dict[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start a run as a program, whose JVM outlives it."""
    with output.open("wb") as stream:  # a file: orphans would hold a pipe open for ever
        return subprocess.Popen(
            [sys.executable, "-m", "milepost_testkit.commands.mortal_run", json.dumps(plan), *words],
            cwd=output.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _ended(process: psutil.Process) -> bool:
    """An orphan's parent may never ask how it ended: a zombie has ended too."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def _listens(process: psutil.Process) -> bool:
    try:
        return any(item.status == psutil.CONN_LISTEN for item in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False
