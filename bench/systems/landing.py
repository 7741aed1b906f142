"""Landing alone: messages of a topic are stored as they are, or only consumed. What was stored is compared as a query.

The published table is that of the running aggregate, which DuckDB computes from the stored messages on demand.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bench.systems.contract import Folders, NotAsked
from bench.systems.topics import PARTITIONS, KafkaTopic, rows_of, stage_nothing
from bench.workloads.workloads import AGGREGATES, Workload

_WITHIN_S = 120.0
_BATCH = 10_000


def _result_sql(workload: Workload, files: str) -> str:
    """DuckDB SQL for the running aggregate of stored messages."""
    names = [*workload.key, "price"]
    fields = ", ".join(f"CAST(decode(value)::JSON ->> '{name}' AS BIGINT) AS {name}" for name in names)
    key, figures = ", ".join(workload.key), ", ".join(f"{text} AS {name}" for name, text in AGGREGATES.items())
    return f"SELECT {key}, {figures} FROM (SELECT {fields} FROM read_parquet('{files}')) GROUP BY {key}"


class _Landing:
    """What the three have in common."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders, self._topic = workload, folders, KafkaTopic.of(folders)
        self._rows = 0

    def stage(self, source: Path, target: Path) -> None:
        self._rows += rows_of(source)
        stage_nothing(target)

    def figures(self, number: int) -> dict[str, Any]:
        return {"message_bytes": self._stored_bytes()}

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        return _result_sql(self._workload, self._files())

    def close(self) -> None:
        pass

    def _stored_bytes(self) -> int:
        """Bytes of what is stored, of all epochs."""
        folder, _, pattern = self._files().partition("/**/")
        return sum(file.stat().st_size for file in Path(folder).rglob(pattern))

    def _files(self) -> str:
        return f"{self._folders.output}/**/*.parquet"


class MilepostLanding(_Landing):
    """`landings.land` of the JobMaster in one process. No epoch runs."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        super().prepare(workload, folders)
        from bench.systems.milepost import write_spec
        from milepost.api import JobMaster, load_job

        spec = write_spec(workload, folders, spark={}, retained=10, topic=self._topic)
        self._master = JobMaster(load_job(str(spec)))

    def epoch(self, number: int) -> None:
        report = self._master.landings.land()
        if report.failed:
            raise RuntimeError(report.failed[0].message)

    def versions(self) -> dict[str, str]:
        import confluent_kafka

        import milepost

        return {"milepost": milepost.__version__, "confluent-kafka": confluent_kafka.__version__}

    def _files(self) -> str:
        return f"{self._folders.checkpoints}/**/*.parquet"


class SparkLanding(_Landing):
    """A long query that appends the topic's columns to Spark's Parquet sink, compressed as Milepost compresses."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        super().prepare(workload, folders)
        from bench.systems.streaming import kafka_settings, open_spark, read_topic

        more = kafka_settings() | {"spark.sql.parquet.compression.codec": "zstd"}
        self._spark = open_spark(workload, "hdfs", folders.work, None, more)
        writer = read_topic(self._spark, self._topic).writeStream.format("parquet").outputMode("append")
        places = {"path": str(folders.output), "checkpointLocation": str(folders.checkpoints)}
        self._query = writer.options(**places).start()

    def epoch(self, number: int) -> None:
        self._query.processAllAvailable()

    def versions(self) -> dict[str, str]:
        import pyspark

        return {"pyspark": pyspark.__version__}

    def close(self) -> None:
        self._query.stop()
        self._spark.stop()

    def _files(self) -> str:
        return f"{self._folders.output}/*.parquet"

    def _stored_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._folders.output.glob("*.parquet"))


class PlainConsumer(_Landing):
    """The Python client alone: batches of messages, whose values are taken. They are stored outside of the time."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        super().prepare(workload, folders)
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        queue = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 256 << 10}
        options = {"group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self._consumer = Consumer({"bootstrap.servers": self._topic.servers, **queue, **options})
        # A group would be left by who is paused for longer than its timeout.
        self._consumer.assign(
            [TopicPartition(self._topic.name, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        self._seen, self._values = 0, list[bytes]()
        folders.output.mkdir(parents=True)

    def epoch(self, number: int) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while self._seen < self._rows:
            messages = self._consumer.consume(_BATCH, 0.05)
            self._values += [message.value() for message in messages if message.error() is None]
            self._seen += sum(message.error() is None for message in messages)
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {self._rows:,} messages, got {self._seen:,} in {_WITHIN_S:.0f} s")

    def figures(self, number: int) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"value": pa.array(self._values, pa.binary())})
        pq.write_table(table, self._folders.output / f"{number:05d}.parquet")
        self._values = []
        return {}

    def versions(self) -> dict[str, str]:
        import confluent_kafka

        return {"confluent-kafka": confluent_kafka.__version__, "librdkafka": json.dumps(confluent_kafka.libversion())}

    def close(self) -> None:
        self._consumer.close()
