"""Check sources of messages: their columns, and what a client is given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec
from milepost.jobspec.job.sources.messages import CHANGE_METADATA
from milepost.language import SOURCE_FORMATS, Path, Problem, did_you_mean

_CONTENT = {"json": "value", "debezium": "table", "avro": "record", "protobuf": "message"}
_REGISTRY_FORMATS = ("avro", "protobuf")
_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_SERVERS = re.compile(r"[^\s,:/@]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}")


def message_problems(path: Path, source: KafkaSourceSpec) -> Iterator[Problem]:
    """Yield what a source of Kafka messages cannot have."""
    yield from _columns(path, source)
    yield from _debezium(path, source)
    yield from _registry(path, source)
    for topic in sorted({topic for topic in source.topics if source.topics.count(topic) > 1}):
        yield Problem((*path, "topics"), f"{topic} occurs twice")
    if isinstance(source.start, dict):
        for topic in source.start:
            if topic not in source.topics:
                message = f"{topic} is not in `topics`; {did_you_mean(topic, source.topics)}"
                yield Problem((*path, "start", topic), message, at_key=True)
    servers = source.bootstrap_servers
    if "${env:" not in servers and not all(_SERVERS.fullmatch(server.strip()) for server in servers.split(",")):
        message = "expected host:port, or several of them, comma-separated"
        yield Problem((*path, "bootstrap_servers"), message)


def _columns(path: Path, source: KafkaSourceSpec) -> Iterator[Problem]:
    if source.value.format == "raw":
        yield from _raw_columns(path, source)
        return
    if not source.value_columns:
        message = f"`schema` is missing: name the columns of the {_CONTENT[source.value.format]}"
        yield Problem(path, message)
    if source.value.format == "json":
        for name, type_ in source.value_columns.items():
            problem = SOURCE_FORMATS["json"].type_problem(type_)
            if problem:
                yield Problem((*path, "schema", name), problem)


def _debezium(path: Path, source: KafkaSourceSpec) -> Iterator[Problem]:
    """Yield what only change events have."""
    if source.value.format == "debezium":
        return
    for key in ("time_precision_mode", "decimal_handling_mode", "unavailable_value_placeholder"):
        if getattr(source.value, key) is not None:
            yield Problem((*path, "value", key), f"`{key}` is only for `format: debezium`; remove it", at_key=True)
    for name, item in source.metadata.items():
        if item in CHANGE_METADATA:
            yield Problem((*path, "metadata", name), f"{item} needs `value: {{format: debezium}}`")


def _registry(path: Path, source: KafkaSourceSpec) -> Iterator[Problem]:
    registry, place = source.value.registry, (*path, "value", "registry")
    if source.value.format not in _REGISTRY_FORMATS:
        if registry is not None:
            yield Problem(
                place, f"`registry` is only for `format: {' | '.join(_REGISTRY_FORMATS)}`; remove it", at_key=True
            )
        return
    if registry is None:
        needs = "needs `registry: {url: …}` or `registry: {conn_id: …}`"
        yield Problem((*path, "value"), f"`format: {source.value.format}` {needs}")
        return
    if registry.conn_id is not None:
        for key in sorted(registry.model_fields_set - {"conn_id"}):
            yield Problem((*place, key), "`conn_id` already determines it; remove one of them")
        return
    if registry.url is None:
        yield Problem(place, "a registry needs `url` or `conn_id`")
    elif "${env:" not in registry.url and not _URL.fullmatch(registry.url):
        message = "expected http://host:port or https://host, without a login: write `username` and `password`"
        yield Problem((*place, "url"), message)
    if (registry.username is None) is not (registry.password is None):
        yield Problem(place, "`username` and `password` need each other")


def _raw_columns(path: Path, source: KafkaSourceSpec) -> Iterator[Problem]:
    if len(source.value_columns) > 1:
        message = f"expected at most 1 column with `value: {{format: raw}}`, got {len(source.value_columns)}"
        yield Problem((*path, "schema"), message)
    for name, type_ in source.value_columns.items():
        if type_.kind not in ("binary", "string"):
            yield Problem((*path, "schema", name), f"a raw value is binary or string, not {type_}")
    if not source.value_columns and not source.metadata:
        yield Problem(path, "the source has no column: name one in `schema` or in `metadata`")
