"""On what a run was measured: the machine, the versions, and how much of it others used meanwhile."""

from __future__ import annotations

import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent


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
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit that was measured; `+` when files differ from it, empty outside of a clone."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no") else name
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


class OthersMeter:
    """How many cores processes that are not ours kept busy: above a few per cent, times mean little."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy = _busy_s()

    def cores(self, own_cpu_s: float) -> float:
        """Busy cores on average since the start, without `own_cpu_s`, the CPU time of what was measured."""
        elapsed = time.monotonic() - self._started
        return max(0.0, (_busy_s() - self._busy - own_cpu_s) / elapsed)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return (
        sum(times)
        - times.idle
        - getattr(times, "iowait", 0.0)
        - getattr(times, "guest", 0.0)
        - getattr(times, "guest_nice", 0.0)
    )
