"""The process of one system: `python -m bench.worker TASK`, a JSON document of system, workload and folder.

It receives one JSON line at a time on stdin and answers one on stdout; the system's own output goes to stderr.
Children that outlive their parent are adopted and waited for, so that no CPU time of theirs is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from bench.systems.contract import Folders, System
from bench.systems.registry import entry_of, make_system
from bench.workloads.workloads import Workload

_PR_SET_CHILD_SUBREAPER = 36
_REAPED_WITHIN_S = 30.0


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    task = json.loads(sys.argv[1])
    workload, folders = Workload.from_json(task["workload"]), Folders(Path(task["folder"]))
    system, fresh = make_system(task["system"]), entry_of(task["system"]).fresh
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer: dict[str, Any] = {"ok": True, **_do(system, folders, workload, command, fresh=fresh)}
        except Exception:  # noqa: BLE001  # told to the other side, which ends this process
            answer = {"ok": False, "error": traceback.format_exc()}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()
        if command["do"] == "close":
            break


def _do(
    system: System, folders: Folders, workload: Workload, command: dict[str, Any], *, fresh: bool
) -> dict[str, Any]:
    if command["do"] == "prepare":
        folders.landing.mkdir(parents=True)
        system.prepare(workload, folders)
        return {"versions": system.versions()}
    if command["do"] in ("land", "epoch"):
        number = command["number"]
        staged = folders.work / "staged"
        staying = _children() if fresh else set()
        system.stage(Path(command["input"]), staged)
        started = time.perf_counter()
        staged.rename(folders.epoch(number))
        if command["do"] == "land":
            return {}
        system.epoch(number)
        wall_s = time.perf_counter() - started
        if fresh:
            _reap(staying)
        return {"wall_s": wall_s}
    if command["do"] == "figures":
        return {"figures": system.figures(command["number"])}
    if command["do"] == "probe":
        return {"probe": system.probe(command["name"])}
    if command["do"] == "result":
        return {"sql": system.result_sql()}
    system.close()
    return {}


def _reap(staying: set[int]) -> None:
    """Wait for what an epoch's process left behind: a JVM ends a moment after the Python that started it.

    Args:
        staying: ids of children that outlive epochs, as a server does.
    """
    deadline = time.monotonic() + _REAPED_WITHIN_S
    while time.monotonic() < deadline:
        ended = 1
        with contextlib.suppress(ChildProcessError):
            while ended:
                ended, _ = os.waitpid(-1, os.WNOHANG)
        if _children() <= staying:
            return
        time.sleep(0.05)


def _children() -> set[int]:
    """Ids of the processes that are waited for. Only the main environment, which starts processes, has psutil."""
    import psutil

    return {child.pid for child in psutil.Process().children()}


if __name__ == "__main__":
    main()
