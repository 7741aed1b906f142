"""`make down` stops exactly what was started: by pid and creation time, with all that came of it, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scripts import processes
from scripts.processes import Started

IDLE = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {IDLE!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
UNMARKED_PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {IDLE!r}], env={{}}, cwd=sys.argv[1])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
LISTENER = """
import socket, time
server = socket.create_server(("127.0.0.1", int(__import__("sys").argv[1])))
time.sleep(600)
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[str]:
    """An identity for a stack; whatever a failing test leaves of it is ended."""
    identity = f"test-{os.getpid()}-{tmp_path.name}"
    yield identity
    processes.stop([], identity)


def start(
    stack: str, tmp_path: Path, code: str, *arguments: str, name: str = "one", port: int | None = None
) -> Started:
    return processes.start(
        name,
        [sys.executable, "-c", code, *arguments],
        stack=stack,
        environ=processes.clean_environ({}),
        cwd=tmp_path,
        log=tmp_path / f"{name}.log",
        port=port,
    )


def first_line(started: Started) -> str:
    processes.wait_until(
        lambda: "\n" in Path(started.log).read_text(), of=[started], timeout_s=120, what="its first line"
    )
    return Path(started.log).read_text().splitlines()[0]


def test_started_processes_have_ended_and_stopping_twice_is_fine(stack: str, tmp_path: Path) -> None:
    port = processes.free_port()
    listener = start(stack, tmp_path, LISTENER, str(port), port=port)
    processes.wait_until(lambda: processes.is_listening(port), of=[listener], timeout_s=120, what="the listener")
    assert processes.stop([listener], stack) == []
    assert listener.process() is None
    assert not processes.is_listening(port)
    assert processes.stop([listener], stack) == []


def test_an_orphan_is_found_although_its_parent_was_killed(stack: str, tmp_path: Path) -> None:
    """A killed task supervisor leaves its Spark JVM behind: it carries the stack's marker."""
    parent = start(stack, tmp_path, PARENT)
    orphan = psutil.Process(int(first_line(parent)))
    psutil.Process(parent.pid).kill()
    processes.wait_until(lambda: parent.process() is None, of=[], timeout_s=120, what="the parent's end")
    assert orphan.is_running()
    assert processes.stop([parent], stack) == []
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_orphan_without_marker_is_known_by_its_session_and_folder(
    stack: str, tmp_path: Path, elsewhere: bool
) -> None:
    """Airflow's workers write their title over their environment, and outlive a killed scheduler."""
    folder = tmp_path / "elsewhere" if elsewhere else tmp_path
    folder.mkdir(exist_ok=True)
    parent = start(stack, tmp_path, UNMARKED_PARENT, str(folder))
    orphan = psutil.Process(int(first_line(parent)))
    psutil.Process(parent.pid).kill()
    processes.wait_until(lambda: parent.process() is None, of=[], timeout_s=120, what="the parent's end")
    try:
        assert processes.stop([parent], stack) == []
        assert orphan.is_running() is elsewhere
    finally:
        if orphan.is_running():
            orphan.kill()


def test_a_process_that_ignores_term_is_killed(stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERM_S", 0.5)
    deaf = start(stack, tmp_path, STUBBORN)
    assert first_line(deaf) == "deaf"
    assert processes.stop([deaf], stack) == []
    assert deaf.process() is None


def test_a_reused_pid_is_not_ours(stack: str, tmp_path: Path) -> None:
    """The record of a process that ended must not lead to the process that has its pid now."""
    neighbour = start("another-stack", tmp_path, IDLE, name="neighbour")
    try:
        stale = dataclasses.replace(neighbour, name="one", create_time=neighbour.create_time - 3600)
        assert stale.process() is None
        assert processes.stop([stale], stack) == []
        assert neighbour.process() is not None
    finally:
        processes.stop([neighbour], "another-stack")


def test_stopping_one_service_leaves_the_others(stack: str, tmp_path: Path) -> None:
    one, two = start(stack, tmp_path, IDLE), start(stack, tmp_path, IDLE, name="two")
    assert processes.stop([one], stack, ["one"]) == []
    assert one.process() is None
    assert two.process() is not None


def test_processes_inherit_nothing_that_could_lead_them_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {
        "AIRFLOW_HOME": "/elsewhere",
        "AIRFLOW__CORE__EXECUTOR": "x",
        "SPARK_HOME": "/old",
        "PYTHONPATH": "/p",
        "AWS_PROFILE": "production",
        "NO_PROXY": "intranet",
    }
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    environ = processes.clean_environ({"AIRFLOW_HOME": "/ours"})
    assert environ["AIRFLOW_HOME"] == "/ours"
    assert environ["NO_PROXY"] == "intranet,127.0.0.1,localhost,::1"
    assert environ["TZ"] == "UTC"
    assert not {"AIRFLOW__CORE__EXECUTOR", "SPARK_HOME", "PYTHONPATH", "AWS_PROFILE"} & set(environ)


def test_files_of_started_processes_are_private(stack: str, tmp_path: Path) -> None:
    writer = start(stack, tmp_path, "open('made', 'w').write('x')")
    processes.wait_until(lambda: writer.process() is None, of=[], timeout_s=120, what="its end")
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_waiting_for_a_process_that_ended_shows_its_output(stack: str, tmp_path: Path) -> None:
    broken = start(stack, tmp_path, "raise SystemExit('no such setting')")
    with pytest.raises(processes.StackError, match="no such setting"):
        processes.wait_until(lambda: False, of=[broken], timeout_s=120, what="the service")


def test_no_connection_of_any_process_is_given_a_port_between_its_choice_and_its_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "ip_local_port_range"
    told.write_text("20030\t60999\n")
    monkeypatch.setattr(processes, "EPHEMERAL_PORTS", told)
    assert sorted(processes.quiet_ports(100)) == list(range(20_000, 20_030))
    assert processes.free_port() in range(20_000, 20_030)
    told.unlink()
    assert processes.quiet_ports() == [] and processes.free_port() > 0


def test_a_free_port_is_the_preferred_one_if_it_is_unused(stack: str, tmp_path: Path) -> None:
    port = processes.free_port()
    assert processes.free_port(port) == port
    taken = start(stack, tmp_path, LISTENER, str(port), port=port)
    processes.wait_until(lambda: processes.is_listening(port), of=[taken], timeout_s=120, what="the listener")
    assert processes.free_port(port) != port
