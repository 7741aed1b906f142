"""The spec of Kafka sources: what it accepts, what it refuses, and what it hides."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from milepost.jobspec.graph.compatibility import COMPATIBLE, NEW_UID, compare_signatures
from milepost.jobspec.graph.message_checks import message_problems
from milepost.jobspec.graph.output_checks import bad_columns
from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec
from milepost.jobspec.job.sources.messages import METADATA
from milepost_testkit import wording
from milepost_testkit.jobs.landed_messages import kafka_source

SCHEMA = {"user": "string", "at": "timestamp[us, UTC]"}


def test_metadata_follows_the_columns_of_the_value() -> None:
    spec = kafka_source(SCHEMA, metadata={"sent": "timestamp", "k": "key", "b": "key_bytes"}, event_time="sent")
    types = {name: str(type_) for name, type_ in spec.columns.items()}
    assert types == {**SCHEMA, "sent": "timestamp[ms, UTC]", "k": "string", "b": "binary"}
    assert (spec.time_column, [*spec.row_types]) == ("sent", [*types])
    assert spec.layout.messages is not None
    assert ([*spec.layout.messages.decoded], [*spec.layout.messages.carried]) == ([*SCHEMA], ["sent", "k", "b"])


def test_each_kind_of_metadata_is_accepted() -> None:
    assert list(kafka_source(SCHEMA, metadata={f"m_{name}": name for name in METADATA}).columns)[2:] == [
        f"m_{name}" for name in METADATA
    ]


@pytest.mark.parametrize(
    ("start", "stored"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-01-31T00:00:00Z", "2026-01-31T00:00:00Z"),
        ({"clicks": {0: 1200, "11": 0}}, {"clicks": {"0": 1200, "11": 0}}),
    ],
)
def test_a_start_is_read_again_as_it_is_stored(start: object, stored: object) -> None:
    spec = kafka_source(SCHEMA, start=start)
    assert spec.start == stored
    document = json.loads(json.dumps(spec.model_dump(mode="json", by_alias=True)))
    assert KafkaSourceSpec.model_validate(document) == spec


@pytest.mark.parametrize(
    "keys",
    [
        {"start": "yesterday"},
        {"start": {}},
        {"start": {"clicks": {}}},
        {"start": {"clicks": {"x": 1}}},
        {"start": {"clicks": {0: -1}}},
        {"start": {"clicks": {0: True}}},
        {"topics": []},
        {"topics": ["a b"]},
        {"topics": [".."]},
        {"client": {"auto.offset.reset": "latest"}},
        {"client": {"enable.auto.commit": "true"}},
        {"client": {"bootstrap.servers": "x:1"}},
        {"client": {"isolation.level": "read_uncommitted"}},
        {"client": {"sasl password": "x"}},
        {"client": {"fetch.wait.max.ms": 5}},
        {"value": {"format": "avro", "registry": {"conn_id": "not an id"}}},
        {"value": {"format": "debezium", "time_precision_mode": "seconds"}},
        {"value": {"format": "text"}},
        {"value": {}},
        {"metadata": {"v": "value"}},
        {"land": {"every": "0s"}},
        {"land": {"max_bytes": 0}},
        {"conn_id": "kafka_prod"},
        {"on_change": "fail"},
        {"bootstrap_servers": " "},
    ],
    ids=str,
)
def test_what_a_source_cannot_have_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kafka_source(SCHEMA, **keys)


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        ({}, {}),
        ({"a": "string"}, {"topics": ["clicks", "clicks"]}),
        ({"a": "int32"}, {"value": {"format": "raw"}}),
        ({"a": "string", "b": "binary"}, {"value": {"format": "raw"}}),
        ({}, {"value": {"format": "raw"}}),
        ({}, {"value": {"format": "debezium"}}),
        ({"a": "string"}, {"value": {"format": "json", "decimal_handling_mode": "precise"}}),
        ({"a": "string"}, {"metadata": {"op": "op"}}),
        ({"a": "string"}, {"value": {"format": "json", "registry": {"url": "http://registry:8081"}}}),
        ({"a": "string"}, {"value": {"format": "avro"}}),
        ({}, {"value": {"format": "protobuf", "registry": {"url": "http://registry"}}}),
        ({"a": "string"}, {"value": {"format": "avro", "registry": {"url": "registry:8081"}}}),
        ({"a": "string"}, {"value": {"format": "avro", "registry": {"url": "https://user:word@registry"}}}),
        ({"a": "string"}, {"value": {"format": "avro", "registry": {"url": "https://r", "username": "u"}}}),
        ({"a": "string"}, {"value": {"format": "avro", "registry": {"url": "https://r", "conn_id": "r"}}}),
        ({"a": "string"}, {"value": {"format": "avro", "registry": {}}}),
        ({"a": "string"}, {"start": {"click": {0: 1}}}),
        ({"a": "string"}, {"bootstrap_servers": "broker"}),
        ({"a": "string"}, {"bootstrap_servers": "a:9092,"}),
        ({"a": "string"}, {"bootstrap_servers": "user:word@a:9092"}),
    ],
    ids=str,
)
def test_a_problem_of_a_source_says_what_to_do(schema: dict[str, str], keys: dict[str, Any]) -> None:
    problems = list(message_problems(("sources", "clicks"), kafka_source(schema, **keys)))
    wording.matches("kafka_sources", [f"{'.'.join(map(str, one.path))}: {one.message}" for one in problems])
    assert problems


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        (SCHEMA, {"bootstrap_servers": "a:9092, b.example:9093,[::1]:9094"}),
        (SCHEMA, {"bootstrap_servers": "${env:KAFKA}"}),
        ({"payload": "string"}, {"value": {"format": "raw"}}),
        ({}, {"value": {"format": "raw"}, "metadata": {"o": "offset"}}),
        (SCHEMA, {"value": {"format": "debezium"}, "metadata": {"op": "op", "lsn": "source.lsn"}}),
        (SCHEMA, {"value": {"format": "avro", "registry": {"url": "${env:REGISTRY}", "ca_location": "/ca.pem"}}}),
        (SCHEMA, {"client": {"group.id": "milepost", "security.protocol": "SASL_SSL", "ssl.ca.location": "/ca.pem"}}),
    ],
    ids=str,
)
def test_a_source_without_problems(schema: dict[str, str], keys: dict[str, Any]) -> None:
    assert list(message_problems(("sources", "clicks"), kafka_source(schema, **keys))) == []


def test_only_the_limits_of_dead_letters_are_rules() -> None:
    assert kafka_source(SCHEMA).bad_record_rules is None
    rules = kafka_source(SCHEMA, bad_records="dead_letter", max_bad_records=3).bad_record_rules
    assert rules is not None and (rules.includes_objects, rules.max_bad_records) == (False, 3)
    assert [*bad_columns(kafka_source(SCHEMA))][-3:] == ["topic", "partition", "offset"]


def test_connection_texts_are_the_servers_and_the_options_of_the_client() -> None:
    spec = kafka_source(SCHEMA, bootstrap_servers="${env:KAFKA}", client={"sasl.password": "${env:PASSWORD}"})
    assert spec.connection_texts == {
        ("bootstrap_servers",): "${env:KAFKA}",
        ("client", "sasl.password"): "${env:PASSWORD}",
    }
    resolved = spec.with_connection_texts({("bootstrap_servers",): "k:1", ("client", "sasl.password"): "hunter2"})
    assert (resolved.bootstrap_servers, resolved.client) == ("k:1", {"sasl.password": "hunter2"})
    assert spec.client == {"sasl.password": "${env:PASSWORD}"}


def test_the_start_is_the_same_in_whatever_order_it_is_written() -> None:
    one, other = {"clicks": {0: 5, 1: 6}}, {"clicks": {"1": 6, "0": 5}}
    assert kafka_source(SCHEMA, start=one).identity == kafka_source(SCHEMA, start=other).identity


def test_the_registry_s_login_is_resolved_with_the_other_connections() -> None:
    registry = {"url": "${env:REGISTRY}", "username": "reader", "password": "${env:PASSWORD}"}
    spec = kafka_source(SCHEMA, value={"format": "avro", "registry": registry})
    texts = spec.connection_texts
    assert {path[-1] for path in texts if path[:2] == ("value", "registry")} == {"url", "username", "password"}
    resolved = spec.with_connection_texts(texts | {("value", "registry", "password"): "hunter2"})
    assert resolved.value.registry is not None and resolved.value.registry.password == "hunter2"
    assert spec.value.registry is not None and spec.value.registry.password == "${env:PASSWORD}"


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"topics": ["views", "clicks"]}, COMPATIBLE),
        ({"topics": ["views"]}, NEW_UID),
        ({"start": "latest"}, NEW_UID),
        ({"start": "2026-01-01"}, NEW_UID),
        ({"start": {"clicks": {0: 5}}}, NEW_UID),
        ({"bootstrap_servers": "other:9092"}, COMPATIBLE),
        ({"schema": {"user": "int64"}, "metadata": {"o": "offset"}}, COMPATIBLE),
        ({"value": {"format": "raw"}, "schema": {"user": "binary"}}, COMPATIBLE),
        ({"land": {"max_rows": 5}, "client": {"group.id": "x"}, "bad_records": "dead_letter"}, COMPATIBLE),
    ],
    ids=str,
)
def test_topics_may_be_added_and_the_start_is_fixed(keys: dict[str, Any], verdict: str) -> None:
    old, new = (
        {"sources": {"clicks": spec.identity}}
        for spec in (kafka_source(SCHEMA), kafka_source(**{"schema": SCHEMA, **keys}))
    )
    assert [row["verdict"] for row in compare_signatures(old, new)] == [verdict]


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        ("2026-01-01", COMPATIBLE),
        ("2026-01-01T01:00:00+01:00", COMPATIBLE),
        ("2026-01-01 00:00:00.000", COMPATIBLE),
        ("2026-01-01T00:00:01Z", NEW_UID),
        ("2026-01-01T00:00:00+01:00", NEW_UID),
        ("earliest", NEW_UID),
    ],
)
def test_a_start_is_the_same_however_its_time_is_written(start: str, verdict: str) -> None:
    old, new = (
        {"sources": {"clicks": kafka_source(SCHEMA, start=text).identity}} for text in ("2026-01-01T00:00:00Z", start)
    )
    assert [row["verdict"] for row in compare_signatures(old, new)] == [verdict]
