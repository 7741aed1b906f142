"""Landed messages for tests: rows of a landing, as the objects that epochs read."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobspec.job import KafkaSourceSpec
from milepost.sources.landed import MESSAGE_SCHEMA, SCHEMA_METADATA, RegistrySchema


@dataclass(frozen=True)
class Message:
    """One landed message. `sent_ms` is its time; None: it has none."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    offset: int = 0
    sent_ms: int | None = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    topic: str = "clicks"


def message_table(messages: Sequence[Message]) -> pa.Table:
    """Return messages as a landing stores them."""
    rows = [
        {
            "key": message.key,
            "value": message.value,
            "headers": None
            if message.headers is None
            else [{"name": name, "value": value} for name, value in message.headers],
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": None if message.sent_ms is None else datetime.fromtimestamp(message.sent_ms / 1000, UTC),
            "timestamp_type": None if message.sent_ms is None else "create",
        }
        for message in messages
    ]
    return pa.Table.from_pylist(rows, MESSAGE_SCHEMA)


def message_object(
    messages: Sequence[Message], row_group: int = 1_000, schemas: Mapping[int, RegistrySchema] | None = None
) -> bytes:
    """Return messages as one object of a landing.

    Args:
        schemas: of a registry, by id, that the object carries.
    """
    body = io.BytesIO()
    metadata = {SCHEMA_METADATA + str(number).encode(): schema.encoded() for number, schema in (schemas or {}).items()}
    table = message_table(messages).replace_schema_metadata(metadata or None)
    pq.write_table(table, body, compression="zstd", row_group_size=row_group)
    return body.getvalue()


def numbered(values: Sequence[bytes | None], first: int = 0, **keys: Any) -> list[Message]:
    """Return messages with these values and ascending offsets."""
    return [Message(value, offset=first + at, **keys) for at, value in enumerate(values)]


def kafka_source(schema: dict[str, str], format_: str = "json", **keys: Any) -> KafkaSourceSpec:
    """Return a source's spec as a YAML file would give it."""
    needed = {"format": "kafka", "bootstrap_servers": "broker:9092", "topics": ["clicks"], "value": {"format": format_}}
    return KafkaSourceSpec.model_validate({**needed, "schema": schema, **keys})
