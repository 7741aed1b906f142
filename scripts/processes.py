"""Start processes of a clone, and stop exactly those, with all of their children.

A process is identified by pid and creation time. Its environment has a marker, which its children inherit. So a Spark
JVM whose parent was killed is still found, and a process of another clone, or one that reuses an old pid, is never
touched. Airflow's workers overwrite their environment with a title: they are identified by the session of the service
and by their working directory.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
PYTHON_PATH = os.pathsep.join((str(ROOT / "pipeline"), str(ROOT)))
"""PYTHONPATH for processes that must import the code of this tree, not an installed version."""

MARKER = "MILEPOST_STACK"
LOOPBACK = "127.0.0.1"
NO_PROXY = "127.0.0.1,localhost,::1"
TERM_S = 15.0
KILL_S = 60.0
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
QUIET_FROM = 20_000
CLOCK_SLACK_S = 2.0
"""Two reads of the creation time of a process may differ by a clock adjustment."""

NOT_INHERITED = (
    "AIRFLOW", "SPARK_", "PYSPARK_", "PYTHON", "MILEPOST_", "AWS_", "VIRTUAL_ENV", "MAKE", "MFLAGS", "GUNICORN",
    "UVICORN",
)  # fmt: skip


class StackError(Exception):
    """A process of the stack does not start or stop. The message names it and its log."""


@dataclass(frozen=True)
class Started:
    """A process that was started.

    Attributes:
        name: of the service. pid, create_time: its identity; create_time in seconds, as reported by the system.
        port: its loopback port, or None. log: file with its output. cwd: its working directory at the start.
    """

    name: str
    pid: int
    create_time: float
    port: int | None
    log: str
    cwd: str = ""

    def process(self) -> psutil.Process | None:
        """Return the process if it still runs; None: it ended, or another process has its pid."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) < CLOCK_SLACK_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def clean_environ(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables without those that would redirect our processes, plus `extra`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join(part for part in (environ.get(name, ""), NO_PROXY) if part)
    environ |= {"TZ": "UTC", "LC_ALL": environ.get("LC_ALL") or "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    return environ | dict(extra)


def free_port(preferred: int | None = None) -> int:
    """Return a free loopback port: the preferred one if it is free.

    Otherwise a port outside of the ephemeral range: the server binds it only seconds later, and until then the system
    could assign an ephemeral port to a connection of any process.
    """
    for candidate in (*([preferred] if preferred else ()), *quiet_ports(), 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((LOOPBACK, candidate))
                return int(probe.getsockname()[1])
    raise StackError(f"no free port on {LOOPBACK}")


def quiet_ports(count: int = 20) -> list[int]:
    """Return distinct random ports below the ephemeral range; [] if that range is unknown."""
    try:
        first = int(EPHEMERAL_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return []
    ports = range(QUIET_FROM, first)
    return random.SystemRandom().sample(ports, min(count, len(ports)))


def is_listening(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def start(
    name: str,
    command: list[str],
    *,
    stack: str,
    environ: Mapping[str, str],
    cwd: Path,
    log: Path,
    port: int | None = None,
) -> Started:
    """Start a process in its own session, with its output in `log`. Its files are readable by this user only.

    Args:
        stack: identity of the stack. `<stack>/<name>` is the marker of the process and its children.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**environ, MARKER: f"{stack}/{name}"},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
        )
    try:
        create_time = psutil.Process(process.pid).create_time()
    except psutil.Error:
        create_time = time.time()
    return Started(name, process.pid, create_time, port, str(log), str(cwd))


def wait_until(
    ready: Callable[[], bool], *, of: Iterable[Started], timeout_s: float, what: str, interval_s: float = 0.2
) -> None:
    """Wait for a condition. Raises StackError with the end of the log if one of the processes ends, or on a timeout."""
    deadline = time.monotonic() + timeout_s
    watched = list(of)
    while not ready():
        assert_running(watched, what)
        if time.monotonic() > deadline:
            logs = ", ".join(started.log for started in watched)
            raise StackError(f"{what}: not ready after {timeout_s:.0f} s; see {logs}")
        time.sleep(interval_s)


def assert_running(watched: Iterable[Started], what: str) -> None:
    """Raise StackError with the end of its log if one of the processes has ended."""
    for started in watched:
        if started.process() is None:
            raise StackError(f"{what}: {started.name} ended. Its output ({started.log}) ends with:\n{tail(started)}")


def tail(started: Started, lines: int = 15) -> str:
    try:
        text = Path(started.log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no output)"
    return "\n".join(text.splitlines()[-lines:]) or "(no output)"


def stop(records: Iterable[Started], stack: str, names: Iterable[str] | None = None) -> list[str]:
    """Stop the recorded processes and all processes with their marker: TERM, then KILL. Idempotent.

    Args:
        stack: identity of the stack. names: services to stop; None = every process of the stack, recorded or not.
    Returns: processes that did not end and ports that are still in use; empty if everything has ended.
    """
    recorded = list(records)
    markers = None if names is None else {f"{stack}/{name}" for name in names}

    def is_ours(marker: str) -> bool:
        return marker.startswith(f"{stack}/") if markers is None else marker in markers

    end(_ours(recorded, is_ours), TERM_S)
    # A process that was just being started is found by the second search.
    end(_ours(recorded, is_ours), TERM_S)
    left = [f"{process.pid} ({_name(process)})" for process in _ours(recorded, is_ours)]
    taken = [started for started in recorded if started.port and is_listening(started.port)]
    return left + [f"port {started.port} of {started.name}" for started in taken]


def _ours(records: list[Started], is_ours: Callable[[str], bool]) -> list[psutil.Process]:
    roots = [process for started in records if (process := started.process()) is not None]
    found: dict[int, psutil.Process] = {process.pid: process for process in roots}
    for process in roots:
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    sessions = {started.pid: started for started in records if started.cwd and not _is_reused(started)}
    for process in psutil.process_iter():
        if process.pid not in found and (is_ours(_marker(process)) or _is_member(process, sessions)):
            found[process.pid] = process
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _runs(process)]


def _marker(process: psutil.Process) -> str:
    try:
        mine = process.uids().real == os.getuid()
        return process.environ().get(MARKER, "") if mine else ""
    except (psutil.Error, OSError):
        return ""


def _is_reused(started: Started) -> bool:
    """Return whether another process now has the pid of a service, which also names its session."""
    return psutil.pid_exists(started.pid) and started.process() is None and not _is_zombie(started.pid)


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _is_member(process: psutil.Process, sessions: Mapping[int, Started]) -> bool:
    """Return whether a process is in the session of one of the services, and has its working directory."""
    try:
        started = sessions.get(os.getsid(process.pid))
        if started is None or process.uids().real != os.getuid():
            return False
        return process.cwd().removesuffix(" (deleted)") == started.cwd
    except (psutil.Error, OSError):
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "ended"


def end(processes: list[psutil.Process], patience_s: float) -> None:
    """End processes and wait for them: TERM, then KILL for those that do not end in time."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=KILL_S)


def python() -> str:
    """Return the interpreter of this environment, which workers of Spark and Airflow must use too."""
    return sys.executable
