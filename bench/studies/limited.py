"""Processes that may use so much memory together and no more: watched by us and, where it lets us, held by the kernel.

What a process tree holds is the sum of its proportional shares: a page that two of them have is counted once. It is
looked at ten times a second; a tree that is beyond its limit is ended. Where this process may make a memory group below
its own, the tree is in such a group with the same limit, in which the kernel counts its files' pages as well.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_LOOKS_S = 0.1
_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass
class Used:
    """What a tree used.

    Attributes:
        peak_mb: peak of all processes together. first_mb: peak of the first process.
        by_name_mb: the most of processes of one name, such as `java`.
        wall_s, cpu_s: until its first process ended. code: how that ended.
        ended_by: what ended it because of its memory; empty: nothing did.
    """

    peak_mb: float = 0.0
    first_mb: float = 0.0
    by_name_mb: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    code: int = 0
    ended_by: str = ""


def run_limited(
    command: Sequence[str], limit_mb: int, group: Path | None, log: Path, environment: Mapping[str, str]
) -> Used:
    """Run a command with all that it starts. What it prints goes to `log`.

    Args:
        group: that it is put into; None: it is watched alone.
    """
    joined = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")] if group else []
    before, started = _kills(group), time.perf_counter()
    with log.open("wb") as stream:
        process = psutil.Popen(
            [*joined, *command], env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        used, over, clock = Used(), threading.Event(), dict[int, float]()
        watcher = threading.Thread(target=_watch, args=(process, limit_mb, used, clock, over))
        watcher.start()
        used.code = process.wait()
        over.set()
        watcher.join()
    used.wall_s, used.cpu_s = time.perf_counter() - started, sum(clock.values())
    if _kills(group) > before:
        used.ended_by = "the kernel"
    return used


def _watch(root: psutil.Popen, limit_mb: int, used: Used, clock: dict[int, float], over: threading.Event) -> None:
    while not over.wait(_LOOKS_S):
        held, tree = dict[str, float](), [root]
        with suppress(psutil.NoSuchProcess):
            tree += root.children(recursive=True)
        for one in tree:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                name = "python" if one.name().startswith("python") else one.name()
                size_mb = one.memory_full_info().pss / 2**20
                held[name] = held.get(name, 0.0) + size_mb
                used.first_mb = max(used.first_mb, size_mb if one is root else 0.0)
                times = one.cpu_times()
                clock[one.pid] = times.user + times.system
        used.peak_mb = max(used.peak_mb, sum(held.values()))
        used.by_name_mb |= {name: max(size, used.by_name_mb.get(name, 0.0)) for name, size in held.items()}
        if sum(held.values()) > limit_mb:
            used.ended_by = "the watcher"
            for one in tree:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            return


@contextmanager
def memory_group(limit_mb: int) -> Iterator[Path | None]:
    """A memory group of the kernel with such a limit; None: this process may not make one.

    Version 1 of groups; those of version 2 are given out by systemd, to whom it pleases.
    """
    own = next((line.split(":", 2)[2] for line in _lines(Path("/proc/self/cgroup")) if ":memory:" in line), None)
    group = _GROUPS / f"{own or ''}".lstrip("/") / f"milepost-bench-{os.getpid()}"
    try:
        if own is None:
            raise FileNotFoundError("no memory group")
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_mb * 2**20), encoding="ascii")
        yield group
    finally:
        psutil.wait_procs([psutil.Process(pid) for pid in map(int, _lines(group / "cgroup.procs"))])
        group.rmdir()


def _kills(group: Path | None) -> int:
    """How many processes of a group the kernel has ended for their memory."""
    lines = _lines(group / "memory.oom_control") if group else []
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="ascii").splitlines() if file.exists() else []
