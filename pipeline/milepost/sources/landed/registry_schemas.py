"""Schemas of a Confluent-style registry, as the metadata of landed objects has them.

A message that was written with a registry begins with a zero byte and the four bytes of its schema's id. The landing
stores each of these schemas in the metadata of the object that has the message, so decoding needs no registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.codec import dump

SCHEMA_METADATA = b"milepost.schema."
"""Followed by the id of a schema: key in the metadata of an object, and in the schema metadata of a batch."""

HEADER_BYTES = 5
_MAGIC = 0


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """One schema, with all that it refers to.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        schema: its text; of Protobuf, the descriptor of its file in base64.
        references: name and schema of each one that it needs, before those that need it.
    """

    kind: str
    schema: str
    references: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        """Return it as an object's metadata has it."""
        return dump({"kind": self.kind, "schema": self.schema, "references": [[*item] for item in self.references]})


def decode_schema(body: bytes) -> RegistrySchema:
    """Return a stored schema. Raises ValueError, KeyError, TypeError: it is none."""
    value: dict[str, Any] = json.loads(body)
    return RegistrySchema(value["kind"], value["schema"], tuple((name, text) for name, text in value["references"]))


def schema_key(schema_id: int) -> bytes:
    """Return the key under which a schema is stored."""
    return SCHEMA_METADATA + str(schema_id).encode()


def stored_schema(metadata: Mapping[bytes, bytes], schema_id: int) -> bytes | None:
    """Return a schema from the metadata of an object; None: the registry did not have it."""
    return metadata.get(schema_key(schema_id))


def schema_id_of(value: bytes) -> int | None:
    """Return the id of the schema that a value was written with; None: it has none."""
    if len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def schema_ids(values: pa.Array) -> list[int]:
    """Return the distinct ids of the schemas that values were written with, in ascending order. Nulls have none."""
    headers = pc.binary_slice(values.drop_null(), 0, HEADER_BYTES)
    headers = headers.filter(pc.equal(pc.binary_length(headers), HEADER_BYTES)).unique()
    content = np.frombuffer(b"".join(headers.to_pylist()), np.uint8).reshape(-1, HEADER_BYTES)
    ids = content[content[:, 0] == _MAGIC, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return [int(schema_id) for schema_id in np.sort(ids)]
