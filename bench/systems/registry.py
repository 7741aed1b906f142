"""The systems by name: what each is, which environment it runs in, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.systems.contract import System
from bench.workloads.workloads import Query, Workload

MAIN, TOOLS, FLINK, SPARK_TABLES = ".venv", ".venv-bench", ".venv-flink", ".venv-spark-readers"
SPARK_KAFKA = ".venv-spark-kafka"


@dataclass(frozen=True, slots=True)
class Entry:
    """One system.

    Attributes:
        says: for people. environment: folder of the Python that runs it.
        make: the system, of its options; called in its own process only.
        fresh: a new process per epoch. plain: leaves out what is looked up. bare: one of the limits. merges: takes
            each epoch's rows into a table by key.
    """

    says: str
    environment: str
    make: Callable[..., System]
    fresh: bool = False
    plain: bool = False
    bare: bool = False
    merges: bool = False

    def runs(self, workload: Workload) -> bool:
        """Whether it is built for the workload."""
        if self.merges:
            return workload.query is Query.AGGREGATE
        if self.plain:
            return bool(workload.static)
        return not self.bare or (workload.query is Query.AGGREGATE and workload.key == ("auction",))


def _milepost(**options: Any) -> System:
    from bench.systems.milepost import Milepost

    return Milepost(**options)


def _milepost_table(format: str, mode: str = "upsert", **options: str) -> System:
    from bench.systems.milepost import Milepost
    from bench.systems.milepost_tables import TableKind

    return Milepost(table=TableKind(format, mode), **options)


def _spark_merge(format: str, *, deletes: bool, **options: str) -> System:
    from bench.systems.merges.spark_merge import SparkMerge

    return SparkMerge(format, deletes=deletes, **options)


def _milepost_landing() -> System:
    from bench.systems.landing import MilepostLanding

    return MilepostLanding()


def _spark_landing() -> System:
    from bench.systems.landing import SparkLanding

    return SparkLanding()


def _plain_consumer() -> System:
    from bench.systems.landing import PlainConsumer

    return PlainConsumer()


def _delta_rs() -> System:
    from bench.systems.merges.delta_rs import DeltaRs

    return DeltaRs()


def _duckdb(strategy: str) -> System:
    from bench.systems.merges.duckdb_tables import DuckDb

    return DuckDb(strategy)


def _streaming(store: str, **options: bool) -> System:
    from bench.systems.streaming import Streaming

    return Streaming(store, **options)


def _flink(backend: str, **options: bool) -> System:
    from bench.systems.flink import Flink

    return Flink(backend, **options)


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
    "milepost-far": Entry("Milepost, in a store 30 ms away", MAIN, partial(_milepost, far=True)),
    "spark-hdfs-far": Entry(
        "Structured Streaming, HDFS state store, in a store 30 ms away", MAIN, partial(_streaming, "hdfs", far=True)
    ),
    "milepost-executor": Entry("Milepost, a cluster's executor of one core", MAIN, partial(_milepost, executors="1")),
    "milepost-executors": Entry(
        "Milepost, a cluster's two executors of one core", MAIN, partial(_milepost, executors="2")
    ),
    "milepost-kafka": Entry("Milepost, landing and epoch", MAIN, partial(_milepost, kafka=True)),
    "spark-kafka": Entry(
        "Structured Streaming from Kafka, one long query, HDFS state store",
        SPARK_KAFKA,
        partial(_streaming, "hdfs", kafka=True),
    ),
    "flink-kafka": Entry("PyFlink SQL from Kafka, hashmap state", FLINK, partial(_flink, "hashmap", kafka=True)),
    "milepost-landing": Entry("Milepost, landing alone", MAIN, _milepost_landing),
    "spark-landing": Entry("Structured Streaming, messages appended as Parquet", SPARK_KAFKA, _spark_landing),
    "plain-consumer": Entry("confluent-kafka, messages consumed and dropped", MAIN, _plain_consumer),
    "milepost-delta": Entry("Milepost, Delta", MAIN, partial(_milepost_table, "delta")),
    "milepost-iceberg": Entry("Milepost, Iceberg", MAIN, partial(_milepost_table, "iceberg")),
    "milepost-function": Entry(
        "Milepost, a user's class with `on_batch` in place of the operator", MAIN, partial(_milepost, function=True)
    ),
    "milepost-plain": Entry("Milepost, the job without its lookup", MAIN, partial(_milepost, plain=True), plain=True),
    "milepost-changelog": Entry(
        "Milepost, Delta, every change as a row", MAIN, partial(_milepost_table, "delta", "changelog")
    ),
    "spark-delta": Entry(
        "Spark `MERGE INTO` Delta, files written again",
        SPARK_TABLES,
        partial(_spark_merge, "delta", deletes=False),
        merges=True,
    ),
    "spark-delta-vectors": Entry(
        "Spark `MERGE INTO` Delta, deletion vectors",
        SPARK_TABLES,
        partial(_spark_merge, "delta", deletes=True),
        merges=True,
    ),
    "spark-iceberg": Entry(
        "Spark `MERGE INTO` Iceberg, copy-on-write",
        SPARK_TABLES,
        partial(_spark_merge, "iceberg", deletes=False),
        merges=True,
    ),
    "spark-iceberg-deletes": Entry(
        "Spark `MERGE INTO` Iceberg, merge-on-read",
        SPARK_TABLES,
        partial(_spark_merge, "iceberg", deletes=True),
        merges=True,
    ),
    "delta-rs": Entry("delta-rs `merge`", MAIN, _delta_rs, merges=True),
    "duckdb-merge": Entry("DuckDB, own table, `MERGE INTO`", MAIN, partial(_duckdb, "merge"), merges=True),
    "duckdb-delete-insert": Entry(
        "DuckDB, own table, delete and insert as dbt does", MAIN, partial(_duckdb, "delete+insert"), merges=True
    ),
    "duckdb-parquet": Entry(
        "DuckDB, own table, `MERGE INTO`, then all of it as Parquet", MAIN, partial(_duckdb, "parquet"), merges=True
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
