"""Open tables side by side: the same epochs of upserts, as ours and as teams write them today.

Each part is one format's rivals and ours in turns, or ours alone in several formats. `tables_report.py` renders it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from bench.growth import follow_checkpoints
from bench.parts import Part, present
from bench.reports.statistics import Spread
from bench.reports.targets import Measure, Record, Target, against, faster
from bench.rounds import Plan, Say, run_workload
from bench.workloads.shapes import Skew
from bench.workloads.workloads import WORKLOADS, Workload
from scripts.spark import spark_readers

OURS = ("milepost", "milepost-delta", "milepost-iceberg", "milepost-changelog")
DELTA = ("milepost-delta", "spark-delta", "spark-delta-vectors", "delta-rs")
ICEBERG = ("milepost-iceberg", "spark-iceberg", "spark-iceberg-deletes")
DUCKDB = ("duckdb-merge", "duckdb-delete-insert", "duckdb-parquet")
AGGREGATING = ("milepost-delta", "milepost-iceberg", "spark-delta:aggregates=yes", "spark-iceberg:aggregates=yes")
APPENDED = ("milepost", "milepost-delta", "milepost-iceberg")
COMMITS = 300


def _keyed(keys: int, skew: Skew) -> Workload:
    size = f"{keys // 1_000_000}m"
    says = {Skew.UNIFORM: "each as often", Skew.ZIPF: "Zipf-skewed", Skew.CLUSTERED: "a fiftieth of them per epoch"}
    workload = WORKLOADS[f"keyed-{size}"]
    return replace(
        workload,
        name=f"{skew.value}-{size}",
        says=f"count, sum, max by int64 key, {keys // 1_000_000} M keys, {says[skew]}",
        shape=replace(workload.shape, skew=skew),
    )


TABLE_WORKLOADS = {
    workload.name: workload
    for workload in (
        *(_keyed(keys, skew) for keys in (1_000_000, 5_000_000) for skew in Skew),
        WORKLOADS["window"],
        WORKLOADS["deduplicate"],
    )
}


def table_parts(mode: str) -> list[Part]:
    """The parts of `quick` (below 6 minutes on two calm cores) or `full` (below 25), in order. Raises KeyError."""
    return {"quick": _quick, "full": _full}[mode]()


def _quick() -> list[Part]:
    plan = Plan(warmups=2, rounds=2)
    return [
        _part("delta", "uniform-1m", (*DELTA, *DUCKDB), plan),
        _part("iceberg", "uniform-1m", ICEBERG, plan),
        *(_part("ours", f"{skew.value}-1m", OURS, plan) for skew in Skew),
        _part("append", "deduplicate", APPENDED[:2], Plan(3, 3)),
        *_commits(60),
    ]


def _full() -> list[Part]:
    plan, large = Plan(warmups=3, rounds=5), Plan(warmups=2, rounds=3)
    return [
        _part("delta", "uniform-1m", (*DELTA, *DUCKDB), plan),
        _part("iceberg", "uniform-1m", ICEBERG, plan),
        _part("aggregating", "uniform-1m", AGGREGATING, large),
        _part("delta", "uniform-5m", (*DELTA, *DUCKDB), large),
        _part("iceberg", "uniform-5m", ICEBERG, large),
        _part("delta", "zipf-1m", (*DELTA, *DUCKDB), large),
        _part("delta", "clustered-1m", (*DELTA, *DUCKDB), large),
        *(_part("ours", f"{skew.value}-1m", OURS, plan) for skew in Skew),
        *(_part("ours", f"{skew.value}-5m", OURS, large) for skew in Skew),
        _part("append", "window", APPENDED, plan),
        _part("append", "deduplicate", APPENDED, plan),
        *_commits(COMMITS),
    ]


def _part(group: str, name: str, systems: Sequence[str], plan: Plan) -> Part:
    workload = TABLE_WORKLOADS[name]

    def measure(folder: Path, say: Say) -> Record:
        there = [one for one in present(systems) if not (one.startswith("spark-") and lacking_here())]
        return run_workload(workload, there, plan, folder, say)

    return Part(f"{group}/{name}", measure)


def lacking_here() -> dict[str, str]:
    """The environment of Spark with the formats' jars, where it is not there, and why."""
    why = spark_readers.UNREACHED.reason() or "it is not built; `python -m scripts.spark.spark_readers` builds it"
    return {} if spark_readers.jars_are_there() else {spark_readers.SPARK_READERS.folder: why}


def _commits(epochs: int) -> list[Part]:
    """Many commits in a row, of few rows: what is left is what a commit itself costs."""
    keyed = WORKLOADS["keyed-10k"]
    small = replace(keyed, name="commits", shape=replace(keyed.shape, rows=20_000, files=1))
    return [
        Part(
            f"commits/{system.removeprefix('milepost-')}",
            lambda folder, say, system=system: follow_checkpoints(small, system, epochs, folder, say),
        )
        for system in ("milepost-delta", "milepost-iceberg")
    ]


def share(epochs: Sequence[dict[str, Any]], part: str) -> Sequence[dict[str, Any]]:
    """Some of many epochs: `early`, their second sixth, once processes are warm; `late`, their last one."""
    sixth = len(epochs) // 6
    return epochs[sixth : 2 * sixth] if part == "early" else epochs[-sixth:]


def _grown(figure: Callable[[dict[str, Any]], float]) -> Measure:
    """The mean of late commits over that of early ones: a mean, because some of them do work for those before."""

    def measure(record: Record) -> Spread:
        (system,) = record["systems"].values()
        early, late = (mean(figure(one) for one in share(system["epochs"], part)) for part in ("early", "late"))
        return Spread.of([late / early])

    return measure


def _all() -> list[Target]:
    found = []
    for format in ("Delta", "Iceberg"):
        name = format.lower()
        better = faster("spark-", f"milepost-{name}")
        found.append(Target(f"{format}, 1 M keys: Spark's better `MERGE INTO`", f"{name}/uniform-1m", 5, better))
        whole = faster(f"spark-{name}", f"milepost-{name}")
        what = f"{format}, 1 M keys: Spark's `MERGE INTO` that groups"
        found.append(Target(what, "aggregating/uniform-1m", 5, whole))
    for says, name in (("windows", "window"), ("first rows", "deduplicate")):
        what = f"{says} appended on Delta, against our own table"
        found.append(Target(what, f"append/{name}", 1.4, against("milepost-delta", "milepost"), at_most=True))
    for format in ("Delta", "Iceberg"):
        part = f"commits/{format.lower()}"
        for says, figure in (("time", _wall_s), ("bytes of log", _log_bytes), ("objects of log", _log_objects)):
            what = f"{format}, {says} per commit: the last ones against the first"
            found.append(Target(what, part, 1.1, _grown(figure), at_most=True))
    return found


def _wall_s(epoch: dict[str, Any]) -> float:
    return float(epoch["wall_s"])


def _log_bytes(epoch: dict[str, Any]) -> float:
    return float(epoch["figures"]["log_bytes"])


def _log_objects(epoch: dict[str, Any]) -> float:
    return float(epoch["figures"]["log_objects"])


TABLE_TARGETS = _all()
