"""The parts of a run: workloads, systems and further measurements.

Each part is measured and stored by itself, so that a long run can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.growth import follow_checkpoints, large_state
from bench.processes import python_of
from bench.rounds import Plan, Say, run_workload
from bench.systems.far_store import JARS, PINS, far_store
from bench.systems.registry import SYSTEMS
from bench.workloads.workloads import WORKLOADS, Workload
from scripts.spark.maven_jars import are_there

LONG = ("milepost", "spark-hdfs", "spark-rocksdb", "flink-hashmap", "flink-rocksdb")
LIMITS = ("limit-numpy", "limit-duckdb", "limit-polars")
FRESH = ("milepost-process", "milepost-served", "spark-hdfs-process", "spark-hdfs-served")
AGED = ("milepost-process", "milepost-served", "spark-hdfs-process")
GROWTH = ("milepost", "spark-hdfs")
FAR = ("milepost-far", "spark-hdfs-far")
EXECUTORS = ("milepost-executor", "milepost-executors")
STREAMING, FLINK = (("milepost", *(name for name in LONG if name.startswith(kind))) for kind in ("spark-", "flink-"))
KEYED = ("keyed-10k", "keyed-1m", "keyed-5m")
FUNCTION = "keyed-100k"
SQL = ("updates-join", "hot-key", *(name for name in WORKLOADS if name.startswith(("nexmark-", "tpch-"))))
LANGUAGE = tuple(name for name, one in WORKLOADS.items() if one.statement is not None and name not in SQL)
OTHERS = tuple(name for name in WORKLOADS if name not in (*KEYED, *LANGUAGE, *SQL, FUNCTION))
"""Workloads that are compared with Structured Streaming alone."""
AGED_EPOCHS = 45
MOST_KEYS = 100_000_000
"""Of one state, on a machine of 24 GB."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something to measure.

    Attributes:
        name: unique within a mode; `group/what`.
        measure: given a folder and where to say what is going on, returns a JSON-compatible record.
    """

    name: str
    measure: Callable[[Path, Say], dict[str, Any]]


MODES = ("quick", "full", "language", "sql")


def parts_of(mode: str) -> list[Part]:
    """The parts of `quick` (12 minutes on two calm cores), `full` (75), `language` (12) or `sql` (40), in order.

    Raises:
        KeyError: there is no such mode.
    """
    return {"quick": _quick, "full": _full, "language": _language, "sql": _sql}[mode]()


def present(systems: Sequence[str]) -> list[str]:
    """Those of the systems whose environment is built."""
    return [name for name in systems if python_of(name).exists()]


def _quick() -> list[Part]:
    """A figure for every target but those that need many cold starts: fewer systems, fewer rounds."""
    plan, rivals = Plan(warmups=2, rounds=2), ("milepost", "spark-hdfs", "flink-hashmap", "limit-polars")
    long = Plan(warmups=5, rounds=3)  # what is short is measured once its processes have seen some epochs
    large = Plan(warmups=2, rounds=1)
    parts = [
        _side_by_side("keyed-10k", rivals, long, probes=("empty",)),
        _side_by_side("keyed-1m", rivals, long),
        _side_by_side("keyed-5m", ("milepost", "spark-hdfs", "limit-polars"), large),
        _side_by_side("keyed-5m", ("milepost", "flink-hashmap"), large, group="flink"),
    ]
    parts += [_side_by_side(name, GROWTH, plan) for name in OTHERS]
    return [*parts, _process(WORKLOADS["keyed-1m"], FRESH, Plan(1, 1)), _large_state(1, 2), _memory(Plan(1, 1))]


def _full() -> list[Part]:
    some, long, large = Plan(warmups=1, rounds=2), Plan(warmups=5, rounds=5), Plan(warmups=5, rounds=3)
    parts = [_side_by_side(name, (*LONG, *LIMITS), long, probes=("empty",)) for name in KEYED[:-1]]
    # With 5 M keys the rivals are measured in two parts: over ten epochs one of the eight systems side by side ended on
    # a machine of 24 GB, for want of memory it seems.
    parts.append(_side_by_side(KEYED[-1], (*STREAMING, *LIMITS), large, probes=("empty",)))
    parts.append(_side_by_side(KEYED[-1], FLINK, large, group="flink"))
    parts += [_side_by_side(name, STREAMING, Plan(2, 4)) for name in OTHERS]
    # Three epochs warm a server, ours and the other one's alike.
    parts.append(_process(WORKLOADS["keyed-1m"], (*FRESH, "spark-rocksdb-process"), Plan(3, 3)))
    # A server that runs one query after another keeps more of their states than it uses: with 4 GB it may run out.
    parts.append(_process(replace(WORKLOADS["keyed-5m"], memory="6g"), FRESH, Plan(3, 2)))
    parts += [_far("keyed-10k", Plan(3, 4)), _far("keyed-1m", Plan(3, 3))]
    parts += [_side_by_side(name, EXECUTORS, Plan(3, 3), group="executors") for name in KEYED[1:]]
    # A base is written anew every seven epochs; the first time in memory that its processes have not touched before.
    parts.append(_side_by_side("keyed-1m", GROWTH[:1], Plan(8, 14), group="rewrite"))
    parts += [_aged(), _large_state(2, 5), _memory(some)]
    keyed = WORKLOADS["keyed-1m"]
    for rows in (100_000, 3_000_000, 10_000_000):
        parts.append(_varied("rows", rows, replace(keyed, shape=replace(keyed.shape, rows=rows)), GROWTH, some))
    for keys, systems in ((100_000, GROWTH), (20_000_000, GROWTH[:1]), (MOST_KEYS, GROWTH[:1])):
        parts.append(_varied("keys", keys, replace(keyed, shape=replace(keyed.shape, keys=keys)), systems, some))
    for parallelism in (1, 4, 8):
        parts.append(_varied("parallelism", parallelism, keyed, (f"milepost:parallelism={parallelism}",), some))
    for files in (10, 100, 1_000, 10_000):
        systems = GROWTH if files < 10_000 else GROWTH[:1]
        parts.append(_varied("files", files, replace(keyed, shape=replace(keyed.shape, files=files)), systems, some))
    small, retained = replace(keyed, shape=replace(keyed.shape, keys=10_000, rows=100_000)), "milepost:retained=1000"
    parts.append(
        Part("checkpoints/retained", lambda folder, say: follow_checkpoints(small, retained, 200, folder, say))
    )
    return parts


def _side_by_side(
    name: str, systems: Sequence[str], plan: Plan, *, probes: Sequence[str] = (), group: str = "workload"
) -> Part:
    workload = WORKLOADS[name]
    wanted = [system for system in systems if SYSTEMS[system].runs(workload)]
    return Part(
        f"{group}/{name}",
        lambda folder, say: run_workload(workload, present(wanted), plan, folder, say, probes=probes),
    )


def _language() -> list[Part]:
    """Queries beyond one grouping, each on the systems that can express it, and a user's class next to an operator."""
    plan, parts = Plan(warmups=2, rounds=4), []
    for name in LANGUAGE:
        statement = WORKLOADS[name].statement
        spark = ("spark-hdfs",) if statement is not None and statement.spark is not None else ()
        ours = ("milepost", "milepost-plain") if WORKLOADS[name].static else ("milepost",)
        parts.append(_side_by_side(name, (*ours, *spark, "flink-hashmap"), plan, group="language"))
    return [*parts, _side_by_side(FUNCTION, ("milepost", "milepost-function"), plan, group="language")]


