"""A real Kafka broker on loopback, from the jars of `python -m scripts.kafka_jars`: one node, KRaft, SASL and ACLs.

`kafka` is a session fixture, which a conftest imports. Tests make topics of their own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from milepost.spark.driver.engines.java import find_java_home
from milepost_testkit.processes.processes import accepts, free_ports, stop_tree, wait_until
from scripts import kafka_jars

KAFKA_IS_NOT_TO_BE_HAD = not kafka_jars.jars_are_there() and kafka_jars.UNREACHED.reason() is not None

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.initial.task.delay.ms": "100",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "num.partitions": "1",
    "quota.window.num": "2",  # a client above its quota waits for a second or two
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
}


class KafkaServer:
    """One broker process. A killed one can be started again on the same ports and data.

    Attributes:
        bootstrap: address at which every client is a superuser.
        sasl_bootstrap: address at which `user` logs in with `password`, who has the rights that a test gives.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.user, self.password = "reader", f"hush-{secrets.token_hex(12)}"
        self._port, self._sasl_port, self._controller_port = free_ports(3)
        self.bootstrap, self.sasl_bootstrap = f"127.0.0.1:{self._port}", f"127.0.0.1:{self._sasl_port}"
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Format the data directory the first time, start, and wait until the broker answers."""
        properties = self.directory / "server.properties"
        if not properties.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
            format_ = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", str(properties)]
            subprocess.run([*self._java(), *format_], check=True, capture_output=True, cwd=self.directory)
        with (self.directory / "server.log").open("ab") as log:
            self._process = psutil.Popen(
                [*self._java(), "kafka.Kafka", str(properties)], stdout=log, stderr=log, cwd=self.directory
            )
        wait_until(
            lambda: accepts(self._port) and self._answers(),
            seconds=120,
            what=f"Kafka at {self.bootstrap}, log in {self.directory}",
            process=self._process,
        )

    def stop(self, *, kill: bool = False) -> None:
        """End it; with `kill`, as a crash."""
        if self._process is not None:
            stop_tree(self._process, kill=kill)
            self._process = None

    def remove(self) -> None:
        """Kill it and delete its data."""
        self.stop(kill=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    @cached_property
    def admin(self) -> AdminClient:
        """A superuser's client. A call fails if its client was collected before the answer."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def new_topic(self, partitions: int = 1, name: str | None = None, **config: object) -> str:
        """Create a topic and return its name. The names of config have underscores in place of dots."""
        name = name or f"t{uuid4().hex[:10]}"
        options = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=options)])[name].result(30)
        wait_until(lambda: self._has(name, partitions), seconds=30, what=f"topic {name}")
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until the broker no longer names it."""
        self.admin.delete_topics([name])[name].result(30)
        wait_until(lambda: not self._has(name, 1), seconds=30, what=f"end of topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of a topic's partitions."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        wait_until(lambda: self._has(name, total), seconds=30, what=f"partitions of {name}")

    def limit_reading(self, client_id: str, bytes_per_s: int) -> None:
        """Make the broker answer one client's fetches so slowly."""
        quota = ["--add-config", f"consumer_byte_rate={bytes_per_s}", "--entity-type", "clients"]
        subprocess.run(
            [
                *self._java(), "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter", *quota,
                "--entity-name", client_id,
            ],
            check=True, capture_output=True, cwd=self.directory,
        )  # fmt: skip

    def producer(self, **options: object) -> Producer:
        """Return a producer. The names of options have underscores in place of dots."""
        named = {key.replace("_", "."): value for key, value in options.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **named})

    def produce(self, topic: str, values: Mapping[int, list[bytes]]) -> None:
        """Write values to partitions, and wait until all of them are stored."""
        producer = self.producer()
        for partition, messages in values.items():
            for value in messages:
                producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    def _has(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(timeout=10).topics.get(topic)
        return found is not None and len(found.partitions) >= partitions

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(self.admin.list_topics(timeout=2).brokers)
        return False

    def _settings(self) -> dict[str, str]:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://{self.sasl_bootstrap},"
            f"CONTROLLER://127.0.0.1:{self._controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_{self.user}="{self.password}";',
            "log.dirs": str(self.directory / "data"),
        }

    def _java(self) -> list[str]:
        assert kafka_jars.jars_are_there(), "the jars of Kafka are not there: python -m scripts.kafka_jars"
        options = [
            "-Xmx384m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
        ]
        return [str(find_java_home() / "bin" / "java"), *options, "-cp", f"{kafka_jars.JARS}{os.sep}*"]


def _cluster_id() -> str:
    return uuid4().hex[:22]


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A broker for the whole run."""
    server = KafkaServer(Path(tempfile.mkdtemp(prefix="milepost-kafka-", dir="/tmp")))
    server.start()
    try:
        yield server
    finally:
        server.remove()
