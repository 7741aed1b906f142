"""The process of one system: `python -m bench.worker TASK`, a JSON document of system, workload and folder.

It is told one JSON line at a time on stdin and answers one on stdout; what the system prints goes to stderr.
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
from bench.workloads import Workload

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
    if command["do"] == "epoch":
        number = command["number"]
        staged = folders.work / "staged"
        if command["input"]:
            system.stage(Path(command["input"]), staged)
        started = time.perf_counter()
        if command["input"]:
            staged.rename(folders.epoch(number))
        system.epoch(number)
        wall_s = time.perf_counter() - started
        if fresh:
            _reap()
        return {"wall_s": wall_s}
    if command["do"] == "figures":
        return {"figures": system.figures(command["number"])}
    if command["do"] == "probe":
        return {"probe": system.probe(command["name"])}
    if command["do"] == "result":
        return {"sql": system.result_sql()}
    system.close()
    return {}


def _reap() -> None:
    """Wait for what an epoch's process left behind: a JVM ends a moment after the Python that started it."""
    deadline = time.monotonic() + _REAPED_WITHIN_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)


if __name__ == "__main__":
    main()
