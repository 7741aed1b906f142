"""Small epochs through Airflow, alternating with six empty tasks: Milepost's overhead over Airflow's own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.scheduled.instance import HERE, BenchAirflow, Files
from scripts.processes import ROOT, python

JOB = "flights"
EMPTY = "empty_00"
DAYS = 4
"""Of flights that land before each epoch, some 3,400 rows."""


def measure_small_epochs(rounds: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run the demo's job and the empty DAG in turns. Returns the record; the first turn is not counted.

    Raises: RuntimeError: a run failed.
    """
    files = Files(
        specs={f"{JOB}.yaml": (ROOT / "config" / f"{JOB}.yaml").read_text(encoding="utf-8")},
        dags={"empty_dags.py": (HERE / "empty_dags.py").read_text(encoding="utf-8")},
    )
    epochs, empties = list[dict[str, Any]](), list[dict[str, Any]]()
    with BenchAirflow(folder, files, {}, {}) as airflow:
        airflow.wait_for_dags([f"{JOB}__epoch", EMPTY])
        others = OthersMeter()
        for turn in range(rounds + 1):
            _land(airflow, turn)
            epoch, empty = airflow.run(f"{JOB}__epoch"), airflow.run(EMPTY)
            say(f"small epochs: turn {turn} of {rounds}: {epoch['wall_s']:.2f} s, empty {empty['wall_s']:.2f} s")
            if turn:
                epochs.append(epoch)
                empties.append(empty)
        busy = others.cores()
    return {"epochs": epochs, "empties": empties, "other_busy_cores": busy}


def _land(airflow: BenchAirflow, turn: int) -> None:
    first = turn * DAYS + 1
    lander = [python(), str(ROOT / "config" / "demo" / "land_flights.py"), "--root", "s3://landing"]
    subprocess.run(
        [*lander, "--endpoint", airflow.stack.s3_url, "--days", f"{first}-{first + DAYS - 1}"],
        check=True,
        env=airflow.stack.process_environ(),
        stdout=subprocess.DEVNULL,
    )


def ratio_of(record: dict[str, Any]) -> float:
    """The median over the turns of an epoch's time divided by that of the empty run in the same turn."""
    pairs = zip(record["epochs"], record["empties"], strict=True)
    return median(epoch["wall_s"] / empty["wall_s"] for epoch, empty in pairs)


def tasks_of(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each task the medians over the runs: when it began to wait, its wait, and what it took; mapped ones by one."""
    figures = ("queued_s", "started_s", "duration_s", "cpu_s", "imported", "requests")
    found: dict[str, dict[str, list[float]]] = {}
    for task in (task for run in runs for task in run["tasks"]):
        name = task["task"] if task["map_index"] < 0 else f"{task['task']}, each"
        of = found.setdefault(name, {figure: [] for figure in figures})
        for figure in figures:
            of[figure] += [] if task[figure] is None else [task[figure]]
    return {name: {figure: median(of[figure]) for figure in figures if of[figure]} for name, of in found.items()}
