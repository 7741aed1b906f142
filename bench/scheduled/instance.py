"""One Airflow of the benchmark's own: LocalExecutor, S3 and Spark as in the demo, and a meter in its tasks."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from bench.scheduled import task_meter
from scripts.airflow_rest import AirflowRest
from scripts.processes import PYTHON_PATH, ROOT
from scripts.stack import Stack

HERE = Path(__file__).resolve().parent
RUN_S = 600.0
LISTED_S = 240.0
SERVICES = ("api-server", "scheduler", "dag-processor")
QUIET: dict[str, dict[str, object]] = {
    # Files are parsed when they are new: what is measured between is not parsing.
    "dag_processor": {"refresh_interval": 5, "min_file_process_interval": 3600},
}


@dataclass(frozen=True, slots=True)
class Files:
    """What the instance is given.

    Attributes:
        specs: job specs by file name. dags: DAG files by file name, in addition to the clone's own.
    """

    specs: Mapping[str, str]
    dags: Mapping[str, str]


class BenchAirflow:
    """An Airflow with some jobs and DAGs, running within the context."""

    def __init__(
        self, folder: Path, files: Files, environ: Mapping[str, str], settings: Mapping[str, Mapping[str, object]]
    ) -> None:
        """Args: folder: emptied first. environ: further variables of every process. settings: of airflow.cfg."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("config", "dags", "plugins"):
            (folder / name).mkdir(parents=True)
        for name, text in files.specs.items():
            (folder / "config" / name).write_text(text, encoding="utf-8")
        for name, text in {"jobs.py": (ROOT / "dags" / "jobs.py").read_text(encoding="utf-8"), **files.dags}.items():
            (folder / "dags" / name).write_text(text, encoding="utf-8")
        for plugin in (ROOT / "plugins" / "checkpoints_page.py", HERE / "task_meter.py"):
            shutil.copy(plugin, folder / "plugins")
        self._lines = folder / "tasks.jsonl"
        self.stack = Stack(
            folder / "stack",
            dags=folder / "dags",
            plugins=folder / "plugins",
            config=folder / "config",
            services=SERVICES,
            settings={**QUIET, **settings},
            environ={"PYTHONPATH": PYTHON_PATH, task_meter.FILE: str(self._lines), **environ},
            say=lambda text: None,
        )
        self.rest: AirflowRest

    def __enter__(self) -> Self:
        try:
            self.stack.start_s3()
            self.stack.start_spark()
            os.environ |= self.stack.process_environ()
            self.stack.start_airflow()
            self.stack.wait_for_spark()
            self.rest = self.stack.rest()
        except BaseException:
            self.stack.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.stop()

    def cpu_s(self) -> float:
        """CPU seconds of all processes so far, those of tasks that have ended included."""
        return sum(self.cpu_by_service().values())

    def cpu_by_service(self) -> dict[str, float]:
        """CPU seconds of each service; the scheduler's workers, with the tasks they ran, apart from itself."""
        used = {}
        for name, started in self.stack.started.items():
            process = started.process()
            if process is None:
                continue
            own, below = _used_s(process), sum(map(_used_with_ended_s, process.children(recursive=True)))
            if name == "scheduler":
                used[name], used["tasks"] = own, below
            else:
                used[name] = own + below
        return used

    def wait_for_dags(self, dag_ids: Iterable[str]) -> None:
        """Wait until Airflow lists DAGs, and unpause those that are. Raises TimeoutError with what was not imported."""
        wanted, deadline = set(dag_ids), time.monotonic() + LISTED_S
        while missing := wanted - (listed := self.rest.dags()).keys():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Airflow does not list {sorted(missing)}: {self.rest.import_errors()}")
            time.sleep(0.5)
        for dag_id in sorted(wanted):
            if listed[dag_id]["is_paused"]:
                self.rest.set_paused(dag_id, False)

    def run(self, dag_id: str) -> dict[str, Any]:
        """Trigger one run and wait for its end. Returns its seconds, and what each of its tasks took.

        Raises: RuntimeError: it failed; with the end of the log of a task that did.
        """
        run_id = self.rest.trigger(dag_id)
        state = self.rest.wait(dag_id, run_id, timeout_s=RUN_S, interval_s=0.25)
        tasks = self.rest.tasks(dag_id, run_id)
        if state != "success":
            raise RuntimeError(self._why(dag_id, run_id, tasks))
        run = self.rest.run(dag_id, run_id)
        queued, ended = moment(run["queued_at"]), moment(run["end_date"])
        return {"run_id": run_id, "wall_s": ended - queued, "tasks": self._tasks(run_id, tasks, queued)}

    def _tasks(self, run_id: str, tasks: list[dict[str, Any]], queued: float) -> list[dict[str, Any]]:
        """The tasks that ran, by their start: when they were queued and began, what they took, what they imported."""
        said = {(line["task_id"], line["map_index"]): line for line in self.lines() if line["run_id"] == run_id}
        ran = [task for task in tasks if task["state"] == "success"]
        found = []
        for task in sorted(ran, key=lambda task: str(task["start_date"])):
            line = said.get((task["task_id"], task["map_index"]), {})
            start = moment(task["start_date"])
            found.append(
                {
                    "task": task["task_id"],
                    "map_index": task["map_index"],
                    "queued_s": moment(task["queued_when"]) - queued,
                    "started_s": start - queued,
                    "duration_s": float(task["duration"]),
                    "cpu_s": line.get("cpu_s"),
                    "imported": line.get("modules"),
                    "packages": line.get("imported"),
                    "requests": line.get("requests"),
                }
            )
        return found

    def lines(self) -> list[dict[str, Any]]:
        """Output of the tasks of all runs so far."""
        text = self._lines.read_text(encoding="utf-8") if self._lines.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def _why(self, dag_id: str, run_id: str, tasks: list[dict[str, Any]]) -> str:
        failed = [task for task in tasks if task["state"] == "failed"]
        if not failed:
            return f"{dag_id} {run_id} failed without a failed task"
        task = failed[0]
        text = self.rest.log(dag_id, run_id, task["task_id"], max(1, task["try_number"]), task["map_index"])
        return f"{dag_id} {run_id}: {task['task_id']} failed:\n{text[-3000:]}"


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _used_with_ended_s(process: psutil.Process) -> float:
    """Of a process and of its children that have ended; 0 when it has ended itself."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def moment(text: str) -> float:
    """Return a moment that Airflow tells, in seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
