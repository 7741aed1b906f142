"""The records of a sink chain, and their JSON: heads, snapshots, marks.

Stored text is checked when it is read: a field too many or too few, a key that does not have the shape staging gives
it, or a count that cannot be, is `StateCorrupt`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pipeline.protocol.documents import exact_fields
from pipeline.protocol.errors import StateCorrupt
from pipeline.sinks.contract import (
    SinkMark,
    StagedFile,
    decode_schema,
    staged_file_from_json,
    staged_file_to_json,
)

HEAD_FORMAT = "milepost-sink-head/1"
SNAPSHOT_FORMAT = "milepost-sink-snapshot/1"
HEADS = "_heads/"
SNAPSHOTS = "_snapshots/"

_TOP = 10**19
_HEAD_KEY = re.compile(r"_heads/(\d{20})\.json")
_SNAPSHOT_KEY = re.compile(r"_snapshots/\d{20}-[0-9a-f]{64}\.json")
_DATA_KEY = re.compile(r"data/chk-\d{20}/t\d+/(?:\d+|all)-[0-9a-f]{64}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ChainOwner:
    """Whose table this is and how its rows are meant; every head repeats it, and a path has one for ever.

    Attributes:
        key: key columns of an upsert table, () for append.
    """

    job: str
    sink: str
    mode: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The snapshot that was newest when a head was written: content as of head `version`, itself included."""

    version: int
    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SinkHead:
    """One commit of the table.

    Attributes:
        version: n, from 1, without gaps.
        write_id: of the writer; tells our own lost reply from another's commit.
        added: files of this epoch, in subtask order. replaced_by: a file that holds the whole table instead of all
            live files up to and including this head (compaction), or None.
        schema: of the table after this commit (Arrow IPC, base64).
        committable_sha256: digest of what was committed, so that one mark never means two contents.
        live_files: how many files a reader of this head opens.
    """

    version: int
    write_id: str
    owner: ChainOwner
    mark: SinkMark
    added: tuple[StagedFile, ...]
    replaced_by: StagedFile | None
    schema: str
    committable_sha256: str
    live_files: int
    snapshot: SnapshotRef | None


@dataclass(frozen=True, slots=True)
class MarkEntry:
    """One past commit, as a snapshot remembers it."""

    version: int
    timeline: str
    checkpoint_id: int
    committable_sha256: str


@dataclass(frozen=True, slots=True)
class ChainContent:
    """The table as of one head: its live files in commit order, and every mark it went through, oldest first."""

    files: tuple[StagedFile, ...]
    marks: tuple[MarkEntry, ...]


EMPTY_CONTENT = ChainContent((), ())


def head_key(version: int) -> str:
    """The key of head `version`; newer heads sort first."""
    return f"{HEADS}{_TOP - version:020d}.json"


def head_version(key: str) -> int:
    """Inverse of `head_key`. Raises StateCorrupt."""
    match = _HEAD_KEY.fullmatch(key)
    if match is None or int(match[1]) >= _TOP:
        raise StateCorrupt(f"{key} is not the name of a sink head", key=key)
    return _TOP - int(match[1])


def snapshot_key(version: int, sha256: str) -> str:
    return f"{SNAPSHOTS}{version:020d}-{sha256}.json"


def content_after(content: ChainContent, head: SinkHead) -> ChainContent:
    """The table once `head` is applied on top of `content`."""
    entry = MarkEntry(head.version, head.mark.timeline, head.mark.checkpoint_id, head.committable_sha256)
    files = (head.replaced_by,) if head.replaced_by else content.files + head.added
    return ChainContent(files, (*content.marks, entry))


def check_data_key(file: StagedFile) -> StagedFile:
    """Return the file when staging could have named it; stored text never names another object. StateCorrupt."""
    if not _DATA_KEY.fullmatch(file.key) or not _SHA256.fullmatch(file.sha256):
        raise StateCorrupt(f"{file.key!r} is not the key of a staged file", key=file.key)
    return file


