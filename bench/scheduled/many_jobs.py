"""Fifty jobs that are due every minute, compared with fifty DAGs of six empty tasks: CPU time and delay of runs.

What is measured is bounded in time. Jobs without new input end after their first task, as most do in most minutes.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.scheduled.instance import HERE, BenchAirflow, Files, moment
from scripts.processes import python

JOBS = 50
CRON = "* * * * *"
SETTINGS: dict[str, object] = {"parallelism": 8, "dags_are_paused_at_creation": False}
"""A DAG runs as soon as it is unpaused, so unpausing them one after the other waits for the runs of the first ones."""

EMPTIES, IDLE, BUSY = "six empty tasks", "jobs without new input", "jobs with new input"
KINDS = (EMPTIES, IDLE, BUSY)

_PARSE = """
import json, os, runpy, sys, time
import airflow.dag_processing.dagbag, airflow.sdk
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager

def parsed(dag_id=None):
    started = time.process_time()
    with _airflow_parsing_context_manager(dag_id=dag_id, task_id=None if dag_id is None else "trigger_checkpoint"):
        found = runpy.run_path(sys.argv[1])
    return time.process_time() - started

print(json.dumps({"first_s": parsed(), "again_s": parsed(), "task_s": parsed("job_07__epoch")}))
"""


def measure_many_jobs(minutes: int, folder: Path, say: Say) -> dict[str, Any]:
    """Let each kind run for so many minutes. Returns the record."""
    return {
        "jobs": JOBS,
        "minutes": minutes,
        "kinds": {kind: _measure(kind, minutes, folder / kind.replace(" ", "-"), say) for kind in KINDS},
    }


def _measure(kind: str, minutes: int, folder: Path, say: Say) -> dict[str, Any]:
    work = folder / "work"
    names = [f"job_{number:02d}" for number in range(JOBS)]
    specs = {} if kind == EMPTIES else {f"{name}.yaml": _spec(name, work) for name in names}
    empty = (HERE / "empty_dags.py").read_text(encoding="utf-8")
    files = Files(specs=specs, dags={"empty_dags.py": empty} if kind == EMPTIES else {})
    environ = {"MILEPOST_BENCH_EMPTIES": str(JOBS), "MILEPOST_BENCH_CRON": CRON}
    with BenchAirflow(folder, files, environ, {"core": SETTINGS}) as airflow:
        for name in names:
            (work / name / "landing").mkdir(parents=True)
        dag_ids = [f"empty_{n:02d}" for n in range(JOBS)] if kind == EMPTIES else [f"{name}__epoch" for name in names]
        airflow.wait_for_dags(dag_ids)
        parse = {} if kind == EMPTIES else _parse(airflow)
        others, before, started = OthersMeter(), airflow.cpu_by_service(), time.time()
        for minute in range(minutes):
            if kind == BUSY:
                for name in names:
                    (work / name / "landing" / f"{minute}.csv").write_text(f"k,v\n{minute},1\n", encoding="utf-8")
            time.sleep(max(0.0, started + 60 * (minute + 1) - time.time()))
            say(f"many jobs: {kind}: minute {minute + 1} of {minutes}")
        after, took_s = airflow.cpu_by_service(), time.time() - started
        busy = others.cores()
        # An unpaused DAG begins with a run for the minute before: that one is no part of the measure.
        within = (started, started + 60 * minutes)
        every = [run for dag_id in dag_ids for run in airflow.rest.runs(dag_id)]
        runs = [run for run in every if within[0] <= moment(run["run_after"]) < within[1]]
    late = sorted(moment(run["start_date"]) - moment(run["run_after"]) for run in runs if run["start_date"])
    ended = [run for run in runs if run["state"] == "success"]
    return {
        "cores": {name: (after[name] - before[name]) / took_s for name in after},
        "late_s": {"median": median(late), "p95": quantiles(late, n=20)[-1]} if len(late) > 1 else {},
        "due": JOBS * minutes,
        "succeeded": len(ended),
        "failed": sum(run["state"] == "failed" for run in runs),
        "parse": parse,
        "other_busy_cores": busy,
    }


def _parse(airflow: BenchAirflow) -> dict[str, float]:
    """CPU seconds of the DAG file: in a new process that knows the specs, once more, and for the sake of one task."""
    command = [python(), "-c", _PARSE, str(airflow.stack.dags / "jobs.py")]
    ran = subprocess.run(
        command, check=True, env=airflow.stack.process_environ(), capture_output=True, text=True, cwd=airflow.stack.home
    )
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _spec(name: str, work: Path) -> str:
    home = work / name
    document = {
        "name": name,
        "storage": str(home / "storage"),
        "sources": {
            "rows": {
                "format": "csv",
                "path": f"{home}/landing/*.csv",
                "settle": "0s",
                "schema": {"k": "int64", "v": "int64"},
            }
        },
        "operators": [
            {"uid": "sums", "kind": "aggregate", "inputs": ["rows"], "key": ["k"], "aggregates": {"v": "sum(v)"}}
        ],
        "sinks": [{"name": "sums", "input": "sums", "format": "parquet", "path": f"{home}/lake", "mode": "upsert"}],
        "spark": {"master": "local[2]", "remote": "${env:MILEPOST_SPARK_REMOTE:-}", "parallelism": 1},
        "schedule": {"cron": CRON},
    }
    return json.dumps(document, indent=1) + "\n"
