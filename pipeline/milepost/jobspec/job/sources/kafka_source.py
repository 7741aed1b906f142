"""Sources of Kafka messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.jobspec.job.sources.messages import (
    CHANGE_METADATA,
    METADATA,
    CarriedColumn,
    ChangeRules,
    MessageLayout,
)
from milepost.jobspec.job.sources.source_spec import BadRecordRules, ObjectLayout
from milepost.language import ColumnName, ColumnType, ConnId, Many, Size, SpecModel, Text, Type, parse_start

_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"

UNAVAILABLE_VALUE = "__debezium_unavailable_value"
"""Debezium's own placeholder of a value that it does not have."""

_REGISTRY = ("value", "registry")

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


def _type_of(metadata: str) -> ColumnType:
    return METADATA[metadata].type if metadata in METADATA else CHANGE_METADATA[metadata]


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


class RegistrySpec(SpecModel):
    """The schema registry that messages were written with: Confluent's, or one with its API and wire format.

    Attributes:
        url: its URL. `${env:…}` is allowed. null if `conn_id` is given.
        conn_id: Airflow Connection of type `http`, instead of the other keys. Outside Airflow it is read from the
            environment variable `AIRFLOW_CONN_<ID>`. null if `url` is given.
        username: of the login. null: no login. `${env:…}` is allowed.
        password: of the login. `${env:…}` is required.
        ca_location: path to a file of CA certificates (PEM). null: those of the library.
    """

    url: Text | None = None
    conn_id: ConnId | None = None
    username: Text | None = None
    password: Text | None = None
    ca_location: Text | None = None


class MessageValue(SpecModel):
    """How the value of a message becomes columns.

    Attributes:
        format: json: the value is one JSON object, read by the rules of json files; fields that it lacks are null, and
            a message without a value is skipped. raw: the bytes, or the text, in one column or none; a message without
            a value has null. debezium: the value is a change event of Debezium as JSON, with or without its schema; the
            columns are those of the row after the change, or of the row before its delete. A message without a value is
            skipped. avro or protobuf: the value was written with a schema of the `registry`; the columns are fields of
            the record or the message. A message without a value is skipped.
        registry: needed for avro and protobuf. Landings read it, epochs do not: the log has the schemas.
        time_precision_mode: only with debezium, for events without a schema: `time.precision.mode` of the connector.
            With adaptive, a timestamp[ms] column has milliseconds, a timestamp[us] column microseconds, a timestamp[ns]
            column nanoseconds. null: a number in a timestamp column is read only from events with a schema.
        decimal_handling_mode: only with debezium, for events without a schema: `decimal.handling.mode` of the
            connector. With precise, a value has the scale of its column. null: a text in a decimal column is read only
            from events with a schema.
        unavailable_value_placeholder: only with debezium: `unavailable.value.placeholder` of the connector. An event
            with it in a column cannot be decoded, unless its `before` has the value.
    """

    format: Literal["json", "raw", "debezium", "avro", "protobuf"]
    registry: RegistrySpec | None = None
    time_precision_mode: Literal["adaptive", "connect", "isostring", "microseconds", "nanoseconds"] | None = None
    decimal_handling_mode: Literal["precise", "string", "double"] | None = None
    unavailable_value_placeholder: Text | None = None

    @property
    def is_decoded(self) -> bool:
        return self.format != "raw"


class KafkaLandLimits(LandRules):
    """When the source is landed, and limits on what a landing appends to the log as one record.

    A landing appends as many records as it needs.

    Attributes:
        max_rows: maximum number of messages per record.
        max_bytes: maximum size of their keys, values and headers per record. A record has at least one message of each
            partition that has new ones.
    """

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
            partition and offset, in this order, order all messages of the log. With debezium also of the change event:
            op (c, r, u or d), ts_ms, source.ts_ms, source.snapshot, source.db, source.schema, source.table, source.lsn,
            source.file, source.pos or source.gtid.
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

    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"conn_id"})

    format: Literal["kafka"]
    bootstrap_servers: Text
    client: dict[ClientOption, str] = Field(default_factory=dict)
    topics: Annotated[Many[Topic], Field(min_length=1)]
    value: MessageValue
    value_columns: Annotated[dict[ColumnName, Type], Field(alias="schema", default_factory=dict)]
    metadata: dict[
        ColumnName,
        Literal[
            "key",
            "key_bytes",
            "headers",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestamp_type",
            "sequence",
            "op",
            "ts_ms",
            "source.ts_ms",
            "source.snapshot",
            "source.db",
            "source.schema",
            "source.table",
            "source.lsn",
            "source.file",
            "source.pos",
            "source.gtid",
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
        return self.value_columns | {name: _type_of(item) for name, item in self.metadata.items()}

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*self.value_columns, *self.metadata)

    @property
    def layout(self) -> ObjectLayout:
        return ObjectLayout("parquet", messages=self._messages())

    def _messages(self) -> MessageLayout:
        carried = {name: METADATA[item] for name, item in self.metadata.items() if item in METADATA}
        if not self.value.is_decoded:
            carried = {name: CarriedColumn("value", type_) for name, type_ in self.value_columns.items()} | carried
            return MessageLayout(tuple(carried), {}, carried)
        if self.value.format == "json":
            return MessageLayout(self.column_names, self.value_columns, carried)
        if self.value.format in ("avro", "protobuf"):
            return MessageLayout(self.column_names, self.value_columns, carried, registry_format=self.value.format)
        fields = {name: item for name, item in self.metadata.items() if item in CHANGE_METADATA}
        decoded = self.value_columns | {name: CHANGE_METADATA[item] for name, item in fields.items()}
        rules = ChangeRules(
            fields,
            self.value.time_precision_mode,
            self.value.decimal_handling_mode,
            self.value.unavailable_value_placeholder or UNAVAILABLE_VALUE,
        )
        return MessageLayout(self.column_names, decoded, carried, rules)

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
        texts |= {("client", name): text for name, text in self.client.items()}
        registry = {} if self.value.registry is None else self.value.registry.model_dump(exclude_none=True)
        return texts | {(*_REGISTRY, key): text for key, text in registry.items() if key != "conn_id"}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        client = {name: texts["client", name] for name in self.client}
        update: dict[str, Any] = {"bootstrap_servers": texts["bootstrap_servers",], "client": client}
        if self.value.registry is not None:
            resolved = {path[-1]: text for path, text in texts.items() if path[:-1] == _REGISTRY}
            registry = self.value.registry.model_copy(update=resolved)
            update["value"] = self.value.model_copy(update={"registry": registry})
        return self.model_copy(update=update)