def _sql() -> list[Part]:
    """Joins over updates, and what is stated in SQL, beside PyFlink SQL."""
    return [_side_by_side(name, ("milepost", "flink-hashmap"), Plan(warmups=2, rounds=3), group="sql") for name in SQL]


def _process(workload: Workload, systems: Sequence[str], plan: Plan) -> Part:
    return Part(f"process/{workload.name}", lambda folder, say: run_workload(workload, systems, plan, folder, say))


def _aged() -> Part:
    """New processes after many of them; `availableNow` joins late, which spares it the growth of its own state."""
    plan = Plan(AGED_EPOCHS, 2, joins={name: AGED_EPOCHS - 2 for name in AGED if name.startswith("spark-")})
    keyed = WORKLOADS["keyed-1m"]
    return Part("aged/keyed-1m", lambda folder, say: run_workload(keyed, AGED, plan, folder, say))


def _large_state(warmups: int, rounds: int) -> Part:
    large, small = WORKLOADS["keyed-5m"], WORKLOADS["keyed-1m"]
    return Part("restore/keyed-5m", lambda folder, say: large_state(large, small, warmups, rounds, folder, say))


def _memory(plan: Plan) -> Part:
    systems = ("milepost", "milepost:worker_memory_mb=512")
    return Part("memory/512 MB", lambda folder, say: run_workload(WORKLOADS["keyed-5m"], systems, plan, folder, say))


def _far(name: str, plan: Plan) -> Part:
    """In a store that is far; Spark where the jars by which it gets there could be had."""
    systems = FAR if are_there(PINS, JARS) else FAR[:1]

    def measure(folder: Path, say: Say) -> dict[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        with far_store(folder):
            return run_workload(WORKLOADS[name], systems, plan, folder, say)

    return Part(f"far/{name}", measure)


def _varied(group: str, value: int, workload: Workload, systems: Sequence[str], plan: Plan) -> Part:
    """One point of a plot."""
    return Part(f"{group}/{value}", lambda folder, say: run_workload(workload, systems, plan, folder, say))
