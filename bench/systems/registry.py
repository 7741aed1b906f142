"""The systems by name: what each is, which environment it runs in, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.systems.contract import System
from bench.workloads import Query, Workload

MAIN, TOOLS, FLINK = ".venv", ".venv-bench", ".venv-flink"


@dataclass(frozen=True, slots=True)
class Entry:
    """One system.

    Attributes:
        says: for people. environment: folder of the Python that runs it.
        make: the system, of its options; called in its own process only.
        fresh: a new process per epoch. bare: one of the limits.
    """

    says: str
    environment: str
    make: Callable[..., System]
    fresh: bool = False
    bare: bool = False

    def runs(self, workload: Workload) -> bool:
        """Whether it is built for the workload."""
        return not self.bare or (workload.query is Query.AGGREGATE and workload.key == ("auction",))


def _milepost(**options: Any) -> System:
    from bench.systems.milepost import Milepost

    return Milepost(**options)


def _streaming(store: str, **options: bool) -> System:
    from bench.systems.streaming import Streaming

    return Streaming(store, **options)


def _flink(backend: str) -> System:
    from bench.systems.flink import Flink

    return Flink(backend)


def _limit(engine: str) -> System:
    from bench.systems.limit import Limit

    return Limit(engine)


SYSTEMS = {
    "milepost": Entry("Milepost, long-running session", MAIN, _milepost),
    "spark-hdfs": Entry("Structured Streaming, one long query, HDFS state store", MAIN, partial(_streaming, "hdfs")),
    "spark-rocksdb": Entry(
        "Structured Streaming, one long query, RocksDB with changelog", MAIN, partial(_streaming, "rocksdb")
    ),
    "flink-hashmap": Entry("PyFlink SQL, hashmap state", FLINK, partial(_flink, "hashmap")),
    "flink-rocksdb": Entry("PyFlink SQL, RocksDB, incremental checkpoints", FLINK, partial(_flink, "rocksdb")),
    "limit-numpy": Entry("bare limit, grouped by NumPy", MAIN, partial(_limit, "numpy"), bare=True),
    "limit-duckdb": Entry("bare limit, grouped by DuckDB", MAIN, partial(_limit, "duckdb"), bare=True),
    "limit-polars": Entry("bare limit, grouped by Polars", TOOLS, partial(_limit, "polars"), bare=True),
    "milepost-process": Entry("Milepost, new process per epoch", MAIN, partial(_milepost, fresh=True), fresh=True),
    "milepost-served": Entry(
        "Milepost, new process per epoch on a running Spark Connect server",
        MAIN,
        partial(_milepost, fresh=True, served=True),
        fresh=True,
    ),
    "spark-hdfs-served": Entry(
        "availableNow, new process per epoch on a running Spark Connect server, HDFS state store",
        MAIN,
        partial(_streaming, "hdfs", fresh=True, served=True),
        fresh=True,
    ),
    "spark-hdfs-process": Entry(
        "availableNow, new process per epoch, HDFS state store",
        MAIN,
        partial(_streaming, "hdfs", fresh=True),
        fresh=True,
    ),
    "spark-rocksdb-process": Entry(
        "availableNow, new process per epoch, RocksDB with changelog",
        MAIN,
        partial(_streaming, "rocksdb", fresh=True),
        fresh=True,
    ),
}


def entry_of(name: str) -> Entry:
    """The entry of a system's name, which may carry options: `milepost:parallelism=4`. Raises KeyError."""
    return SYSTEMS[name.partition(":")[0]]


def make_system(name: str) -> System:
    """Make the system of a name with options. Raises KeyError, or TypeError for an option that it does not have."""
    _, _, words = name.partition(":")
    options = dict(word.split("=", 1) for word in words.split(",")) if words else {}
    return entry_of(name).make(**options)
