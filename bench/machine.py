"""On what a run was measured: the machine, the versions, and how much of it others used meanwhile."""

from __future__ import annotations

import platform
import subprocess
import time
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


_RESULTS = (":!bench/RESULTS.md", ":!bench/TABLES.md", ":!bench/AIRFLOW.md", ":!bench/results-*.json", ":!bench/plots")


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
    """How many cores processes that are not ours kept busy: above a few per cent, times mean little."""

    def __init__(self, own_cpu_s: float) -> None:
        """Args: own_cpu_s: CPU time that ours have used so far."""
        self._started = time.monotonic()
        self._others = _busy_s() - own_cpu_s

    def cores(self, own_cpu_s: float) -> float:
        """Busy cores on average since the start. Args: own_cpu_s: CPU time that ours have used by now."""
        return max(0.0, (_busy_s() - own_cpu_s - self._others) / (time.monotonic() - self._started))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return (
        sum(times)
        - times.idle
        - getattr(times, "iowait", 0.0)
        - getattr(times, "guest", 0.0)
        - getattr(times, "guest_nice", 0.0)
    )
