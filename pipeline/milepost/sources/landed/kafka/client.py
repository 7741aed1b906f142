"""Read the id, topics and offsets of a Kafka cluster, with a time limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.errors import SourceUnreachable
from milepost.sources.landed.kafka.failures import Failures
from milepost.sources.landed.kafka.positions import Partition, PartitionPosition, PartitionPositions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, OffsetSpec

_LOG = logging.getLogger(__name__)
_Name = TypeVar("_Name")
_Send = Callable[[Sequence[_Name], float], dict[_Name, Future[Any]]]
_POLL_S = 0.05
_COMMIT_S = 5.0
NO_TOPIC_ID = "A" * 22
"""What a broker without topic ids reports: sixteen zero bytes."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it."""

    id: str
    partitions: tuple[int, ...]


@dataclass
class ClientEvents:
    """Receives log lines and errors of librdkafka. Secrets are masked."""

    failures: Failures
    last: KafkaError | None = None
    fatal: KafkaError | None = None

    def log(self, level: int, text: str, *values: object) -> None:
        """Log a line at debug level: librdkafka reports a broker that does not answer once per attempt."""
        _LOG.debug("source %s: %s", self.failures.source, self.failures.redact(text % values if values else text))

    def failed(self, error: KafkaError) -> None:
        """Store an error of no request. A failed login ends the landing, because repeating it locks accounts."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            self.fatal = error
        if self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error

    def options(self) -> dict[str, Any]:
        """Return the options of a client that reports here."""
        return {"error_cb": self.failed, "logger": self}


@dataclass
class KafkaCluster:
    """One cluster, opened for one landing.

    Attributes:
        client: options of librdkafka, with `bootstrap.servers`. timeout_s: time limit of each request.
    """

    client: Mapping[str, str]
    failures: Failures
    timeout_s: float
    events: ClientEvents = field(init=False)

    def __post_init__(self) -> None:
        self.events = ClientEvents(self.failures)
        self._admin_client: AdminClient | None = None

    def cluster_id(self) -> str:
        """Return the id of the cluster, which never changes."""

        def send(_names: Sequence[str], seconds: float) -> dict[str, Future[Any]]:
            return {"cluster": self._admin().describe_cluster(request_timeout=seconds)}

        return str(self._request(["cluster"], send)["cluster"].cluster_id)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the topics. Raises SourceUnreachable: one is unknown, or missing in the answer."""
        from confluent_kafka import TopicCollection

        def send(missing: Sequence[str], seconds: float) -> dict[str, Future[Any]]:
            return self._admin().describe_topics(TopicCollection(list(missing)), request_timeout=seconds)

        found = {
            name: Topic(str(answer.topic_id), tuple(sorted(partition.id for partition in answer.partitions)))
            for name, answer in self._request(list(names), send).items()
        }
        for name, topic in found.items():
            if not topic.partitions:
                raise self.failures.unreachable(f"Kafka's description of topic {name} has no partitions")
            if topic.id == NO_TOPIC_ID:
                raise self.failures.invalid(
                    f"the broker reports no id of topic {name}, so a topic that was created again cannot be detected",
                    "use brokers that have topic ids: Kafka 2.8 or newer",
                )
        return found

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionPosition]:
        """Return where the first message of each partition is."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionPosition]:
        """Return the ends of the partitions: the start of the oldest open transaction, or the end of the log."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def since(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, PartitionPosition]:
        """Return the first message at or after a time; the end of a partition that has none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(time_ms)))
        missing = [partition for partition, position in found.items() if position.next < 0]
        return found | (self.latest(missing) if missing else {})

    def commit(self, group: str, positions: PartitionPositions) -> None:
        """Set the offsets of a consumer group, which only dashboards read. A failure is logged."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        offsets = [TopicPartition(*partition, position.next) for partition, position in positions.items()]
        try:
            answers = self._admin().alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=_COMMIT_S
            )
            for answer in answers.values():
                answer.result(_COMMIT_S + 1)
        except (KafkaException, TimeoutError, ValueError) as error:
            reason = self.failures.redact(str(error))
            _LOG.info("source %s: the offsets of group %s were not set: %s", self.failures.source, group, reason)

    def _offsets(self, specs: Mapping[Partition, OffsetSpec]) -> dict[Partition, PartitionPosition]:
        from confluent_kafka import IsolationLevel, TopicPartition

        def send(missing: Sequence[Partition], seconds: float) -> dict[Partition, Future[Any]]:
            answers = self._admin().list_offsets(
                {TopicPartition(*partition): specs[partition] for partition in missing},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=seconds,
            )
            return {Partition(of.topic, of.partition): answer for of, answer in answers.items()}

        answers = self._request(list(specs), send)
        return {
            partition: PartitionPosition(answer.offset, answer.leader_epoch) for partition, answer in answers.items()
        }

    def _request(self, names: Sequence[_Name], send: _Send[_Name]) -> dict[_Name, Any]:
        """Request all names in parallel. Retries transient failures until all are answered or the time is over."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.timeout_s
        answers: dict[_Name, Any] = {}
        last: KafkaError | None = None
        while missing := [name for name in names if name not in answers]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.no_answer(last)
            try:
                futures = send(missing, max(left, 0.1))
            except (ValueError, TypeError) as error:
                raise self.failures.invalid(f"Kafka's client refuses a request: {error}", "correct `client`") from error
            for name, future in futures.items():
                self._wait(future, deadline)
                try:
                    answers[name] = future.result()
                except KafkaException as error:
                    last = error.args[0]
                    if not _may_pass(last):
                        raise self.failures.of(last, _named(name)) from error
            self._admin().poll(_POLL_S if len(answers) < len(names) else 0)
        return answers

    def _wait(self, future: Future[Any], deadline: float) -> None:
        while not wait([future], _POLL_S).done:
            self._admin().poll(0)
            if self.events.fatal is not None:
                raise self.failures.of(self.events.fatal, "")
            if time.monotonic() > deadline + 1:
                raise self.no_answer(None)

    def no_answer(self, error: KafkaError | None) -> SourceUnreachable:
        """Return the error for a timeout, with the last known reason."""
        last = self.events.last or error
        reason = "" if last is None else f": {last.str()}"
        return self.failures.unreachable(
            f"Kafka at {self.failures.servers} gave no answer within {self.timeout_s:g} s{reason}"
        )

    def _admin(self) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._admin_client is None:
            try:
                self._admin_client = AdminClient({**self.client, **self.events.options()})
            except KafkaException as error:
                raise self.failures.of(error.args[0], "") from error
        return self._admin_client


def _may_pass(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return error.retriable() or error.code() in (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )


def _named(name: object) -> str:
    return name.name if isinstance(name, Partition) else str(name)
