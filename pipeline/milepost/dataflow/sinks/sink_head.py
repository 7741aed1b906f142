"""The records of a sink chain, and their JSON: heads, snapshots, marks.

Stored text is checked when it is read: a field too many or too few, a key that does not have the shape staging gives
it, or a count that cannot be, is `StateCorrupt`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from milepost.dataflow.sinks.contract import (
    Committable,
    SinkMark,
    StagedFile,
    decode_schema,
)
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.records.documents import exact_fields
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken

HEAD_FORMAT_1 = "milepost-sink-head/1"
HEAD_FORMAT = "milepost-sink-head/2"
"""Written. Format 1 knows no timelines but its own: it is read as decision 0, with nothing followed."""

SNAPSHOT_FORMAT = "milepost-sink-snapshot/1"
HEADS = "_heads/"
SNAPSHOTS = "_snapshots/"

_TOP = 10**19
_HEAD_KEY = re.compile(r"_heads/(\d{20})\.json")
_SNAPSHOT_KEY = re.compile(r"_snapshots/(\d{20})-[0-9a-f]{64}\.json")
_DATA_KEY = re.compile(r"data/chk-(\d{20})/t(\d+)/(?:\d+|all)-[0-9a-f]{64}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FORMAT_2_FIELDS = {"decision", "followed_at", "followed"}
_OPTIONAL_DICT = (dict, type(None))
_HEAD_FIELDS: dict[str, Any] = {
    "format": str,
    "version": int,
    "write_id": str,
    "owner": dict,
    "mark": dict,
    "added": list,
    "replaced_by": _OPTIONAL_DICT,
    "schema": (str, type(None)),
    "committable_sha256": str,
    "live_files": int,
    "snapshot": _OPTIONAL_DICT,
    "decision": int,
    "followed_at": int,
    "followed": _OPTIONAL_DICT,
}


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
class MarkEntry:
    """One past commit, or step of a follow, as a snapshot remembers it."""

    version: int
    timeline: str
    checkpoint_id: int
    committable_sha256: str


@dataclass(frozen=True, slots=True)
class FollowedStep:
    """A checkpoint between a follow's base and its mark, which was never committed by itself; readable like a commit.

    Attributes:
        live_files: the table as of this checkpoint is the first so many files of the follow's content.
        schema: of the table as of this checkpoint.
    """

    checkpoint_id: int
    committable_sha256: str
    live_files: int
    schema: str


@dataclass(frozen=True, slots=True)
class Followed:
    """What a head of a follow was made of.

    Attributes:
        base: the commit, anywhere in the table's history, that its content begins with; None for the empty table.
        steps: the checkpoints added to it, oldest first, the mark's own left out.
    """

    base: MarkEntry | None
    steps: tuple[FollowedStep, ...]


@dataclass(frozen=True, slots=True)
class SinkHead:
    """One commit of the table, or the head that lets the table follow a decision of the manifest (`followed`).

    Attributes:
        version: n, from 1, without gaps.
        write_id: of the writer; tells our own lost reply from another's commit.
        added: files of this epoch, in subtask order; of a follow, those of its checkpoints after the base.
        replaced_by: a file that holds the whole table instead of all live files up to and including this head
            (compaction), or None.
        schema: of the table after this commit (Arrow IPC, base64); None while nothing was ever published to it.
        committable_sha256: digest of what was committed, so that one mark never means two contents.
        live_files: how many files a reader of this head opens.
        snapshot: newest one; that of a follow is of its own version, and says the whole content.
        decision: manifest version of the newest decision that the table follows; 0 before the first.
        followed_at: version of the head that followed it; 0 before the first. The head before that one is the end of
            the lineage that was left.
        followed: what this very head follows with; None for a commit.
    """

    version: int
    write_id: str
    owner: ChainOwner
    mark: SinkMark
    added: tuple[StagedFile, ...]
    replaced_by: StagedFile | None
    schema: str | None
    committable_sha256: str
    live_files: int
    snapshot: SnapshotRef | None
    decision: int
    followed_at: int
    followed: Followed | None


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


def snapshot_version(key: str) -> int | None:
    """The version of the head that a snapshot was written for; None for a key that is no snapshot's."""
    match = _SNAPSHOT_KEY.fullmatch(key)
    return None if match is None else int(match[1])


