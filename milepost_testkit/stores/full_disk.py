"""Simulate a full disk without privileges: the kernel refuses to grow a file beyond a size (EFBIG).

RLIMIT_FSIZE is set on running processes, so the JVM, whose scratch files are elsewhere, can be excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil


@contextmanager
def no_room(processes: Iterable[psutil.Process], file_bytes: int) -> Iterator[None]:
    """While the block runs, no file of these processes and their children can grow beyond `file_bytes`."""
    with ExitStack() as undo:
        for process in processes:
            before = process.rlimit(psutil.RLIMIT_FSIZE)
            undo.callback(_restore, process, before)
            process.rlimit(psutil.RLIMIT_FSIZE, (file_bytes, before[1]))
        yield


def python_workers() -> list[psutil.Process]:
    """Return the daemon that forks this process's Spark Python workers, and the workers."""
    found = [each for each in psutil.Process().children(recursive=True) if _is_worker(each)]
    assert found, "no Spark Python worker has been started by this process"
    return found


def spark_jvm() -> list[psutil.Process]:
    """Return the JVM of this process's Spark."""
    found = [child for child in psutil.Process().children() if child.name() == "java"]
    assert found, "no JVM has been started by this process"
    return found


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "milepost.spark.worker.worker_daemon" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended, or is a zombie
        return False


def _restore(process: psutil.Process, limit: tuple[int, int]) -> None:
    try:
        left = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in left:
        with suppress(psutil.NoSuchProcess):  # it may end at any time; a zombie counts as ended
            if each == process or _is_worker(each):
                each.rlimit(psutil.RLIMIT_FSIZE, limit)
