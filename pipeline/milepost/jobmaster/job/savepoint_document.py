"""`savepoint.json`: what a savepoint is made of. Written last, so that it is there only when all the rest is.

A savepoint's root holds everything that one completed checkpoint needs, under keys relative to that root::

    savepoint.json                              this document
    _metadata                                   of the checkpoint; its references are keys below the same root
    inputs/<sha256>.json                        its input record
    chk-<id>/t<token>/…                         its state runs, rows in flight and sets of consumed objects
    tables/<sink>/<number>-<sha256>.parquet     each sink's table as of the checkpoint, its files in order

So a root may be moved or copied as it is. A document is not trusted (DESIGN section 9): a field too many or too few, a
key that could lead elsewhere, a size or checksum that cannot be, an object that is named twice or that nothing needs,
is StateCorrupt, before any object is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.dataflow.sinks.contract import StagedFile, decode_schema
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.documents import exact_fields
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import JOB_NAME_PATTERN, MAX_CHECKPOINT_ID
from milepost.protocol.records.layout import METADATA_NAME, SAVEPOINT_DOCUMENT, key_fault
from milepost.storage.copying import MAX_OBJECT_BYTES

DOCUMENT_FORMAT = "milepost-savepoint/1"

_KEY = re.compile(
    rf"{METADATA_NAME}|inputs/[0-9a-f]{{64}}\.json|chk-\d{{20}}/t\d{{20}}/.+|tables/[^/]+/\d{{8}}-[0-9a-f]{{64}}\.parquet"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODES = ("append", "upsert")


@dataclass(frozen=True, slots=True)
class SavedTable:
    """One sink's table as of the checkpoint.

    Attributes:
        mode: append or upsert. key: key columns of an upsert table.
        schema: of the table (Arrow IPC, base64).
        files: in commit order, keys relative to the savepoint's root; none for an empty table.
    """

    mode: str
    key: tuple[str, ...]
    schema: str
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all files; an upsert table shows of each key the last."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class SavepointDocument:
    """One savepoint.

    Attributes:
        created_ms: by the clock of the job's store.
        code_hash, spec_hash, spec_text: what made the checkpoint.
        tables: by sink; a sink that had published nothing by then has none.
        objects: everything below the root but this document, ascending by key.
    """

    job: str
    checkpoint_id: int
    timeline: str
    created_ms: int
    code_hash: str
    spec_hash: str
    spec_text: str
    max_parallelism: int
    tables: Mapping[str, SavedTable]
    objects: tuple[ObjectHandle, ...]

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(handle.size for handle in self.objects)

    @property
    def metadata(self) -> ObjectHandle:
        """The checkpoint's `_metadata`."""
        return next(handle for handle in self.objects if handle.key == METADATA_NAME)

    def encode(self) -> bytes:
        """Canonical JSON."""
        document = {
            "format": DOCUMENT_FORMAT,
            "job": self.job,
            "checkpoint": self.checkpoint_id,
            "timeline": self.timeline,
            "created_ms": self.created_ms,
            "code_hash": self.code_hash,
            "spec_hash": self.spec_hash,
            "spec": self.spec_text,
            "max_parallelism": self.max_parallelism,
            "tables": {
                name: {
                    "mode": table.mode,
                    "key": list(table.key),
                    "schema": table.schema,
                    "files": [to_json(file) for file in table.files],
                }
                for name, table in self.tables.items()
            },
            "objects": [{"key": one.key, "size": one.size, "sha256": one.sha256} for one in self.objects],
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_document(body: bytes, where: str) -> SavepointDocument:
    """Read a `savepoint.json`. Strict: raises StateCorrupt.

    Args:
        where: the savepoint's location, for messages.
    """
    what = f"{SAVEPOINT_DOCUMENT} of {where}"
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StateCorrupt(f"{what}: is not JSON. Nothing was copied.") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != DOCUMENT_FORMAT:
        raise StateCorrupt(
            f"{what}: expected the format {DOCUMENT_FORMAT}, got {found!r}. Nothing was copied.",
            hint="another version of Milepost wrote it, or it is no savepoint",
        )
    fields = exact_fields(what, document, _FIELDS)
    if not JOB_NAME_PATTERN.fullmatch(fields["job"]):
        raise StateCorrupt(f"{what}: {fields['job']!r} is not the name of a job. Nothing was copied.")
    for name in ("checkpoint", "created_ms", "max_parallelism"):
        if fields[name] <= 0:
            raise StateCorrupt(f"{what}: {name} is {fields[name]}, expected more than 0. Nothing was copied.")
    if fields["checkpoint"] >= MAX_CHECKPOINT_ID:
        raise StateCorrupt(f"{what}: checkpoint {fields['checkpoint']} cannot be. Nothing was copied.")
    objects = tuple(_object(what, item) for item in fields["objects"])
    keys = [one.key for one in objects]
    if keys != sorted(set(keys)):
        raise StateCorrupt(f"{what}: its objects are not in order, or one is named twice. Nothing was copied.")
    if METADATA_NAME not in keys:
        raise StateCorrupt(f"{what}: {METADATA_NAME} is not among its objects. Nothing was copied.")
    return SavepointDocument(
        job=fields["job"],
        checkpoint_id=fields["checkpoint"],
        timeline=fields["timeline"],
        created_ms=fields["created_ms"],
        code_hash=fields["code_hash"],
        spec_hash=fields["spec_hash"],
        spec_text=fields["spec"],
        max_parallelism=fields["max_parallelism"],
        tables={name: _table(what, name, item) for name, item in fields["tables"].items()},
        objects=objects,
    )


_FIELDS: dict[str, Any] = {
    "format": str,
    "job": str,
    "checkpoint": int,
    "timeline": str,
    "created_ms": int,
    "code_hash": str,
    "spec_hash": str,
    "spec": str,
    "max_parallelism": int,
    "tables": dict,
    "objects": list,
}


def table_file_key(sink: str, number: int, file: StagedFile) -> str:
    """Return where a savepoint keeps the n-th file of a sink's table, from 0."""
    return f"tables/{sink}/{number:08d}-{file.sha256}.parquet"


def renamed(file: StagedFile, key: str) -> StagedFile:
    """Return the same file under another key."""
    return replace(file, key=key)


def _object(what: str, item: object) -> ObjectHandle:
    fields = exact_fields(f"{what}: an object", item, {"key": str, "size": int, "sha256": str})
    key = fields["key"]
    fault = key_fault(key) or (None if _KEY.fullmatch(key) else "it is none of a savepoint's keys")
    if fault is not None:
        raise StateCorrupt(f"{what}: object {key!r} is refused: {fault}. It was neither read nor deleted.")
    if not 0 <= fields["size"] <= MAX_OBJECT_BYTES or not _SHA256.fullmatch(fields["sha256"]):
        raise StateCorrupt(
            f"{what}: object {key!r} has {fields['size']} bytes and SHA-256 {fields['sha256'][:80]!r}, which cannot be."
            " Nothing was copied."
        )
    return ObjectHandle(**fields)


def _table(what: str, name: str, item: object) -> SavedTable:
    fields = exact_fields(f"{what}: table {name!r}", item, {"mode": str, "key": list, "schema": str, "files": list})
    if fields["mode"] not in _MODES or not all(isinstance(column, str) for column in fields["key"]):
        raise StateCorrupt(f"{what}: table {name!r} has no known mode or key. Nothing was copied.")
    decode_schema(fields["schema"])
    files = tuple(from_json(StagedFile, file, "staged file") for file in fields["files"])
    for number, file in enumerate(files):
        if file.key != table_file_key(name, number, file):
            raise StateCorrupt(f"{what}: table {name!r}: {file.key!r} is not its file {number}. Nothing was copied.")
    return SavedTable(fields["mode"], tuple(fields["key"]), fields["schema"], files)
