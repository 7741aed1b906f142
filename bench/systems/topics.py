"""A topic of a real Kafka broker: where it is, what its messages are, and the jars by which the rivals read it.

All systems of a workload read the same topic. An epoch's messages are written before the first of them has its turn,
while all are paused. A message is 100 bytes of JSON without a key: a bid's auction and price, and random digits, which
nothing can compress to less than half.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from bench.systems.contract import Folders

MESSAGE_BYTES = 100
PARTITIONS = 4
COLUMNS = ("auction", "price")
"""Columns of a bid that a message has."""

_ROOT = Path(__file__).resolve().parents[2]
PINS = _ROOT / "bench" / "jars-kafka.txt"
JARS = _ROOT / ".milepost" / "bench" / "jars-kafka"
_FILE = "topic.json"


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """Where it is. Attributes: servers: as `bootstrap.servers` takes them."""

    servers: str
    name: str

    @classmethod
    def of(cls, folders: Folders) -> Self:
        """Return the one that was opened for a system with these folders."""
        return cls(**json.loads((folders.work.parents[2] / _FILE).read_text(encoding="utf-8")))

    def write(self, source: Path) -> None:
        """Write an epoch's rows as messages, in turn to each partition, and wait until all are stored."""
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 20, "queue.buffering.max.messages": 4_000_000}
        )
        for number, value in enumerate(messages(source)):
            producer.produce(self.name, value, partition=number % PARTITIONS)
        if left := producer.flush(120):
            raise RuntimeError(f"{left} messages were not stored")


def messages(source: Path) -> Iterator[bytes]:
    """Yield the rows of an epoch's files as messages."""
    for file in sorted(source.iterdir()):
        table = pq.read_table(file, columns=list(COLUMNS))
        rows = zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)
        for number, (auction, price) in enumerate(rows):
            begin = f'{{"auction":{auction},"price":{price},"id":"'
            digits = hashlib.blake2b(f"{file}{number}".encode()).hexdigest()
            yield f'{begin}{digits[: MESSAGE_BYTES - len(begin) - 2]}"}}'.encode()


def rows_of(source: Path) -> int:
    """Return how many messages an epoch has."""
    return sum(pq.ParquetFile(file).metadata.num_rows for file in source.iterdir())


def stage_nothing(target: Path) -> None:
    """Make the folder that the worker renames. The messages of the epoch are written already."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()


def jars(*names: str) -> list[Path]:
    """Return the fetched jars whose names begin so."""
    return [jar for jar in sorted(JARS.glob("*.jar")) if jar.name.startswith(names)]


@contextmanager
def kafka_topic(folder: Path) -> Iterator[KafkaTopic]:
    """A topic that the systems of a workload measured in this folder find, while the block runs."""
    from milepost_testkit.servers.kafka_server import KafkaServer

    server = KafkaServer(folder / "broker")
    shutil.rmtree(server.directory, ignore_errors=True)
    server.start()
    try:
        found = KafkaTopic(server.bootstrap, server.new_topic(PARTITIONS))
        (folder / _FILE).write_text(json.dumps(asdict(found)), encoding="utf-8")
        yield found
    finally:
        server.remove()
        (folder / _FILE).unlink(missing_ok=True)
