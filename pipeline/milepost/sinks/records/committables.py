"""Committables are what a sink's subtasks stage, and what an epoch publishes of it.

What a sink does with them is in `contract.py`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from milepost.codec.fields import Count, StoredAs, sha256_fault
from milepost.errors import StateCorrupt


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


PartitionValues = tuple[tuple[str, str | None], ...]
"""The columns by which a table is partitioned, each with a file's value as text (`partitions.py`); None: null."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file that a subtask staged; invisible until a commit names it.

    Attributes:
        key: relative to the sink's root; named by content hash below the epoch's token.
        rows, size: rows and bytes. sha256: hex of the content; empty: others wrote it, and nobody has read it yet.
        statistics: JSON of its columns, as Delta's log has it, for a format that keeps them; None for others.
        groups: key groups that a bucket of the latest rows covers: of these it has every key; None: it is no bucket.
        rows_of: of a file that comes in the place of others: the sum of what tells their rows (`small_files.py`; of the
            latest rows `content_digests.py`), 64 hexadecimal digits; None: it tells its rows by itself.
        partition: of a file of a partitioned table; () in others.
    """

    key: str
    rows: Count
    size: Count
    sha256: str
    statistics: str | None = None
    groups: range | None = None
    rows_of: Annotated[str, sha256_fault] | None = None
    partition: PartitionValues = ()


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file with the rows of several, in their order: it takes their place.

    Attributes:
        of: keys of the files, in the table's order; nothing of the same partition lies between them.
    """

    file: StagedFile
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What one subtask staged for one sink.

    Attributes:
        rows: of this epoch. files: that hold them; none where the buckets do, and nobody else asks for them.
        buckets: files with which a table of the latest rows goes on. replaced: keys of those in whose place they come.
        joined: files that were made of small ones of the table; the epoch has nothing to do with their rows.
    """

    rows: Count = 0
    files: tuple[StagedFile, ...] = ()
    buckets: tuple[StagedFile, ...] = ()
    replaced: tuple[str, ...] = ()
    joined: tuple[JoinedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Committable:
    """What all subtasks staged for one sink in one checkpoint, in their order, with the rows' schema.

    Attributes:
        whole: these are all rows that the table is to show: those that it shows go.
    """

    sink: str
    schema: SchemaText
    staged: tuple[StagedRows, ...]
    whole: bool = False

    @property
    def rows(self) -> int:
        """Rows that this epoch publishes."""
        return sum(one.rows for one in self.staged)

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """Files with the rows of this epoch."""
        return tuple(file for one in self.staged for file in one.files)

    @property
    def buckets(self) -> tuple[StagedFile, ...]:
        """Buckets that the subtasks wrote."""
        return tuple(file for one in self.staged for file in one.buckets)

    @property
    def joined(self) -> tuple[JoinedFile, ...]:
        """What the subtasks made of small files."""
        return tuple(one for staged in self.staged for one in staged.joined)

    @property
    def written(self) -> tuple[StagedFile, ...]:
        """All files that the subtasks wrote."""
        return (*self.files, *self.buckets, *(one.file for one in self.joined))

    @property
    def replaced(self) -> tuple[str, ...]:
        """Keys of the files in whose place the buckets come; several subtasks may have replaced one together."""
        return tuple(dict.fromkeys(key for one in self.staged for key in one.replaced))


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