def mark_entry(head: SinkHead) -> MarkEntry:
    return MarkEntry(head.version, head.mark.timeline, head.mark.checkpoint_id, head.committable_sha256)


def content_after(content: ChainContent, head: SinkHead) -> ChainContent:
    """The table once the commit `head` is applied on top of `content`."""
    files = (head.replaced_by,) if head.replaced_by else content.files + head.added
    return ChainContent(files, (*content.marks, mark_entry(head)))


def check_data_key(file: StagedFile) -> StagedFile:
    """Return the file when staging could have named it; stored text never names another object. StateCorrupt."""
    if not _DATA_KEY.fullmatch(file.key) or not _SHA256.fullmatch(file.sha256):
        raise StateCorrupt(f"{file.key!r} is not the key of a staged file", key=file.key)
    return file


def data_key_owner(key: str) -> tuple[CheckpointId, FencingToken] | None:
    """The checkpoint and token that staged a file; None for a key that staging cannot have given."""
    match = _DATA_KEY.fullmatch(key)
    return None if match is None else (CheckpointId(int(match[1])), FencingToken(int(match[2])))


def dump(document: dict[str, Any]) -> bytes:
    """Canonical JSON."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def committable_digest(committable: Committable) -> str:
    """Hex SHA-256 of what a commit publishes."""
    return hashlib.sha256(dump(to_json(committable))).hexdigest()


def head_to_bytes(head: SinkHead) -> bytes:
    """Format 2, canonical."""
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
            "added": [to_json(file) for file in head.added],
            "replaced_by": to_json(head.replaced_by) if head.replaced_by else None,
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
            "decision": head.decision,
            "followed_at": head.followed_at,
            "followed": _followed_to_json(head.followed) if head.followed else None,
        }
    )


def _followed_to_json(followed: Followed) -> dict[str, Any]:
    base = followed.base
    return {
        "base": base and [base.version, base.timeline, base.checkpoint_id, base.committable_sha256],
        "steps": [
            {
                "checkpoint_id": step.checkpoint_id,
                "committable_sha256": step.committable_sha256,
                "live_files": step.live_files,
                "schema": step.schema,
            }
            for step in followed.steps
        ],
    }


def head_from_bytes(key: str, body: bytes) -> SinkHead:
    """Read formats 1 and 2. Strict: raises StateCorrupt, naming the key."""
    document = _load(key, body, HEAD_FORMAT, HEAD_FORMAT_1)
    if document["format"] == HEAD_FORMAT_1:
        if not isinstance(document.get("schema"), str) or _FORMAT_2_FIELDS & document.keys():
            raise StateCorrupt(f"{key}: is not a head of the format {HEAD_FORMAT_1}", key=key)
        document = {**document, "decision": 0, "followed_at": 0, "followed": None}
    fields = exact_fields(key, document, _HEAD_FIELDS)
    owner = exact_fields(key, fields["owner"], {"job": str, "sink": str, "mode": str, "key": list})
    mark = exact_fields(key, fields["mark"], {"timeline": str, "checkpoint_id": int, "predecessor": (int, type(None))})
    replaced_by, followed = fields["replaced_by"], fields["followed"]
    head = SinkHead(
        version=fields["version"],
        write_id=fields["write_id"],
        owner=ChainOwner(owner["job"], owner["sink"], owner["mode"], tuple(map(str, owner["key"]))),
        mark=SinkMark(mark["timeline"], mark["checkpoint_id"], mark["predecessor"]),
        added=tuple(check_data_key(from_json(StagedFile, file, "staged file")) for file in fields["added"]),
        replaced_by=check_data_key(from_json(StagedFile, replaced_by, "staged file"))
        if replaced_by is not None
        else None,
        schema=fields["schema"],
        committable_sha256=fields["committable_sha256"],
        live_files=fields["live_files"],
        snapshot=_snapshot_ref(key, fields["snapshot"]) if fields["snapshot"] is not None else None,
        decision=fields["decision"],
        followed_at=fields["followed_at"],
        followed=_followed_from_json(key, followed) if followed is not None else None,
    )
    problem = _contradiction(head)
    if problem is not None:
        raise StateCorrupt(f"{key}: {problem}", key=key)
    return head


def _snapshot_ref(key: str, document: object) -> SnapshotRef:
    ref = exact_fields(key, document, {"version": int, "key": str, "size": int, "sha256": str})
    if ref["key"] != snapshot_key(ref["version"], ref["sha256"]) or not _SNAPSHOT_KEY.fullmatch(ref["key"]):
        raise StateCorrupt(f"{key}: {ref['key']!r} is not the key of a snapshot", key=key)
    return SnapshotRef(**ref)


def _followed_from_json(key: str, document: object) -> Followed:
    fields = exact_fields(key, document, {"base": (list, type(None)), "steps": list})
    types = {"checkpoint_id": int, "committable_sha256": str, "live_files": int, "schema": str}
    steps = tuple(FollowedStep(**exact_fields(key, step, types)) for step in fields["steps"])
    for step in steps:
        decode_schema(step.schema)
    return Followed(_mark_from_json(key, fields["base"]) if fields["base"] is not None else None, steps)


def _contradiction(head: SinkHead) -> str | None:
    """Why these fields cannot be those of one head; None when they can."""
    snapshot, followed = head.snapshot, head.followed
    if head.schema is not None:
        decode_schema(head.schema)
    elif head.live_files:
        return "has files, and no schema"
    if snapshot is not None and not 0 < snapshot.version <= head.version:
        return f"names snapshot {snapshot.version} of a later head"
    if (head.decision > 0) != (head.followed_at > 0) or not 0 <= head.followed_at <= head.version or head.decision < 0:
        return f"follows decision {head.decision} since head {head.followed_at}"
    if (followed is not None) != (head.decision > 0 and head.followed_at == head.version):
        return f"says both that it is a commit and that head {head.followed_at} followed a decision"
    if followed is None:
        return None
    if head.replaced_by is not None or snapshot is None or snapshot.version != head.version:
        return "follows a decision, and has no snapshot of its own"
    counts = [step.live_files for step in followed.steps]
    if counts != sorted(counts) or (counts and not 0 <= counts[0] <= counts[-1] <= head.live_files):
        return f"its steps count {counts} live files, the head {head.live_files}"
    return None


def content_to_bytes(version: int, content: ChainContent) -> bytes:
    return dump(
        {
            "format": SNAPSHOT_FORMAT,
            "version": version,
            "files": [to_json(file) for file in content.files],
            "marks": [[m.version, m.timeline, m.checkpoint_id, m.committable_sha256] for m in content.marks],
        }
    )


def content_from_bytes(ref: SnapshotRef, body: bytes) -> ChainContent:
    """Strict: raises StateCorrupt, naming the key."""
    types = {"format": str, "version": int, "files": list, "marks": list}
    fields = exact_fields(ref.key, _load(ref.key, body, SNAPSHOT_FORMAT), types)
    marks = tuple(_mark_from_json(ref.key, entry) for entry in fields["marks"])
    versions = [entry.version for entry in marks]
    if fields["version"] != ref.version or versions[-1:] != [ref.version] or versions != sorted(versions):
        raise StateCorrupt(f"{ref.key}: is not the snapshot of head {ref.version}", key=ref.key)
    files = tuple(check_data_key(from_json(StagedFile, file, "staged file")) for file in fields["files"])
    return ChainContent(files, marks)


def _mark_from_json(key: str, entry: object) -> MarkEntry:
    if not isinstance(entry, list) or [type(part) for part in entry] != [int, str, int, str] or entry[0] < 1:
        raise StateCorrupt(f"{key}: a mark is not [version, timeline, checkpoint id, sha256]", key=key)
    return MarkEntry(*entry)


def _load(key: str, body: bytes, *formats: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError as error:
        raise StateCorrupt(f"{key}: is not JSON", key=key) from error
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found not in formats:
        raise StateCorrupt(f"{key}: expected the format {' or '.join(formats)}, got {found!r}", key=key)
    return document
