"""The parts of a run: which workloads on which systems, and what else is asked.

Each part is measured and stored by itself, so that a long run can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.growth import follow_checkpoints, restore
from bench.processes import python_of
from bench.rounds import Plan, Say, run_workload
from bench.systems.registry import SYSTEMS
from bench.workloads import WORKLOADS, Workload

LONG = ("milepost", "spark-hdfs", "spark-rocksdb", "flink-hashmap", "flink-rocksdb")
LIMITS = ("limit-numpy", "limit-duckdb", "limit-polars")
FRESH = ("milepost-process", "milepost-served", "spark-hdfs-process", "spark-rocksdb-process", "spark-hdfs-served")
GROWTH = ("milepost", "spark-hdfs")
RESTORE_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Part:
    """Something to measure.

    Attributes:
        name: unique within a mode; `group/what`.
        measure: given a folder and where to say what is going on, returns a JSON-compatible record.
    """

    name: str
    measure: Callable[[Path, Say], dict[str, Any]]


def parts_of(mode: str) -> list[Part]:
    """The parts of `quick` (at most ten minutes) or `full`, in order. Raises KeyError for another mode."""
    return {"quick": _quick, "full": _full}[mode]()


def present(systems: Sequence[str]) -> list[str]:
    """Those of the systems whose environment is built."""
    return [name for name in systems if python_of(name).exists()]


def _quick() -> list[Part]:
    plan = Plan(warmups=2, rounds=3)
    systems = ("milepost", "spark-hdfs", "spark-rocksdb", "flink-hashmap", *LIMITS)
    return [
        _side_by_side("keyed-10k", systems, plan, probes=("empty",)),
        _side_by_side("keyed-1m", systems, plan),
        _side_by_side("window", systems, plan),
    ]


def _full() -> list[Part]:
    plan = Plan(warmups=4, rounds=9)
    some = Plan(warmups=2, rounds=3)
    keyed_5m = WORKLOADS["keyed-5m"]
    keyed = WORKLOADS["keyed-1m"]
    small = replace(keyed, shape=replace(keyed.shape, keys=10_000, rows=100_000))
    parts = [_side_by_side(name, (*LONG, *LIMITS), plan, probes=("empty",)) for name in WORKLOADS]
    parts += [_processes(name, Plan(warmups=2, rounds=5)) for name in ("keyed-1m", "keyed-5m")]
    parts.append(Part("restore/keyed-5m", lambda folder, say: restore(keyed_5m, RESTORE_ROUNDS, folder, say)))
    limited = ("milepost", "milepost:worker_memory_mb=512")
    parts.append(_varied("memory", "512 MB", keyed_5m, limited, some))
    for rows in (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000):
        shape = replace(keyed.shape, rows=rows)
        parts.append(_varied("rows", str(rows), replace(keyed, shape=shape), GROWTH, some))
    for keys in (10_000, 100_000, 1_000_000, 5_000_000, 20_000_000):
        shape = replace(keyed.shape, keys=keys)
        memory = "10g" if keys > 10_000_000 else keyed.memory
        parts.append(_varied("keys", str(keys), replace(keyed, shape=shape, memory=memory), GROWTH, some))
    for parallelism in (1, 2, 4, 8):
        parts.append(_varied("parallelism", str(parallelism), keyed, (f"milepost:parallelism={parallelism}",), some))
    for files in (10, 100, 1_000, 10_000):
        parts.append(
            _varied("files", str(files), replace(keyed, shape=replace(keyed.shape, files=files)), GROWTH, some)
        )
    parts.append(_followed("retained", small, "milepost:retained=1000", 200))
    parts.append(_followed("process", small, "milepost-process", 50))
    return parts


def _side_by_side(name: str, systems: Sequence[str], plan: Plan, probes: Sequence[str] = ()) -> Part:
    workload = WORKLOADS[name]
    wanted = [system for system in systems if SYSTEMS[system].runs(workload)]
    return Part(
        f"workload/{name}",
        lambda folder, say: run_workload(workload, present(wanted), plan, folder, say, probes=probes),
    )


def _processes(name: str, plan: Plan) -> Part:
    return Part(f"process/{name}", lambda folder, say: run_workload(WORKLOADS[name], present(FRESH), plan, folder, say))


def _followed(name: str, workload: Workload, system: str, epochs: int) -> Part:
    return Part(f"checkpoints/{name}", lambda folder, say: follow_checkpoints(workload, system, epochs, folder, say))


def _varied(group: str, value: str, workload: Workload, systems: Sequence[str], plan: Plan) -> Part:
    """One point of a plot."""
    return Part(f"{group}/{value}", lambda folder, say: run_workload(workload, systems, plan, folder, say))
