"""The records of a sink chain, and their JSON: heads, snapshots, marks.

Stored text is checked when it is read: a field too many or too few, a key that does not have the shape staging gives
it, or a count that cannot be, is `StateCorrupt`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from milepost.dataflow.sinks.committables import Committable, SchemaText, SinkMark, StagedFile
from milepost.protocol.codec.records import decode, encode
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.stored_fields import Count

HEADS = "_heads/"
SNAPSHOTS = "_snapshots/"

_TOP = 10**19
_HEAD_KEY = re.compile(r"_heads/(\d{20})\.json")
_SNAPSHOT_KEY = re.compile(r"_snapshots/(\d{20})-[0-9a-f]{64}\.json")
_DATA_KEY = re.compile(r"data/chk-(\d{20})/t(\d+)/(?:\d+|all)-[0-9a-f]{64}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def data_file_fault(file: StagedFile) -> str | None:
    """Say why staging cannot have named a file, or None; stored text never names another object."""
    named = _DATA_KEY.fullmatch(file.key) and _SHA256.fullmatch(file.sha256)
    return None if named else f"{file.key!r} is not the key of a staged file"


def snapshot_key(version: int, sha256: str) -> str:
    """Return the key of the snapshot that was written for a head."""
    return f"{SNAPSHOTS}{version:020d}-{sha256}.json"


TableFile = Annotated[StagedFile, data_file_fault]
"""A file that a stored head or snapshot names."""


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
    size: Count
    sha256: str

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        named = self.key == snapshot_key(self.version, self.sha256) and _SNAPSHOT_KEY.fullmatch(self.key)
        return None if named else f"{self.key!r} is not the key of a snapshot"


@dataclass(frozen=True, slots=True)
class MarkEntry:
    """One past commit, or step of a follow, as a snapshot remembers it."""

    stored_as_row: ClassVar[bool] = True

    version: int
    timeline: str
    checkpoint_id: int
    committable_sha256: str

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        return None if self.version > 0 else f"there is no head {self.version}"


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
    schema: SchemaText


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

    stored_format: ClassVar[str] = "milepost.table-head/1"

    version: int
    write_id: str
    owner: ChainOwner
    mark: SinkMark
    added: tuple[TableFile, ...]
    replaced_by: TableFile | None
    schema: SchemaText | None
    committable_sha256: str
    live_files: int
    snapshot: SnapshotRef | None
    decision: int
    followed_at: int
    followed: Followed | None

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        snapshot, followed = self.snapshot, self.followed
        if self.schema is None and self.live_files:
            return "has files, and no schema"
        if snapshot is not None and not 0 < snapshot.version <= self.version:
            return f"names snapshot {snapshot.version} of a later head"
        if (
            (self.decision > 0) != (self.followed_at > 0)
            or not 0 <= self.followed_at <= self.version
            or self.decision < 0
        ):
            return f"follows decision {self.decision} since head {self.followed_at}"
        if (followed is not None) != (self.decision > 0 and self.followed_at == self.version):
            return f"says both that it is a commit and that head {self.followed_at} followed a decision"
        if followed is None:
            return None
        if self.replaced_by is not None or snapshot is None or snapshot.version != self.version:
            return "follows a decision, and has no snapshot of its own"
        counts = [step.live_files for step in followed.steps]
        if counts != sorted(counts) or (counts and not 0 <= counts[0] <= counts[-1] <= self.live_files):
            return f"its steps count {counts} live files, the head {self.live_files}"
        return None


@dataclass(frozen=True, slots=True)
class ChainContent:
    """The table as of one head: its live files in commit order, and every mark it went through, oldest first."""

    files: tuple[StagedFile, ...]
    marks: tuple[MarkEntry, ...]


EMPTY_CONTENT = ChainContent((), ())


@dataclass(frozen=True, slots=True)
class _StoredContent:
    """The content as of head `version`, as a snapshot has it."""

    stored_format: ClassVar[str] = "milepost.table-snapshot/1"

    version: int
    files: tuple[TableFile, ...]
    marks: tuple[MarkEntry, ...]

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        versions = [entry.version for entry in self.marks]
        whole = versions[-1:] == [self.version] and versions == sorted(versions)
        return None if whole else f"its marks do not lead to head {self.version}"


def head_key(version: int) -> str:
    """Return the key of head `version`; newer heads sort first."""
    return f"{HEADS}{_TOP - version:020d}.json"


def head_version(key: str) -> int:
    """Inverse of `head_key`. Raises StateCorrupt."""
    match = _HEAD_KEY.fullmatch(key)
    if match is None or int(match[1]) >= _TOP:
        raise StateCorrupt(f"{key} is not the name of a sink head", key=key)
    return _TOP - int(match[1])


def snapshot_version(key: str) -> int | None:
    """Return the version of the head that a snapshot was written for; None for a key that is no snapshot's."""
    match = _SNAPSHOT_KEY.fullmatch(key)
    return None if match is None else int(match[1])


def mark_entry(head: SinkHead) -> MarkEntry:
    return MarkEntry(head.version, head.mark.timeline, head.mark.checkpoint_id, head.committable_sha256)


def content_after(content: ChainContent, head: SinkHead) -> ChainContent:
    """Return the table once the commit `head` is applied on top of `content`."""
    files = (head.replaced_by,) if head.replaced_by else content.files + head.added
    return ChainContent(files, (*content.marks, mark_entry(head)))


def check_data_key(file: StagedFile) -> StagedFile:
    """Return the file when staging could have named it. Raises StateCorrupt."""
    fault = data_file_fault(file)
    if fault is not None:
        raise StateCorrupt(fault, key=file.key)
    return file


def data_key_owner(key: str) -> tuple[CheckpointId, FencingToken] | None:
    """Return the checkpoint and token that staged a file; None for a key that staging cannot have given."""
    match = _DATA_KEY.fullmatch(key)
    return None if match is None else (CheckpointId(int(match[1])), FencingToken(int(match[2])))


def committable_digest(committable: Committable) -> str:
    """Hex SHA-256 of what a commit publishes."""
    return hashlib.sha256(encode(committable)).hexdigest()


def head_to_bytes(head: SinkHead) -> bytes:
    """Canonical JSON."""
    return encode(head)


def head_from_bytes(key: str, body: bytes) -> SinkHead:
    """Strict: raises StateCorrupt, naming the key."""
    return decode(SinkHead, body, key, key=key)


def content_to_bytes(version: int, content: ChainContent) -> bytes:
    """Canonical JSON."""
    return encode(_StoredContent(version, content.files, content.marks))


def content_from_bytes(ref: SnapshotRef, body: bytes) -> ChainContent:
    """Strict: raises StateCorrupt, naming the key."""
    stored = decode(_StoredContent, body, ref.key, key=ref.key)
    if stored.version != ref.version:
        raise StateCorrupt(f"{ref.key}: is not the snapshot of head {ref.version}", key=ref.key)
    return ChainContent(stored.files, stored.marks)
