"""Spark Structured Streaming: one long query, or `availableNow` in a new process per epoch.

Aggregates run in update mode and append the changed keys of each epoch as Parquet through `foreachBatch`, which is what
Spark's Parquet sink leaves its users to do; windows and deduplicated rows go to that sink itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.systems.contract import (
    CHECKPOINTS,
    OUTPUT,
    PARALLELISM,
    PAUSED_SPARK,
    Folders,
    NotAsked,
    Volumes,
    link_files,
)
from bench.systems.static_tables import write_static
from bench.systems.topics import KafkaTopic, jars, stage_nothing
from bench.workloads.workloads import WINDOW_S, Query, Workload

if TYPE_CHECKING:
    from bench.systems.servers import Server

_STORES = {
    "hdfs": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        )
    },
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def open_spark(
    workload: Workload, store: str, folder: Path, remote: str | None, more: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Start Spark with as many partitions of state as cores, which is the fastest on one machine.

    Args:
        remote: address of a Spark Connect server that is to be used instead. more: settings of its own.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if remote is not None:
        return builder.remote(remote).config(map=_of_session(store)).getOrCreate()
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "TZ": "UTC"}
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = _of_driver(workload, folder) | _of_session(store) | more
    return builder.appName(f"bench-{workload.name}").config(map=settings).getOrCreate()


def _of_driver(workload: Workload, folder: Path) -> dict[str, str]:
    return {
        "spark.master": f"local[{PARALLELISM}]",
        "spark.driver.memory": workload.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        **PAUSED_SPARK,
        # On a busy machine the worker of a `foreachBatch` takes longer than 15 s to import Spark.
        "spark.python.authenticate.socketTimeout": "300s",
    }


def _of_session(store: str) -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.sql.session.timeZone": "UTC",
        **_STORES[store],
    }


def start_query(
    spark: Any,
    workload: Workload,
    folders: Folders,
    *,
    available_now: bool,
    place: str | None = None,
    topic: KafkaTopic | None = None,
) -> Any:
    """Start the workload's query over what lands.

    Args:
        place: where checkpoints and output are, if not in the folders. topic: where rows come from, if not from files.
    """
    from pyspark.sql import functions as f

    types = {"auction": "bigint", "bidder": "bigint", "price": "bigint", "event_time": "timestamp"}
    schema = ", ".join(f"{name} {types.get(name, 'string')}" for name in workload.columns)

    delay = f"{workload.delay_ms} milliseconds"

    def read() -> Any:
        if topic is not None:
            value = f.from_json(f.col("value").cast("string"), schema)
            return read_topic(spark, topic).select(value.alias("bid")).select("bid.*")
        return spark.readStream.schema(schema).option("recursiveFileLookup", "true").parquet(str(folders.landing))

    bids = read()

    def opens(name: str) -> Any:
        if name == workload.static:
            return spark.read.parquet(str(folders.static(name)))
        return read().withWatermark("event_time", delay) if "event_time" in workload.columns else read()

    figures = [f.count("*").alias("bids"), f.sum("price").alias("total"), f.max("price").alias("highest")]
    if workload.statement is not None:
        if workload.statement.spark is None:
            raise NotAsked(workload.name)
        result = workload.statement.spark(opens)
    elif workload.query is Query.DEDUPLICATE:
        result = bids.dropDuplicates(list(workload.key))
    elif workload.query is Query.WINDOW:
        window = f.window("event_time", f"{WINDOW_S} seconds").alias("window")
        timed = bids.withWatermark("event_time", delay).groupBy(*workload.key, window).agg(*figures)
        result = timed.select(
            *workload.key, f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"),
            "bids", "total", "highest",
        )  # fmt: skip
    else:
        result = bids.groupBy(*workload.key).agg(*figures)
    checkpoints, output = (f"{folders.work if place is None else place}/{name}" for name in (CHECKPOINTS, OUTPUT))
    writer = result.writeStream.option("checkpointLocation", checkpoints)
    if workload.replaces:

        def publish(changed: Any, number: int) -> None:
            changed.write.mode("overwrite").parquet(f"{output}/batch={number}")

        writer = writer.outputMode("update").foreachBatch(publish)
    else:
        writer = writer.outputMode("append").format("parquet").option("path", output)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def read_topic(spark: Any, topic: KafkaTopic) -> Any:
    """Return the messages of a topic, from the first on, as a stream."""
    options = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).load()


def kafka_settings() -> dict[str, str]:
    """Return the settings of a Spark that reads Kafka."""
    return {"spark.jars": ",".join(map(str, jars("spark-", "kafka-clients", "commons-pool2")))}


class Streaming:
    """A streaming query with one of Spark's two state stores; `fresh` and `served` as Milepost has them."""

    def __init__(
        self, store: str, *, fresh: bool = False, served: bool = False, far: bool = False, kafka: bool = False
    ) -> None:
        """Take what a system's entry says.

        Args:
            far: whether checkpoints and output are in the far store, which `fresh` does not reach. kafka: whether rows
                come from a topic; not with `fresh`.
        """
        self._store, self._is_far, self._reads_kafka = store, far, kafka
        self._fresh, self._served = fresh, served
        self._server: Server | None = None

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        write_static(workload, folders)
        self._written = Volumes(folders, folders.checkpoints / "state", lambda path: path.suffix == ".parquet")
        if self._served:
            from bench.systems.servers import Server

            self._server = Server(folders.work / "server", _of_driver(workload, folders.work))
        if not self._fresh:
            more, place = self._far_settings()
            topic = KafkaTopic.of(folders) if self._reads_kafka else None
            more |= kafka_settings() if self._reads_kafka else {}
            self._spark = open_spark(workload, self._store, folders.work, None, more)
            self._query = start_query(self._spark, workload, folders, available_now=False, place=place, topic=topic)

    def _far_settings(self) -> tuple[dict[str, str], str | None]:
        if not self._is_far:
            return {}, None
        from bench.systems.far_store import FarStore

        far = FarStore.of(self._folders)
        return far.of_hadoop(), far.place(self._folders, "s3a")

    def stage(self, source: Path, target: Path) -> None:
        if self._reads_kafka:
            stage_nothing(target)
        else:
            link_files(source, target)

    def epoch(self, number: int) -> None:
        if not self._fresh:
            self._query.processAllAvailable()
            return
        remote = self._server.address if self._server is not None else None
        words = json.dumps([self._workload.to_json(), self._store, str(self._folders.work), remote])
        subprocess.run([sys.executable, "-m", "bench.systems.available_now", words], check=True)

    def figures(self, number: int) -> dict[str, Any]:
        return {} if self._is_far else self._written.figures()

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        columns = ", ".join(self._workload.result_columns)
        if self._is_far:
            from bench.systems.far_store import FarStore

            FarStore.of(self._folders).fetch(self._folders, OUTPUT, self._folders.output)
        if not self._workload.replaces:
            return f"SELECT {columns} FROM read_parquet('{self._folders.output}/*.parquet')"
        key = ", ".join(self._workload.key)
        return (
            f"SELECT {columns} FROM read_parquet('{self._folders.output}/*/*.parquet', hive_partitioning = true) "
            f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY CAST(batch AS BIGINT) DESC) = 1"
        )

    def versions(self) -> dict[str, str]:
        import pyspark

        return {"pyspark": pyspark.__version__}

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        if not self._fresh:
            self._query.stop()
            self._spark.stop()
