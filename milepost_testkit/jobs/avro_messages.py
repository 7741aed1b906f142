"""Messages in Avro, as a producer with a Confluent-style registry writes them."""

from __future__ import annotations

import io
import json
from typing import Any

from fastavro import parse_schema, schemaless_writer

from milepost.sources.landed import RegistrySchema


def record_schema(name: str = "Order", /, **fields: Any) -> dict[str, Any]:
    """Return the Avro schema of a record with fields of these types."""
    return {
        "type": "record",
        "name": name,
        "namespace": "shop",
        "fields": [{"name": field, "type": type_} for field, type_ in fields.items()],
    }


def stored(schema: Any, *references: tuple[str, Any], kind: str = "AVRO") -> RegistrySchema:
    """Return a schema as a landing stores it."""
    return RegistrySchema(kind, json.dumps(schema), tuple((name, json.dumps(one)) for name, one in references))


def header(schema_id: int) -> bytes:
    """Return the first bytes of a value: a zero byte and the id of its schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def avro(schema_id: int, schema: Any, record: Any) -> bytes:
    """Return a value: the header, then the record."""
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(schema), record)
    return header(schema_id) + body.getvalue()
