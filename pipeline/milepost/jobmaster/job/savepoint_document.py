"""`savepoint.json`: the contents of a savepoint. It is written last, so it exists only if all the rest does.

A savepoint's root has everything that one completed checkpoint needs, under keys relative to that root::

    savepoint.json                              this document
    _metadata                                   of the checkpoint; its references are keys below the same root
    inputs/<sha256>.json                        its input record
    chk-<id>/t<token>/…                         its state runs, rows in flight and sets of consumed objects
    tables/<sink>/<number>-<sha256>.parquet     each sink's table as of the checkpoint, its files in order
    landed/<source>/…                           with input: records after its position in the source's log, and their
                                                objects, under the keys that they have in the job

So a root can be moved or copied as it is. A document is not trusted (DESIGN 9). An extra or missing field, a key that
points outside the root, an impossible size or checksum, or an object that is listed twice or not needed is
StateCorrupt, before any object is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from milepost.codec import dump, from_json, load, sha256_fault, to_json
from milepost.protocol.landed import Identity
from milepost.protocol.records import (
    JOB_NAME_PATTERN,
    LANDED_PREFIX,
    MAX_CHECKPOINT_ID,
    METADATA_NAME,
    SAVEPOINT_DOCUMENT,
    ObjectHandle,
)
from milepost.sinks import SinkMode
from milepost.storage import MAX_OBJECT_BYTES
from milepost.tables.records import SchemaText, StagedFile, TableView

_KEY = re.compile(
    rf"{METADATA_NAME}|inputs/[0-9a-f]{{64}}\.json|chk-\d{{20}}/t\d{{20}}/.+|tables/[^/]+/\d{{8}}-[0-9a-f]{{64}}\.parquet"
    rf"|{LANDED_PREFIX}[^/]+/(?:records/\d{{20}}\.json|objects/\d{{20}}/[^/]+/\d{{5,}}-\d{{5,}}\.parquet)"
)
_LOGS = "logs"
_MODES = frozenset(mode.value for mode in SinkMode)


def _mode_fault(mode: str) -> str | None:
    return None if mode in _MODES else f"{mode!r} is not a known mode"


def _object_fault(handle: ObjectHandle) -> str | None:
    if not _KEY.fullmatch(handle.key):
        return f"{handle.key!r} is none of a savepoint's keys"
    if 0 <= handle.size <= MAX_OBJECT_BYTES and sha256_fault(handle.sha256) is None:
        return None
    return f"{handle.key!r} has {handle.size} bytes and SHA-256 {handle.sha256[:80]!r}, which is impossible"


@dataclass(frozen=True, slots=True)
class SavedTable:
    """One sink's table as of the checkpoint.

    Attributes:
        mode: as in the spec. key: key columns of an upsert table; () for others.
        schema: of the table (Arrow IPC, base64).
        files: in commit order, keys relative to the savepoint's root; none for an empty table.
        shown: how the job's own table shows it, for a job that takes the table over; None: it never did.
    """

    mode: Annotated[str, _mode_fault]
    key: tuple[str, ...]
    schema: SchemaText
    files: tuple[StagedFile, ...]
    shown: TableView | None

    def check(self) -> str | None:
        """Return how fields contradict one another; None if they are consistent."""
        if self.shown is None or len(self.shown.keys) == len(self.files):
            return None
        return f"{len(self.files)} files, but {len(self.shown.keys)} keys in the table"

    @property
    def rows(self) -> int:
        """Rows of all files. An upsert table shows only the last row of each key."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class SavedLog:
    """The log of a landed source that the checkpoint has read.

    Attributes:
        identity: what the log is a copy of.
        with_input: whether the savepoint has the records after the checkpoint's position.
    """

    identity: Identity
    with_input: bool


@dataclass(frozen=True, slots=True)
class SavepointDocument:
    """One savepoint.

    Attributes:
        created_ms: by the clock of the job's store.
        code_hash, spec_hash, spec_text: of the epoch that made the checkpoint.
        tables: by sink; a sink that had published nothing has none.
        objects: all objects below the root except this document, ascending by key.
        logs: by landed source with a position. Savepoints of earlier versions do not have them.
    """

    stored_format: ClassVar[str] = "milepost.savepoint/5"

    job: str
    checkpoint_id: int
    timeline: str
    created_ms: int
    code_hash: str
    spec_hash: str
    spec_text: str
    max_parallelism: int
    tables: Mapping[str, SavedTable]
    objects: tuple[Annotated[ObjectHandle, _object_fault], ...]
    logs: Mapping[str, SavedLog] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(handle.size for handle in self.objects)

    @property
    def metadata(self) -> ObjectHandle:
        """The checkpoint's `_metadata`."""
        return next(handle for handle in self.objects if handle.key == METADATA_NAME)

    def check(self) -> str | None:
        """Return how fields contradict one another; None if they are consistent."""
        if not JOB_NAME_PATTERN.fullmatch(self.job):
            return f"{self.job!r} is not the name of a job"
        for name in ("checkpoint_id", "created_ms", "max_parallelism"):
            if getattr(self, name) <= 0:
                return f"{name} is {getattr(self, name)}, expected more than 0"
        if self.checkpoint_id >= MAX_CHECKPOINT_ID:
            return f"checkpoint {self.checkpoint_id} is out of bounds"
        keys = [handle.key for handle in self.objects]
        if keys != sorted(set(keys)):
            return "its objects are not sorted, or one is listed twice"
        if METADATA_NAME not in keys:
            return f"{METADATA_NAME} is not among its objects"
        for name, table in self.tables.items():
            for number, file in enumerate(table.files):
                if file.key != table_file_key(name, number, file):
                    return f"table {name!r}: {file.key!r} is not its file {number}"
        return None

    def encode(self) -> bytes:
        """Return the canonical JSON. Without landed sources it has no logs, as in earlier versions."""
        value: dict[str, Any] = to_json(self)
        return dump(value if self.logs else {key: item for key, item in value.items() if key != _LOGS})


def decode_document(body: bytes, where: str) -> SavepointDocument:
    """Read a `savepoint.json`. Strict: raises StateCorrupt.

    Args:
        where: the savepoint's location, for messages.
    """
    hint = "it is damaged, written by another version of Milepost, or no savepoint"
    what = f"{SAVEPOINT_DOCUMENT} of {where}"
    value = load(body, what, hint=hint)
    whole = {_LOGS: {}, **value} if isinstance(value, dict) else value
    return from_json(SavepointDocument, whole, what, hint=hint)


def table_file_key(sink: str, number: int, file: StagedFile) -> str:
    """Return the key of the n-th file of a sink's table in a savepoint, from 0."""
    return f"tables/{sink}/{number:08d}-{file.sha256}.parquet"


def renamed(file: StagedFile, key: str) -> StagedFile:
    """Return the same file under another key."""
    return replace(file, key=key)
