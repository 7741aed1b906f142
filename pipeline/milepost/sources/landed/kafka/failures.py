"""Turn errors of Kafka into typed errors with the source, the current state and the next step, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    InvalidRequest,
    PositionExpired,
    SourceReplaced,
    SourceUnreachable,
    SourceWentBack,
)
from milepost.sources.landed.contract import NOTHING_LANDED
from milepost.sources.landed.kafka.positions import Partition, PartitionPosition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_SECRET = ("password", "secret", "token", "key.pem", "jaas", "oauthbearer.config", "credentials")


@dataclass(frozen=True)
class Failures:
    """Makes the errors of one source.

    Attributes:
        source: its name. servers: its bootstrap servers. client: all options; their secrets are masked in messages.
    """

    source: str
    servers: str
    client: Mapping[str, str]

    def redact(self, text: str) -> str:
        """Return a text without the secrets of the client's options."""
        for name, value in self.client.items():
            if value and any(part in name for part in _SECRET):
                text = text.replace(value, "***")
        return text

    def of(self, error: KafkaError, topics: str) -> CheckpointError:
        """Return the error for an answer of Kafka.

        Args:
            topics: the requested ones, for messages.
        """
        from confluent_kafka import KafkaError

        reason = self.redact(error.str())
        code = error.code()
        if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return self._refused(f"Kafka at {self.servers} refused the login: {reason}", "correct `client`")
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return self._refused(
                f"Kafka at {self.servers} does not let this user read {topics}: {reason}",
                "give the user the rights DESCRIBE and READ on the topics",
            )
        if code in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
            KafkaError.UNKNOWN_TOPIC_ID,
        ):
            return self.unknown_topic(topics)
        if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
            return self.invalid(f"the client's options cannot be used: {reason}", "correct `client`")
        return self.unreachable(f"Kafka at {self.servers} failed: {reason}")

    def unreachable(self, what: str) -> SourceUnreachable:
        """Return the error for a cluster that does not answer."""
        return SourceUnreachable(
            f"source {self.source}: {self.redact(what)}. {NOTHING_LANDED}",
            hint="check that the brokers run and that this machine reaches them, then land again",
            source=self.source,
        )

    def unknown_topic(self, topics: str) -> SourceUnreachable:
        """Return the error for a topic that the cluster does not have."""
        return SourceUnreachable(
            f"source {self.source}: Kafka at {self.servers} has no topic {topics}. {NOTHING_LANDED}",
            hint="create the topic, or correct `topics`, then land again. The user also needs the right DESCRIBE on it",
            source=self.source,
        )

    def invalid(self, what: str, hint: str) -> InvalidRequest:
        """Return the error for a source that cannot be read as its spec says."""
        return InvalidRequest(
            f"source {self.source}: {self.redact(what)}. {NOTHING_LANDED}", hint=hint, source=self.source
        )

    def unreadable(self, partition: Partition, offset: int) -> InvalidRequest:
        """Return the error for a message that Kafka's client cannot read."""
        return self.invalid(
            f"the message at offset {offset} of {partition.name} has a header whose name is not valid UTF-8, which "
            "Kafka's client cannot read",
            f"correct its producer. To continue, land the topic under another source name that starts at offset "
            f"{offset + 1} of this partition",
        )

    def _refused(self, what: str, hint: str) -> EnvironmentUnusable:
        return EnvironmentUnusable(
            f"source {self.source}: {what}. {NOTHING_LANDED}", hint=f"{hint}, then land again", source=self.source
        )

    def created_again(self, topic: str) -> PositionExpired:
        """Return the error for a topic whose id has changed. The lander adds the source."""
        return PositionExpired(
            f"topic {topic} was deleted and created again: Kafka has another topic of that name, whose offsets begin "
            "anew"
        )

    def replaced(self, what: str) -> SourceReplaced:
        """Return the error for a topic other than the one that was landed."""
        return SourceReplaced(
            f"source {self.source}: {what}. {NOTHING_LANDED}",
            hint="give the source another name in the spec, which begins a log of its own",
            source=self.source,
        )

    def expired(self, partition: Partition, position: PartitionPosition, low: int) -> PositionExpired:
        """Return the error for messages that Kafka deleted before they were landed. The lander adds the source."""
        return PositionExpired(
            f"{partition.name}: expected to read from offset {position.next}, but Kafka has deleted everything before "
            f"offset {low}: {low - position.next} offsets expired before they were landed"
        )

    def went_back(self, partition: Partition, position: PartitionPosition, found: str) -> SourceWentBack:
        """Return the error for a partition that lost messages that were landed. The lander adds the source."""
        return SourceWentBack(
            f"{partition.name}: it was read up to offset {position.next}, leader epoch {position.leader_epoch}, but "
            f"{found}: Kafka has lost messages that were landed"
        )
