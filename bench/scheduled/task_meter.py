"""A plugin of the benchmark's Airflow: each task's process says at its end what it took, and what it imported.

A file of its own in the plugins folder: Airflow loads it in every process, so it imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

FILE = "MILEPOST_BENCH_TASKS"
"""Names the file that the lines go to."""

_at_start: dict[str, Any] = {}


class Listener:
    """What Airflow tells of a task, in the process that runs it."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        """Remember where the process of a task begins: its supervisor has forked it with what was imported by then."""
        if type(component).__name__ == "TaskRunnerMarker":
            _at_start.update(modules=set(sys.modules))

    @hookimpl
    def on_task_instance_success(self, previous_state: object, task_instance: Any) -> None:
        """Write one line. A task's process starts with no CPU time used."""
        line = {
            "dag_id": task_instance.dag_id,
            "run_id": task_instance.run_id,
            "task_id": task_instance.task_id,
            "map_index": task_instance.map_index,
            "cpu_s": time.process_time(),
            "imported": sorted(_packages(set(sys.modules) - _at_start.get("modules", set()))),
            "requests": _requests(),
            "modules": len(set(sys.modules) - _at_start.get("modules", set())),
        }
        with open(os.environ[FILE], "a", encoding="utf-8") as stream:  # noqa: PTH123 - one write, appended whole
            stream.write(json.dumps(line) + "\n")


def _requests() -> int | None:
    """How many requests of S3 this process has made; None where Milepost is not loaded."""
    counted = sys.modules.get("milepost.storage.requests")
    if counted is None:
        return None
    made = counted.REQUEST_COUNTER.totals()
    return int(made.puts + made.gets + made.deletes)


def _packages(modules: Any) -> set[str]:
    return {name.partition(".")[0] for name in modules}


class TaskMeter(AirflowPlugin):
    name = "milepost_bench_task_meter"
    listeners = [Listener()]  # noqa: RUF012 - Airflow's own shape
