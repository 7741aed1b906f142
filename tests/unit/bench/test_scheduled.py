"""The part of the benchmark that goes through Airflow: what its report says of figures, and what its tasks tell."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from airflow.sdk import DAG

from bench.scheduled.instance import HERE
from bench.scheduled.many_jobs import KINDS
from bench.scheduled.report import render_airflow
from bench.scheduled.small_epochs import tasks_of
from bench.scheduled.whole_queries import SIZES, SYSTEMS


def run(wall_s: float, **tasks: float) -> dict[str, Any]:
    about = {"map_index": -1, "queued_s": 0.1, "started_s": 0.2, "cpu_s": 0.3, "imported": 7, "requests": None}
    return {"wall_s": wall_s, "tasks": [{"task": name, "duration_s": took, **about} for name, took in tasks.items()]}


def small(ratio: float) -> dict[str, Any]:
    """Turns of a machine that slows down: only those of one turn can be compared."""
    turns = (1.0, 4.0, 2.0)
    epochs = [run(ratio * wall, trigger_checkpoint=0.5) for wall in turns]
    return {"epochs": epochs, "empties": [run(wall, task_0=0.1) for wall in turns], "other_busy_cores": 0.0}


def queries(ratio: float) -> dict[str, Any]:
    walls = dict(zip(SYSTEMS, (2.0, 2.0 * ratio + 1, 2.0 * ratio), strict=True))
    runs = {f"{system}_{size}": [run(walls[system])] * 3 for system in SYSTEMS for size in SIZES}
    return {"runs": runs, "rounds": 3, "other_busy_cores": 1.5}


def many() -> dict[str, Any]:
    parse = {"first_s": 0.5, "again_s": 0.1, "task_s": 0.05}
    kind = {"cores": {"scheduler": 0.4}, "late_s": {"median": 3.0, "p95": 9.0}, "due": 150, "succeeded": 149}
    return {"jobs": 50, "minutes": 3, "kinds": {name: kind | {"failed": 0, "parse": parse} for name in KINDS}}


@pytest.mark.parametrize(("ratio", "says"), [(2.5, "met"), (2.6, "**missed**")])
def test_an_epoch_is_held_to_the_empty_run_of_its_own_turn(ratio: float, says: str) -> None:
    text = render_airflow({"commit": "abc", "parts": {"small": small(ratio)}})
    assert f"| {ratio:.2f} × | 2.5 × | {says} |" in text
    assert "availableNow" not in text


@pytest.mark.parametrize(("ratio", "met"), [(3.0, 2), (2.9, 0)])
def test_ours_is_held_to_the_better_of_their_ways(ratio: float, met: int) -> None:
    text = render_airflow({"commit": "abc", "parts": {"queries": queries(ratio)}})
    assert text.count("| met |") == met and text.count("**missed**") == 2 - met
    assert "**A smoke run" in text, "others kept a core and a half busy"


def test_many_jobs_are_a_line_per_kind_and_parsing_is_reported_per_job() -> None:
    text = render_airflow({"commit": "abc", "parts": {"many": many()}})
    assert all(f"| {kind} | 0.40 | 0.00 |" in text for kind in KINDS)
    assert "| the first time in a process | 500 | 10.0 |" in text


def test_mapped_tasks_are_one_line_and_unreported_figures_are_omitted() -> None:
    one, two = run(1.0, notify=0.2), run(1.0, notify=0.4)
    for each in (one, two):
        each["tasks"][0] |= {"map_index": 0, "cpu_s": None}
    assert tasks_of([one, two]) == {
        "notify, each": {"queued_s": 0.1, "started_s": 0.2, "duration_s": pytest.approx(0.3), "imported": 7}
    }


def test_the_empty_dags_are_chains_of_six_tasks_that_a_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_BENCH_EMPTIES", "2")
    monkeypatch.setenv("MILEPOST_BENCH_CRON", "* * * * *")
    found = runpy.run_path(str(HERE / "empty_dags.py"))
    dags = [value for name, value in found.items() if isinstance(value, DAG) and name.startswith("empty_")]
    assert [dag.dag_id for dag in dags] == ["empty_00", "empty_01"]
    for dag in dags:
        assert len(dag.tasks) == 6 and [len(task.upstream_task_ids) for task in dag.topological_sort()] == [0] + [1] * 5
        assert all(task.execute({}) is None for task in dag.tasks)
