"""A job of an end-to-end test: its spec in an Airflow's config, its folder, and what its runs and its table say."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import psutil

from milepost.airflow.operators.dag_ids import epoch_dag_id
from milepost.jobmaster import JobMaster
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from scripts.airflow_rest import AirflowRest

TASKS = ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint", "notify_complete", "subsume")

CARRIERS = """
name: {name}
storage: {storage}
sources:
  flights:
    format: csv
    path: {landing}/*.csv
    settle: 0s
    schema: {{carrier: string, delay: int64}}
    limits_per_epoch: {{max_files: 1}}
operators:
  - {{uid: carriers, kind: aggregate, inputs: [flights], key: [carrier],
     aggregates: {{flights: count(*), delay_sum: sum(delay)}}}}
sinks:
  - {{name: carriers, input: carriers, format: parquet, path: {lake}, mode: upsert}}
checkpointing: {{timeout: 20m, retained: {{last: {retained}}}, tolerable_failures: {tolerable}}}
spark: {{{spark}, parallelism: 1}}
airflow: {{retries: {retries}, pool: {pool}}}
"""
"""A job spec; further sections go below it. One subtask: what many of them do is tested without a scheduler."""

ON_THE_SERVER = 'remote: "${env:MILEPOST_SPARK_REMOTE:-}"'
"""Where a job's epochs run unless it says otherwise: on the one server of the instance, which costs no start."""

OF_ITS_OWN = 'master: "local[2]"'
"""A Spark in the process of the task."""

GATE = """
quality:
  - sink: carriers
    expectations:
      - {type: expect_column_values_to_be_between, column: delay_sum, max_value: 1000000, severity: critical}
"""


class RunningAirflow(Protocol):
    """What a job needs of the Airflow that runs it; `AirflowInstance` says what each does."""

    config: Path

    @property
    def rest(self) -> AirflowRest: ...

    def wait(self, dag_id: str, run_id: str) -> str: ...

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = ...) -> Any: ...

    def explain(self, dag_id: str, run_id: str) -> None: ...

    def explained(self, dag_id: str, run_id: str) -> AbstractContextManager[None]: ...


class E2eJob:
    """One job of the instance: a folder with its landing, storage and lake, and its spec in Airflow's config."""

    def __init__(self, airflow: RunningAirflow, name: str, folder: Path, spec: str) -> None:
        self.airflow = airflow
        self.name = name
        self.folder = folder
        self.spec_path = airflow.config / f"{name}.yaml"
        self.spec_path.write_text(spec)
        self.dag_id = epoch_dag_id(name)

    @property
    def loaded(self) -> LoadedJob:
        return load_job(self.spec_path)

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded)

    def land(self, name: str, rows: dict[str, int]) -> None:
        """Land one object: a row per carrier with its delay."""
        landing = self.folder / "landing"
        landing.mkdir(parents=True, exist_ok=True)
        body = "carrier,delay\n" + "".join(f"{carrier},{delay}\n" for carrier, delay in rows.items())
        (landing / f"{name}.csv").write_text(body)

    def unpause(self) -> None:
        self.airflow.rest.set_paused(self.dag_id, False)

    def trigger(self, **conf: bool) -> str:
        return self.airflow.rest.trigger(self.dag_id, dict(conf))

    def run(self, **conf: bool) -> tuple[str, str]:
        """Trigger a run and wait for its end. Returns its run id and state."""
        run_id = self.trigger(**conf)
        return run_id, self.wait(run_id)

    def wait(self, run_id: str) -> str:
        return self.airflow.wait(self.dag_id, run_id)

    def states(self, run_id: str) -> dict[str, str | None]:
        return self.airflow.rest.states(self.dag_id, run_id)

    def wait_for_task(self, run_id: str, task_id: str, *states: str) -> str:
        """Wait until a task has one of the states; return it."""

        def found() -> str | None:
            own = [state for name, state in self.states(run_id).items() if name.split("[")[0] == task_id]
            return next((state for state in own if state in states), None)

        with self.airflow.explained(self.dag_id, run_id):
            return str(self.airflow.until(found, f"{self.dag_id} {run_id}: {task_id} in {states}"))

    def log(self, run_id: str, task_id: str, try_number: int | None = None, map_index: int = -1) -> str:
        """Of the newest try, unless another is requested: a loaded machine may lose one, and Airflow begins another."""
        number = try_number or self.tries(run_id, task_id)
        return self.airflow.rest.log(self.dag_id, run_id, task_id, number, map_index)

    def tries(self, run_id: str, task_id: str) -> int:
        """How often a task was started, clears included."""
        return max(
            task["try_number"] for task in self.airflow.rest.tasks(self.dag_id, run_id) if task["task_id"] == task_id
        )

    def left(self, run_id: str, task_id: str) -> dict[str, Any]:
        """Return what a task left to the next ones."""
        path = f"/dags/{self.dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return dict(self.airflow.rest.request("GET", path, params={"deserialize": True})["value"])

    def token(self, run_id: str, task_id: str) -> int:
        """The token that a task of a run acts for: that of the trigger, and from `run_epoch` on that of its try."""
        own = "trigger_checkpoint" if task_id in ("trigger_checkpoint", "run_epoch") else "run_epoch"
        return int(self.left(run_id, own)["token"])

    def process(self, run_id: str, task_id: str) -> psutil.Process:
        """The process of a running task. Its parent is the supervisor that Airflow gave it."""
        found = self.airflow.rest.tasks(self.dag_id, run_id)
        (pid,) = [task["pid"] for task in found if task["task_id"] == task_id]
        assert pid is not None, f"{task_id} of {run_id} does not run; psutil would take this process for it"
        return psutil.Process(pid)

    def give_up(self, run_id: str) -> None:
        """Mark a run as failed, as a person does who sees it hang: none of its tasks will run after that."""
        self.airflow.rest.request("PATCH", f"/dags/{self.dag_id}/dagRuns/{run_id}", json={"state": "failed"})

    def clear(self, run_id: str, task_id: str) -> None:
        """Clear a task and what follows, and wait until Airflow has the run going again."""
        tries = self.tries(run_id, task_id)
        self.airflow.rest.clear(self.dag_id, run_id, task_id)
        self.airflow.until(lambda: self.tries(run_id, task_id) > tries, f"{task_id} of {run_id} starts again")

    def finished_runs(self, count: int) -> list[dict[str, Any]] | None:
        """The runs, oldest first, once that many are finished."""
        runs = self.airflow.rest.runs(self.dag_id)[::-1]
        done = [run for run in runs if run["state"] in ("success", "failed")]
        if len(done) < count:
            return None
        for run in done:
            if run["state"] == "failed":
                self.airflow.explain(self.dag_id, run["dag_run_id"])
        return done

    def published_checkpoint(self) -> int | None:
        """The checkpoint that the sink's table shows; None while nothing is published."""
        return JobContext(self.loaded).sink("carriers").position().checkpoint_id or None

    def table(self) -> dict[str, tuple[int, int]]:
        """The published table: carrier -> (flights, delay_sum)."""
        rows = self.master.reports.read("carriers").to_pylist()
        return {row["carrier"]: (row["flights"], row["delay_sum"]) for row in rows}

    def statuses(self) -> list[tuple[int, str]]:
        """Checkpoint id and status, oldest first."""
        found = self.master.reports.list_checkpoints()
        return sorted((checkpoint.checkpoint_id, checkpoint.status) for checkpoint in found)


def has_line(log: str, *values: object) -> bool:
    """Return whether a line of a log has all of these values as words of it."""
    words = [re.compile(rf"(?<![\w-]){re.escape(str(value))}(?![\w-])") for value in values]
    return any(all(word.search(line) for word in words) for line in log.splitlines())
