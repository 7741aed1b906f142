"""AIRFLOW.md: cost of an epoch in Airflow by task, against what a team would write instead, and with many jobs."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.scheduled.many_jobs import BUSY, EMPTIES, IDLE
from bench.scheduled.small_epochs import ratio_of, tasks_of
from bench.scheduled.whole_queries import OURS, OWN, SERVED, SIZES, ratios_of

RATIO, FASTER = 2.5, 3.0
"""Targets: an epoch over six empty tasks at most; ours against `availableNow` at least."""

QUIET_CORES = 1.0
"""CPU time that others may use for times to be valid, including the JVMs of ended tasks."""


def render_airflow(document: dict[str, Any]) -> str:
    """Return the report of what was measured; parts that were not are left out."""
    parts = document["parts"]
    lines = [
        "# The way through Airflow",
        "",
        f"At commit {document['commit']}. LocalExecutor, SQLite, S3 and Spark Connect as in the demo, on one machine.",
        "What is compared ran in turns on one instance. CPU seconds are those of the task's own process.",
        "",
    ]
    if "small" in parts:
        lines += _small(parts["small"])
    if "queries" in parts:
        lines += _queries(parts["queries"])
        lines += _bound(parts)
    if "many" in parts:
        lines += _many(parts["many"])
    return "\n".join(lines).rstrip() + "\n"


def _small(record: dict[str, Any]) -> Iterator[str]:
    ratio = ratio_of(record)
    epoch, empty = (median(run["wall_s"] for run in record[kind]) for kind in ("epochs", "empties"))
    cpu_s = {kind: median(_cpu_s(run) for run in record[kind]) for kind in ("epochs", "empties")}
    yield from (
        "## An epoch of 3,400 rows, and six tasks that return at once",
        "",
        f"The demo's job (three Delta tables, a gate) and a chain of six empty tasks, {len(record['epochs'])} turns.",
        _others(record),
        "",
        "| | figure | target | |",
        "|---|---:|---:|---|",
        f"| an epoch over six empty tasks, median of the turns | {ratio:.2f} × | {RATIO} × | {_met(ratio <= RATIO)} |",
        f"| an epoch, from its trigger to the run's end | {epoch:.2f} s | | |",
        f"| six empty tasks | {empty:.2f} s | | |",
        f"| CPU of an epoch's tasks | {cpu_s['epochs']:.2f} s | | |",
        f"| CPU of the empty tasks | {cpu_s['empties']:.2f} s | | |",
        "",
        "| task | queued at s | started at s | took s | CPU s | modules imported | requests |",
        "|---|---:|---:|---:|---:|---:|---:|",
    )
    for kind in ("epochs", "empties"):
        for name, task in tasks_of(record[kind]).items():
            requests = f"{task['requests']:.0f}" if "requests" in task else "–"
            yield (
                f"| {name} | {task['queued_s']:.2f} | {task['started_s']:.2f} | {task['duration_s']:.2f} "
                f"| {task['cpu_s']:.2f} | {task['imported']:.0f} | {requests} |"
            )
    yield ""


def _queries(record: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## The same job as one task that runs `availableNow`",
        "",
        "Count, sum and maximum by key, as many keys as rows; two epochs, the first with every key, are not counted.",
        "Ours runs through its DAG on the Spark Connect server. Theirs is one task, with a Spark of its own or on that",
        f"server. From the trigger of a run to its end; {record['rounds']} turns. All tables are DuckDB's answer.",
        _others(record),
        "",
        "| rows | Milepost s | a Spark of its own s | on the server s | the better one over ours | target | |",
        "|---|---:|---:|---:|---:|---:|---|",
    )
    ratios = ratios_of(record)
    for size in SIZES:
        walls = [median(run["wall_s"] for run in record["runs"][f"{system}_{size}"]) for system in (OURS, OWN, SERVED)]
        cells = " | ".join(f"{wall:.2f}" for wall in walls)
        yield f"| {size} | {cells} | {ratios[size]:.2f} × | {FASTER} × | {_met(ratios[size] >= FASTER)} |"
    yield ""


def _bound(parts: dict[str, Any]) -> Iterator[str]:
    """Say what no epoch of six tasks can beat, where a target is missed and that was measured too."""
    missed = [size for size, ratio in ratios_of(parts["queries"]).items() if ratio < FASTER]
    if not missed or "small" not in parts:
        return
    empty_s = median(run["wall_s"] for run in parts["small"]["empties"])
    for size in missed:
        runs = parts["queries"]["runs"]
        theirs_s = min(median(run["wall_s"] for run in runs[f"{system}_{size}"]) for system in (OWN, SERVED))
        yield (
            f"{size}: an epoch is a chain of six tasks. Six that return at once take {empty_s:.2f} s here, so that no "
            f"such chain is more than {theirs_s / empty_s:.1f} × faster than theirs."
        )
    yield ""


def _many(record: dict[str, Any]) -> Iterator[str]:
    services = ("scheduler", "tasks", "api-server", "dag-processor", "spark-connect")
    kinds = record["kinds"]
    yield from (
        f"## {record['jobs']} jobs that are due every minute",
        "",
        f"{record['minutes']} minutes each. Cores that each service kept busy; SQLite works within the scheduler and",
        "the API server. *Late* is from the minute to the start of the run, of those that have begun.",
        "",
        f"| | {' | '.join(services)} | late, median s | late, 95 % s | runs due | done | failed |",
        f"|---|{'---:|' * (len(services) + 5)}",
    )
    for kind in (EMPTIES, IDLE, BUSY):
        found = kinds[kind]
        cores = " | ".join(f"{found['cores'].get(name, 0.0):.2f}" for name in services)
        late = found["late_s"]
        yield (
            f"| {kind} | {cores} | {late.get('median', float('nan')):.1f} | {late.get('p95', float('nan')):.1f} "
            f"| {found['due']} | {found['succeeded']} | {found['failed']} |"
        )
    yield ""
    parse = kinds[IDLE]["parse"]
    jobs = record["jobs"]
    yield from (
        f"| CPU ms of the DAG file of {jobs} jobs | in all | per job |",
        "|---|---:|---:|",
        f"| the first time in a process | {1000 * parse['first_s']:.0f} | {1000 * parse['first_s'] / jobs:.1f} |",
        f"| again | {1000 * parse['again_s']:.0f} | {1000 * parse['again_s'] / jobs:.1f} |",
        f"| for a task of one job | {1000 * parse['task_s']:.0f} | {1000 * parse['task_s'] / jobs:.1f} |",
        "",
    )


def _cpu_s(run: dict[str, Any]) -> float:
    return sum(task["cpu_s"] or 0.0 for task in run["tasks"])


def _others(record: dict[str, Any]) -> str:
    busy = record["other_busy_cores"]
    smoke = "" if busy <= QUIET_CORES else " **A smoke run: its times mean little.**"
    return f"Other processes, and JVMs of tasks that have ended, kept {busy:.2f} cores busy.{smoke}"


def _met(met: bool) -> str:
    return "met" if met else "**missed**"
