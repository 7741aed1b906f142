"""Records of staged files: what a sink's subtasks stage, and what an epoch publishes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from milepost.codec import Count, StoredAs, sha256_fault
from milepost.errors import StateCorrupt


def encode_schema(schema: pa.Schema) -> str:
    """Return the schema as Arrow IPC in base64, without metadata, which would make equal schemas differ."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """Return the schema of a text from `encode_schema`. Raises StateCorrupt."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:  # binascii.Error is a ValueError
        raise StateCorrupt("a recorded schema is not an Arrow schema") from error


def schema_fault(text: str) -> str | None:
    """Return why a recorded text is not an Arrow schema; None if it is one."""
    try:
        decode_schema(text)
    except StateCorrupt as error:
        return error.message
    return None


SchemaText = Annotated[str, schema_fault]
"""An Arrow schema as text; see `encode_schema`."""

ArrowSchema = Annotated[pa.Schema, StoredAs(str, encode_schema, decode_schema)]
"""An Arrow schema, stored as that text."""


PartitionValues = tuple[tuple[str, str | None], ...]
"""The partition columns of a table, each with a file's value as text (`partition_values.py`); None for null."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file that a subtask staged; invisible until a commit names it.

    Attributes:
        key: relative to the sink's root; named by content hash below the epoch's token.
        rows, size: rows and bytes.
        sha256: of the content, in hex; empty for a file of an external writer that has not been read yet.
        statistics: column statistics as JSON of Delta's log, for a format that keeps them; None for others.
        groups: for a bucket, the key groups of which it has every key; None for any other file.
        rows_of: for a file that replaces others, the sum of their digests (`small_files.py`, or `content_digests.py`
            for an upsert table), 64 hexadecimal digits. None: the file's own digest identifies its rows.
        partition: partition values of the file; () if the table is not partitioned.
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
    """A file with the rows of several files, in their order, which it replaces.

    Attributes:
        of: keys of the replaced files, in the table's order. They are adjacent within their partition.
    """

    file: StagedFile
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What one subtask staged for one sink.

    Attributes:
        rows: number of rows of this epoch.
        files: the files with these rows; () if only the buckets hold them.
        buckets: new buckets of an upsert table. replaced: keys of the files that they replace.
        joined: files joined from small files of the table. They have no rows of this epoch.
    """

    rows: Count = 0
    files: tuple[StagedFile, ...] = ()
    buckets: tuple[StagedFile, ...] = ()
    replaced: tuple[str, ...] = ()
    joined: tuple[JoinedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Committable:
    """What all subtasks staged for one sink in one checkpoint, in subtask order, with the rows' schema.

    Attributes:
        whole: the staged rows replace the whole table.
    """

    sink: str
    schema: SchemaText
    staged: tuple[StagedRows, ...]
    whole: bool = False

    @property
    def rows(self) -> int:
        """Number of rows that the epoch publishes."""
        return sum(staged.rows for staged in self.staged)

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """Files with the rows of the epoch."""
        return tuple(file for staged in self.staged for file in staged.files)

    @property
    def buckets(self) -> tuple[StagedFile, ...]:
        """Buckets that the subtasks wrote."""
        return tuple(file for staged in self.staged for file in staged.buckets)

    @property
    def joined(self) -> tuple[JoinedFile, ...]:
        """Files that the subtasks joined from small files."""
        return tuple(joined for staged in self.staged for joined in staged.joined)

    @property
    def written(self) -> tuple[StagedFile, ...]:
        """All files that the subtasks wrote."""
        return (*self.files, *self.buckets, *(joined.file for joined in self.joined))

    @property
    def replaced(self) -> tuple[str, ...]:
        """Keys of the files that the buckets replace, without duplicates: subtasks may share a replaced file."""
        return tuple(dict.fromkeys(key for staged in self.staged for key in staged.replaced))


@dataclass(frozen=True, slots=True)
class RowsPiece:
    """Some of the rows that one subtask stages, in order.

    Attributes:
        distinct: whether no two rows have the same key. False if unknown.
        part: rows of two different parts above 0 never share a key; 0 if nothing is known.
    """

    rows: pa.Table
    distinct: bool = False
    part: int = 0


@dataclass(frozen=True, slots=True)
class StagingContext:
    """The checkpoint, fencing token and subtask that stage files.

    Attributes:
        held_bytes: bytes of rows to hold in memory. The rows of one part, or of part 0 in an upsert table, are held
            regardless.
    """

    checkpoint_id: int
    token: int
    subtask: int
    held_bytes: int

    def with_half_budget(self) -> StagingContext:
        """Return the context for each of two stagings that run concurrently."""
        return replace(self, held_bytes=self.held_bytes // 2)
