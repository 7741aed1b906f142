"""Sources of Kafka messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.jobspec.job.sources.messages import METADATA, CarriedColumn, MessageLayout
from milepost.jobspec.job.sources.source_spec import BadRecordRules, ObjectLayout
from milepost.language import ColumnName, ColumnType, Many, Size, SpecModel, Text, Type, parse_start

_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"

OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "write `bootstrap_servers`",
    "metadata.broker.list": "write `bootstrap_servers`",
    "topic.blacklist": "name the topics in `topics`",
    "auto.offset.reset": "write `start`",
    "enable.auto.commit": "positions are stored in the log, and committed after each landing",
    "enable.auto.offset.store": "positions are stored in the log, and committed after each landing",
    "enable.partition.eof": "a landing reads to the end offsets that it found at its start",
    "isolation.level": "only committed messages are landed",
    "queued.min.messages": "a landing bounds its queues by its memory",
    "queued.max.messages.kbytes": "a landing bounds its queues by its memory",
}
"""librdkafka options that a landing sets itself -> why, or what to write instead."""


def _check_topic(text: str) -> str:
    if not re.fullmatch(_TOPIC, text) or text in (".", ".."):
        raise ValueError(f"expected the name of a topic (letters, digits and `._-`), got {text!r}")
    return text


def _check_option(name: str) -> str:
    if name in OWN_OPTIONS:
        raise ValueError(f"Milepost sets {name} itself: {OWN_OPTIONS[name]}")
    if not re.fullmatch(r"[a-z0-9]+([._][a-z0-9]+)*", name):
        raise ValueError(f"expected the name of a librdkafka option, such as security.protocol, got {name!r}")
    return name


def _parse_start(value: object) -> str | dict[str, dict[str, int]]:
    """Return a start with the numbers of partitions as text, as JSON has them."""
    if isinstance(value, str):
        return parse_start(value)
    if not isinstance(value, dict) or not value:
        raise ValueError("expected earliest, latest, a time, or {topic: {partition: offset}}")
    return {_check_topic(str(topic)): _offsets(str(topic), offsets) for topic, offsets in value.items()}


def _offsets(topic: str, offsets: object) -> dict[str, int]:
    if not isinstance(offsets, dict) or not offsets:
        raise ValueError(f"expected offsets of topic {topic} by partition, such as {{0: 1200, 1: 980}}")
    for partition, offset in offsets.items():
        if type(offset) is not int or not 0 <= offset < 1 << 63 or not re.fullmatch(r"\d{1,9}", str(partition)):
            raise ValueError(f"expected {{partition: offset}}, both from 0, got {partition!r}: {offset!r}")
    return {str(int(str(partition))): offset for partition, offset in offsets.items()}


KafkaStart = Annotated[
    Any,
    BeforeValidator(_parse_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "earliest, latest or a time"},
                {"type": "object", "additionalProperties": {"type": "object"}, "minProperties": 1},
            ]
        }
    ),
]
Topic = Annotated[
    str, AfterValidator(_check_topic), WithJsonSchema({"type": "string", "pattern": _TOPIC, "description": "a topic"})
]
ClientOption = Annotated[str, AfterValidator(_check_option)]


class MessageValue(SpecModel):
    """How the value of a message becomes columns.

    Attributes:
        format: json: the value is one JSON object, read by the rules of json files; fields that it lacks are null, and
            a message without a value is skipped. raw: the bytes, or the text, in one column or none; a message without
            a value has null.
    """

    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"registry"})
    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {"format": frozenset({"avro", "protobuf", "debezium"})}

    format: Literal["json", "raw"]


class KafkaLandLimits(LandRules):
    """When the source is landed, and limits on what a landing appends to the log as one record.

    A landing appends as many records as it needs.

    Attributes:
        max_rows: maximum number of messages per record.
        max_bytes: maximum size of their keys, values and headers per record. A record has at least one message of each
            partition that has new ones.
    """

    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"retain"})

    max_rows: Annotated[int, Field(ge=1)] = 1_000_000
    max_bytes: Annotated[Size, Field(ge=1)] = 256_000_000


class KafkaSourceSpec(LandedSourceSpec):
    """Messages of Kafka topics. They are landed as they are, and decoded by the epoch that reads them.

    Attributes:
        format: always kafka.
        bootstrap_servers: brokers to connect to first, as host:port, comma-separated. `${env:…}` is allowed.
        client: options of the client, under their librdkafka names. `${env:…}` is allowed, and required for a secret.
            `group.id` names the group whose offsets show how far was landed; nothing reads them.
        topics: the topics to read. Topics may be added later, and begin at their earliest message. None may be removed.
        value: how the value of a message becomes columns.
        value_columns: the columns of the value, by name. It may be corrected later: a replay decodes the landed
            messages anew. The order matters: a new table has its columns in this order, then those of `metadata`.
        metadata: further columns, by name, of the message itself: key (a text), key_bytes, headers, topic, partition,
            offset, timestamp or timestamp_type; and sequence, the number of the log's record that has it. Sequence,
            partition and offset, in this order, order all messages of the log.
        start: earliest, latest, a time, or the first offset of each partition: where the log begins. It cannot be
            changed later. A partition that is not named, or was added later, begins at its earliest message.
        land: how the source is landed.
        bad_records: what to do when a message cannot be decoded: fail the epoch, or dead_letter: the message goes to
            `<source>.bad`, which a sink with mode append may read, and all other messages are read.
        max_bad_ratio: the epoch fails when a larger share of a source's messages, 0 to 1, cannot be decoded. null: no
            limit. Like the next two keys, it needs `bad_records: dead_letter`.
        min_rows: `max_bad_ratio` applies only if an epoch has at least this many messages of the source.
        max_bad_records: the epoch fails when more than this many of a source's messages cannot be decoded. null: no
            limit.
    """

    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"conn_id", "renamed_from"})

    format: Literal["kafka"]
    bootstrap_servers: Text
    client: dict[ClientOption, str] = Field(default_factory=dict)
    topics: Annotated[Many[Topic], Field(min_length=1)]
    value: MessageValue
    value_columns: Annotated[dict[ColumnName, Type], Field(alias="schema", default_factory=dict)]
    metadata: dict[
        ColumnName,
        Literal[
            "key", "key_bytes", "headers", "topic", "partition", "offset", "timestamp", "timestamp_type", "sequence"
        ],
    ] = Field(default_factory=dict)
    start: KafkaStart = "earliest"
    land: KafkaLandLimits = KafkaLandLimits()
    bad_records: Literal["fail", "dead_letter"] = "fail"
    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    min_rows: Annotated[int, Field(ge=1)] = 1
    max_bad_records: Annotated[int, Field(ge=0)] | None = None

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        return self.value_columns | {name: METADATA[item].type for name, item in self.metadata.items()}

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*self.value_columns, *self.metadata)

    @property
    def layout(self) -> ObjectLayout:
        carried = {name: METADATA[item] for name, item in self.metadata.items()}
        if self.value.format == "json":
            return ObjectLayout("parquet", messages=MessageLayout(self.value_columns, carried))
        values = {name: CarriedColumn("value", type_) for name, type_ in self.value_columns.items()}
        return ObjectLayout("parquet", messages=MessageLayout({}, values | carried))

    @property
    def bad_record_rules(self) -> BadRecordRules | None:
        if self.bad_records == "fail":
            return None
        return BadRecordRules(False, self.max_bad_records, self.max_bad_ratio, self.min_rows)

    @property
    def identity(self) -> dict[str, str]:
        """The cluster and the topics are known by their ids once they are landed; the log has those."""
        start = self.start if isinstance(self.start, str) else json.dumps(self.start, sort_keys=True)
        return {"format": self.format, "topics": ", ".join(sorted(self.topics)), "start": start}

    @property
    def location(self) -> str:
        return f"kafka:{','.join(self.topics)}"

    @property
    def dataset(self) -> tuple[str, str]:
        return f"kafka://{self.bootstrap_servers.split(',')[0].strip()}", ",".join(self.topics)

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        texts: dict[tuple[str, ...], str] = {("bootstrap_servers",): self.bootstrap_servers}
        return texts | {("client", name): text for name, text in self.client.items()}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        client = {name: texts["client", name] for name in self.client}
        return self.model_copy(update={"bootstrap_servers": texts["bootstrap_servers",], "client": client})
