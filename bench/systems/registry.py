"""The systems by name: what each is, which environment it runs in, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.systems.contract import System
from bench.workloads import Query, Workload

MAIN, TOOLS, FLINK = ".venv", ".venv-bench", ".venv-flink"


@dataclass(frozen=True, slots=True)
class Entry:
    """One system.

    Attributes:
        says: for people. environment: folder of the Python that runs it.
        make: the system; called in its own process only. fresh: a new process per epoch. bare: one of the limits.
    """

    says: str
    environment: str
    make: Callable[[], System]
    fresh: bool = False
    bare: bool = False

    def runs(self, workload: Workload) -> bool:
        """Whether it is built for the workload."""
        return not self.bare or (workload.query is Query.AGGREGATE and workload.key == ("auction",))


def _milepost(*, fresh: bool = False) -> System:
    from bench.systems.milepost import Milepost

    return Milepost(fresh=fresh)


def _streaming(store: str, *, fresh: bool = False) -> System:
    from bench.systems.streaming import Streaming

    return Streaming(store, fresh=fresh)


def _flink(backend: str) -> System:
    from bench.systems.flink import Flink

    return Flink(backend)


def _limit(engine: str) -> System:
    from bench.systems.limit import Limit

    return Limit(engine)


SYSTEMS = {
    "milepost": Entry("Milepost, long-running session", MAIN, _milepost),
    "spark-hdfs": Entry("Structured Streaming, one long query, HDFS state store", MAIN, lambda: _streaming("hdfs")),
    "spark-rocksdb": Entry(
        "Structured Streaming, one long query, RocksDB with changelog", MAIN, lambda: _streaming("rocksdb")
    ),
    "flink-hashmap": Entry("PyFlink SQL, hashmap state", FLINK, lambda: _flink("hashmap")),
    "flink-rocksdb": Entry("PyFlink SQL, RocksDB, incremental checkpoints", FLINK, lambda: _flink("rocksdb")),
    "limit-numpy": Entry("bare limit, grouped by NumPy", MAIN, lambda: _limit("numpy"), bare=True),
    "limit-duckdb": Entry("bare limit, grouped by DuckDB", MAIN, lambda: _limit("duckdb"), bare=True),
    "limit-polars": Entry("bare limit, grouped by Polars", TOOLS, lambda: _limit("polars"), bare=True),
    "milepost-process": Entry("Milepost, new process per epoch", MAIN, lambda: _milepost(fresh=True), fresh=True),
    "spark-hdfs-process": Entry(
        "availableNow, new process per epoch, HDFS state store",
        MAIN,
        lambda: _streaming("hdfs", fresh=True),
        fresh=True,
    ),
    "spark-rocksdb-process": Entry(
        "availableNow, new process per epoch, RocksDB with changelog",
        MAIN,
        lambda: _streaming("rocksdb", fresh=True),
        fresh=True,
    ),
}
