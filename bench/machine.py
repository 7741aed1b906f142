"""On what a run was measured: the machine, the versions, and how much of it others used meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from milepost.spark.driver.engines.java import find_java_home
from scripts.processes import ROOT


def describe() -> dict[str, Any]:
    """Processor, cores, memory, system and Python; never a host name."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line for line in info.read_text().splitlines() if line.startswith("model name"))
        model = next(lines, ":").split(":", 1)[1].strip()
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
    }


_REPORTS = ("RESULTS", "LANGUAGE", "SQL", "TABLES", "AIRFLOW")
_RESULTS = (*(f":!bench/{name}.md" for name in _REPORTS), ":!bench/results-*.json", ":!bench/plots")


@cache
def _java() -> str:
    """The version that every JVM here reports, in its own words."""
    told = subprocess.run(
        [str(find_java_home() / "bin" / "java"), "-version"], check=True, capture_output=True, text=True
    ).stderr
    return told.splitlines()[0].strip()


def commit() -> str:
    """The commit that was measured; `+` when files other than results differ from it, empty outside of a clone."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", *_RESULTS) else name
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


class OthersMeter:
    """How many cores processes that are not ours kept busy: above a few per cent, times mean little.

    Ours are this process and what descends from it: workers, servers that a part starts, Airflow. Each of the others
    counts with the children that it has waited for, so that a shell's short commands count too; one that begins and
    ends meanwhile, and that nobody waits for, does not. What another machine on the same host took counts. The
    kernel's own threads do not: they work for whoever writes.
    """

    def __init__(self) -> None:
        self._started, self._stolen_s, self._before = time.monotonic(), _stolen_s(), others_s()

    def cores(self) -> float:
        """Busy cores on average since the start."""
        now = others_s()
        # What an ended child had used before the start is in its parent's time now: it is taken off again.
        used_s = sum(now.values()) - sum(self._before.values()) + _stolen_s() - self._stolen_s
        return max(0.0, used_s / (time.monotonic() - self._started))


_KERNEL_THREADS = 2
"""Process id of their parent, on Linux."""


def others_s() -> dict[tuple[int, float], float]:
    """CPU time by process, of those that are not ours: their own, and that of the children they waited for."""
    ours = {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}
    return {
        (one.pid, one.info["create_time"]): sum(one.info["cpu_times"][:4])
        for one in psutil.process_iter(["ppid", "create_time", "cpu_times"])
        if one.pid not in ours and _KERNEL_THREADS not in (one.pid, one.info["ppid"]) and one.info["cpu_times"]
    }


def _stolen_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
