"""Committables are what a sink stages and commits, with marks, changes and contents of a table.

What a sink does with them is in `contract.py`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStat
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
class SinkMark:
    """Where a sink stands: the checkpoint its visible content belongs to, and the mark before it.

    Attributes:
        timeline: of that checkpoint.
        checkpoint_id: 0 for the empty table before the first commit.
        predecessor: checkpoint id of the mark it followed, None for the first.
    """

    timeline: str
    checkpoint_id: int
    predecessor: int | None


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
class Compaction:
    """One staged file that holds the whole table as this epoch leaves it, so that readers need nothing older.

    Attributes:
        file: staged below the epoch's token, like the epoch's own files.
        predecessor: checkpoint id of the content it was computed on (None: the empty table). It may only be
            committed on top of exactly that mark.
    """

    file: StagedFile
    predecessor: int | None


@dataclass(frozen=True, slots=True)
class Committable:
    """All staged files of one sink in one checkpoint, in subtask order, with the rows' schema (Arrow IPC, base64)."""

    sink: str
    files: tuple[StagedFile, ...]
    schema: SchemaText
    compaction: Compaction | None = None

    @property
    def rows(self) -> int:
        """Rows that this epoch publishes; a compaction's are not counted again."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class TableObject:
    """One object that lies below a sink's path.

    Attributes:
        staged_by: checkpoint id and token that staged it; None for anything else.
        permanent: part of what says what the table is; never deleted.
        snapshot_of: the head that a snapshot of the chain was written for; None for anything else.
        list_of_garbage: says which files may go; deleted with the last of them.
    """

    stat: ObjectStat
    staged_by: tuple[CheckpointId, FencingToken] | None
    permanent: bool
    snapshot_of: int | None = None
    list_of_garbage: bool = False


@dataclass(frozen=True, slots=True)
class TableReference:
    """One object that the table needs, at its head or as of some checkpoint.

    Attributes:
        chain: how it is reached, for people.
    """

    key: str
    size: int
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableWalk:
    """A table as it is stored.

    Attributes:
        objects: all that lie below the sink's path, listed before anything else was read.
        references: what the chain itself and the newest head need, each key once; older checkpoints may need more.
        published: every file that some head names, whether anything still needs it or not.
        listed: files that a list of garbage names. unreadable_lists: of each such list that cannot be read: its key
            and what is wrong; nothing that is needed depends on it.
        problems: what cannot be read, one line each; then `references` is not complete.
        heads: how many commits were read.
    """

    objects: tuple[TableObject, ...]
    references: tuple[TableReference, ...]
    published: frozenset[str]
    listed: frozenset[str]
    unreadable_lists: tuple[str, ...]
    problems: tuple[str, ...]
    heads: int


@dataclass(frozen=True, slots=True)
class SinkChange:
    """What a table shows now, and what it would show once it had followed a decision.

    Attributes:
        rows_now, rows_then: rows of the table; of now, None when it is damaged: that may be why it is to go back.
        files_now, files_then: files that a reader opens.
    """

    rows_now: int | None
    rows_then: int
    files_now: int
    files_then: int


@dataclass(frozen=True, slots=True)
class TableContents:
    """What a table consists of at one point.

    Attributes:
        files: its live files in commit order. schema: Arrow IPC, base64; None while nothing was ever published.
    """

    files: tuple[StagedFile, ...]
    schema: str | None


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
