"""Committables are what a sink's subtasks stage, and what an epoch publishes of it.

What a sink does with them is in `contract.py`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.stored_fields import Count, StoredAs


def encode_schema(schema: pa.Schema) -> str:
    """Arrow IPC in base64, without metadata (which names libraries and would make equal schemas differ)."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """Inverse of `encode_schema`. Raises StateCorrupt."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:  # binascii.Error is a ValueError
        raise StateCorrupt("a recorded schema is not an Arrow schema") from error


def schema_fault(text: str) -> str | None:
    """Say why a recorded text is no Arrow schema, or None."""
    try:
        decode_schema(text)
    except StateCorrupt as error:
        return error.message
    return None


SchemaText = Annotated[str, schema_fault]
"""An Arrow schema as `encode_schema` gives it."""

ArrowSchema = Annotated[pa.Schema, StoredAs(str, encode_schema, decode_schema)]
"""An Arrow schema, stored as that text."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file that a subtask staged; invisible until a commit names it.

    Attributes:
        key: relative to the sink's root; named by content hash below the epoch's token.
        rows, size: rows and bytes. sha256: hex of the content.
        statistics: JSON of its columns, as Delta's log has it, for a format that keeps them; None for others.
    """

    key: str
    rows: Count
    size: Count
    sha256: str
    statistics: str | None = None


@dataclass(frozen=True, slots=True)
class Committable:
    """All staged files of one sink in one checkpoint, in subtask order, with the rows' schema (Arrow IPC, base64)."""

    sink: str
    files: tuple[StagedFile, ...]
    schema: SchemaText

    @property
    def rows(self) -> int:
        """Rows that this epoch publishes."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class RowsPiece:
    """Some of the rows that one subtask stages, in order.

    Attributes:
        distinct: whether no two of them are known to have the same key.
        part: rows of two parts, both above 0, never have the same key; 0 = nothing is known.
    """

    rows: pa.Table
    distinct: bool = False
    part: int = 0
