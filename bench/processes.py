"""The other end of a worker: it starts one, gives it commands, pauses it, and reads the CPU time of its whole tree."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bench.cpu_clock import CpuClock, tree_of
from bench.systems.registry import entry_of
from bench.workloads.workloads import Workload
from milepost.spark.driver.engines.java import find_java_home
from scripts.processes import PYTHON_PATH, ROOT

_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")
_SETTLED_S = 30.0


class WorkerFailed(RuntimeError):
    """A system did not carry out a command.

    Attributes:
        summary: one line for the results; names no place on this machine.
    """

    def __init__(self, system: str, do: str, reason: str, log: Path) -> None:
        lines = reason.strip().splitlines()
        self.summary = f"{system}: {do} failed: {lines[-1]}".replace(f"{ROOT}/", "")
        super().__init__(f"{system}: {do} failed; its log is {log}\n{reason.strip()}")


class Worker:
    """One system's process, paused unless it is its turn.

    Pausing keeps what idles (a query that polls every 10 ms, a garbage collector) from taking the others' CPU.
    """

    def __init__(self, system: str, workload: Workload, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.system = system
        self.log = folder / "log.txt"
        task = {"system": system, "workload": workload.to_json(), "folder": str(folder / "work")}
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environ["JAVA_HOME"] = str(find_java_home())
        loopback = "127.0.0.1,localhost,::1"
        with self.log.open("wb") as log:
            self._process = psutil.Popen(
                [str(python_of(system)), "-m", "bench.worker", json.dumps(task)],
                cwd=ROOT,
                env={
                    **environ,
                    "PYTHONPATH": PYTHON_PATH,
                    "TZ": "UTC",
                    "NO_PROXY": loopback,
                    "no_proxy": loopback,
                    "PYTHONHASHSEED": "0",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
                bufsize=1,
            )
        self._clock = CpuClock(self._process)

    def tell(self, do: str, *, within_s: float = 1800.0, **arguments: Any) -> dict[str, Any]:
        """Have the worker do one thing. Raises WorkerFailed when it says so, ends, or takes longer than `within_s`."""
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            ready, _, _ = select.select([self._process.stdout], [], [], within_s)
            line = self._process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line, ready = "", [None]
        if not line:
            what = "its process ended" if ready else f"no answer within {within_s:.0f} s"
            raise WorkerFailed(self.system, do, what, self.log)
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise WorkerFailed(self.system, do, answer["error"], self.log)
        return answer

    def cpu_s(self) -> float:
        """User and system seconds of the process and of all that lives, or lived, below it."""
        return self._clock.read()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look after the CPU time of processes that begin and end while the context is open."""
        with self._clock.watched() if entry_of(self.system).fresh else contextlib.nullcontext():
            yield

    def memory(self) -> dict[str, int]:
        """Resident bytes of the tree, and of the largest process below the first; shared pages are divided fairly.

        `peak_task_bytes` is the most that a Python process below the first has ever held, shared pages included.
        """
        sizes, peaks = [], [0]
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                sizes.append((process.memory_full_info().pss, process.name()))
                if process.pid != self._process.pid and process.name().startswith("python"):
                    peaks.append(_peak_bytes(process.pid))
        pythons = [size for size, name in sizes[1:] if name.startswith("python")]
        return {
            "memory_bytes": sum(size for size, _ in sizes),
            "largest_task_bytes": max(pythons, default=0),
            "peak_task_bytes": max(peaks),
        }

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Let the worker run, and pause it again."""
        for process in reversed(self._tree()):
            process.resume()
        try:
            yield
        finally:
            self.pause()

    def pause(self) -> None:
        """Stop the whole tree where it is."""
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def end(self) -> None:
        """End the tree: by its own close if it still responds, otherwise immediately."""
        tree = self._tree()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        with contextlib.suppress(WorkerFailed, OSError):
            self.tell("close", within_s=_SETTLED_S)
        _, left = psutil.wait_procs(tree, timeout=2)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_SETTLED_S)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def _tree(self) -> list[psutil.Process]:
        return tree_of(self._process)


def _peak_bytes(pid: int) -> int:
    """Return the most resident bytes that a process has had; 0: it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def python_of(system: str) -> Path:
    """The interpreter of a system's environment; the one that runs this for the main one."""
    import sys

    environment = entry_of(system).environment
    return Path(sys.executable) if environment == ".venv" else ROOT / environment / "bin" / "python"
