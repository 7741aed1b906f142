"""The CPU time of a process tree, also of what ended in it without anybody having waited for it.

A process that has ended hands its CPU time to the parent that waits for it. Spark's Python daemon ignores how its
children end: what its workers used is in nobody's books any more. So it is remembered here as it was last seen.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

_SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)
_LOOKS_S = 0.2


class CpuClock:
    """Reads one tree again and again; what used time and ended between two looks is missed by that much."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._seen: dict[tuple[int, float], tuple[float, bool]] = {}
        self._lost_s = 0.0
        self._lock = threading.Lock()

    def read(self) -> float:
        """User and system seconds of the process, of what lives below it, and of what has ended there."""
        with self._lock:
            now: dict[tuple[int, float], tuple[float, bool]] = {}
            ignoring: dict[int, bool] = {}
            for process in tree_of(self._root):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times, parent = process.cpu_times(), process.ppid()
                    used_s = times.user + times.system + times.children_user + times.children_system
                    lost = ignoring.setdefault(parent, _ignores_children(parent))
                    now[process.pid, process.create_time()] = used_s, lost
            self._lost_s += sum(used_s for key, (used_s, lost) in self._seen.items() if lost and key not in now)
            self._seen = now
            return self._lost_s + sum(used_s for used_s, _ in now.values())

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look often while the context is open: for trees in which processes begin and end."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOKS_S):
                self.read()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def tree_of(root: psutil.Process) -> list[psutil.Process]:
    """A process and all below it, parents first; [] when it has ended."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _ignores_children(pid: int) -> bool:
    """Whether a process ignores SIGCHLD, so that the kernel drops what its children have used."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) & _SIGCHLD_BIT)
    return False
