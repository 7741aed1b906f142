"""Processes that tests start: on free ports, with a clean environment, ended as whole trees by pid."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from scripts.processes import ROOT, free_port

REPOSITORY = ROOT
LOOPBACK = "127.0.0.1,localhost,::1"
_ENDS_WITHIN_S = 30.0
"""How long to wait for a process after it was asked to end."""


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that were free a moment ago, all different, and that no connection is given."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)


def accepts(port: int) -> bool:
    """Whether something listens on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(ready: Callable[[], bool], *, seconds: float, what: str, process: psutil.Popen | None = None) -> None:
    """Poll a condition.

    Raises:
        AssertionError: it did not come true in time, or the process it depends on ended.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: its process ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not ready within {seconds} s")
        time.sleep(0.05)


def stop_tree(process: psutil.Popen, *, kill: bool = False) -> None:
    """End a process that we started and its descendants: SIGTERM, then SIGKILL; with `kill`, SIGKILL immediately."""
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        tree = [process]
    for each in tree:
        with suppress(psutil.NoSuchProcess):
            each.kill() if kill else each.terminate()
    _, alive = psutil.wait_procs(tree, timeout=_ENDS_WITHIN_S)
    for each in alive:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(alive, timeout=_ENDS_WITHIN_S)


def working_below(folder: Path) -> list[psutil.Process]:
    """Processes that have their working directory in a folder or below it, no matter what started them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def run_python(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None, seconds: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process that can import `milepost` and `tests`; its exit code is not judged."""
    env = {**os.environ, **(environment or {})}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