def dump(document: dict[str, Any]) -> bytes:
    """Canonical JSON."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def head_to_bytes(head: SinkHead) -> bytes:
    owner, mark, snapshot = head.owner, head.mark, head.snapshot
    return dump(
        {
            "format": HEAD_FORMAT,
            "version": head.version,
            "write_id": head.write_id,
            "owner": {"job": owner.job, "sink": owner.sink, "mode": owner.mode, "key": list(owner.key)},
            "mark": {
                "timeline": mark.timeline,
                "checkpoint_id": mark.checkpoint_id,
                "predecessor": mark.predecessor,
            },
            "added": [staged_file_to_json(file) for file in head.added],
            "replaced_by": staged_file_to_json(head.replaced_by) if head.replaced_by else None,
            "schema": head.schema,
            "committable_sha256": head.committable_sha256,
            "live_files": head.live_files,
            "snapshot": snapshot
            and {
                "version": snapshot.version,
                "key": snapshot.key,
                "size": snapshot.size,
                "sha256": snapshot.sha256,
            },
        }
    )


def head_from_bytes(key: str, body: bytes) -> SinkHead:
    """Strict: raises StateCorrupt, naming the key."""
    optional_dict = (dict, type(None))
    fields = exact_fields(
        key,
        _load(key, body, HEAD_FORMAT),
        {
            "format": str,
            "version": int,
            "write_id": str,
            "owner": dict,
            "mark": dict,
            "added": list,
            "replaced_by": optional_dict,
            "schema": str,
            "committable_sha256": str,
            "live_files": int,
            "snapshot": optional_dict,
        },
    )
    owner = exact_fields(key, fields["owner"], {"job": str, "sink": str, "mode": str, "key": list})
    mark = exact_fields(key, fields["mark"], {"timeline": str, "checkpoint_id": int, "predecessor": (int, type(None))})
    decode_schema(fields["schema"])
    replaced_by, snapshot = fields["replaced_by"], None
    if fields["snapshot"] is not None:
        ref = exact_fields(key, fields["snapshot"], {"version": int, "key": str, "size": int, "sha256": str})
        snapshot = SnapshotRef(**ref)
        if ref["key"] != snapshot_key(ref["version"], ref["sha256"]) or not _SNAPSHOT_KEY.fullmatch(ref["key"]):
            raise StateCorrupt(f"{key}: {ref['key']!r} is not the key of a snapshot", key=key)
        if not 0 < snapshot.version <= fields["version"]:
            raise StateCorrupt(f"{key}: names snapshot {snapshot.version} of a later head", key=key)
    return SinkHead(
        version=fields["version"],
        write_id=fields["write_id"],
        owner=ChainOwner(owner["job"], owner["sink"], owner["mode"], tuple(map(str, owner["key"]))),
        mark=SinkMark(mark["timeline"], mark["checkpoint_id"], mark["predecessor"]),
        added=tuple(check_data_key(staged_file_from_json(file)) for file in fields["added"]),
        replaced_by=check_data_key(staged_file_from_json(replaced_by)) if replaced_by is not None else None,
        schema=fields["schema"],
        committable_sha256=fields["committable_sha256"],
        live_files=fields["live_files"],
        snapshot=snapshot,
    )


def content_to_bytes(version: int, content: ChainContent) -> bytes:
    return dump(
        {
            "format": SNAPSHOT_FORMAT,
            "version": version,
            "files": [staged_file_to_json(file) for file in content.files],
            "marks": [[m.version, m.timeline, m.checkpoint_id, m.committable_sha256] for m in content.marks],
        }
    )


def content_from_bytes(ref: SnapshotRef, body: bytes) -> ChainContent:
    """Strict: raises StateCorrupt, naming the key."""
    types = {"format": str, "version": int, "files": list, "marks": list}
    fields = exact_fields(ref.key, _load(ref.key, body, SNAPSHOT_FORMAT), types)
    if fields["version"] != ref.version or not 0 < len(fields["marks"]) <= ref.version:
        raise StateCorrupt(f"{ref.key}: is not the snapshot of head {ref.version}", key=ref.key)
    marks = []
    for entry in fields["marks"]:
        if not isinstance(entry, list) or [type(part) for part in entry] != [int, str, int, str]:
            raise StateCorrupt(f"{ref.key}: a mark is not [version, timeline, checkpoint id, sha256]", key=ref.key)
        marks.append(MarkEntry(*entry))
    files = tuple(check_data_key(staged_file_from_json(file)) for file in fields["files"])
    return ChainContent(files, tuple(marks))


def _load(key: str, body: bytes, expected_format: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError as error:
        raise StateCorrupt(f"{key}: is not JSON", key=key) from error
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found != expected_format:
        raise StateCorrupt(f"{key}: expected the format {expected_format}, got {found!r}", key=key)
    return document
