"""Entries of the manifest log, and the tombstones that compaction replaces them with (I6).

A tombstone keeps the key taken and drops the state. It is a pure function of its entry, so every writer, however often
or late, writes the same bytes. It retains what old versions are still read for: the write id, the time, the event's
type, the checkpoints it started or ended, and `next_checkpoint_id`. Checkpoint ids increase with versions (I5), so a
binary search over `next_checkpoint_id` finds the version of any trigger. For a completion it also retains what a
replay needs.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointsSubsumed,
    Event,
    ForkDisposed,
    JobCanceled,
    aborts_of,
)
from milepost.protocol.manifest.transaction.transitions import checkpoints_of
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import IMPORT_SESSION_PREFIX, CheckpointId, Epoch, FencingToken
from milepost.protocol.records.layout import input_key
from milepost.protocol.records.manifest_state import ManifestState

_ABORTING = {event.__name__ for event in (CheckpointAborted, ForkDisposed, JobCanceled)}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One manifest version.

    Attributes:
        version: equals `state.version`.
        write_id: unique to one attempt to write. After a lost reply the writer recognizes its own entry by it (I1).
    """

    version: int
    write_id: str
    event: Event
    state: ManifestState

    @property
    def next_checkpoint_id(self) -> CheckpointId:
        """That of the state. Named as in `Tombstone`, so that both kinds can be searched for a trigger."""
        return self.state.next_checkpoint_id


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """The event of one manifest version without the resulting state, which is far cheaper to decode."""

    version: int
    event: Event


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """What the log retains permanently of a completed checkpoint: its ancestry, and the input of its epoch.

    Attributes:
        parent: checkpoint it continued; 0 for the first.
        token: the winning one.
        plan: the input record.
        watermark: at the end of the epoch, as in its summary; None: none yet.
        imported: it was restored or bootstrapped instead of computed, so no recorded input reproduces it.
    """

    checkpoint_id: CheckpointId
    epoch: Epoch
    parent: CheckpointId
    token: FencingToken
    plan: ObjectHandle
    watermark: str | None
    imported: bool


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One compacted manifest version.

    Attributes:
        write_id: of the replaced entry: a writer that lost its reply still recognizes its entry by it (I1).
        at_ms, event: when the event happened, and the name of its type.
        next_checkpoint_id: of the replaced entry's state.
        checkpoint_ids: checkpoints of the event, ascending; () for subsumptions, which may have many.
        reason: of an abort: the name of its CheckpointFailureReason. None for other events.
        completed: of a completion. None for other events.
    """

    version: int
    write_id: str
    at_ms: int
    event: str
    next_checkpoint_id: CheckpointId
    checkpoint_ids: tuple[CheckpointId, ...] = ()
    reason: str | None = None
    completed: CompletedEpoch | None = None


_DIGEST_CHARACTERS = 43
_UTC = "+00:00"
"""Suffix of every watermark except ``end``, the end of event time."""

CompletedRow = tuple[int, int, int, str, int, str | None, int]
TombstoneRow = tuple[int, str, int, str, int, tuple[int, ...], str | None, CompletedRow | None]
"""The stored form. Fields have positions instead of names, which would double the size::

    ["milepost.tombstone/1", 7, "w7", 1700, "CheckpointCompleted", 4, [3], null,
     [3, 2, 6, "q6urq6ur…q6s", 210, "2026-01-01T00:00:00", 0]]

is version 7, which completed checkpoint 3: epoch 3, parent 2, token 6, an input record of 210 bytes with the SHA-256
``abab…ab`` in base64, a watermark in UTC, not imported.
"""


def completed_epoch(checkpoint: CompletedCheckpoint) -> CompletedEpoch:
    """Return the part of a completed checkpoint that is retained permanently."""
    watermark = checkpoint.summary.get("watermark")
    return CompletedEpoch(
        checkpoint.checkpoint_id,
        checkpoint.epoch,
        checkpoint.parent,
        checkpoint.token,
        checkpoint.plan,
        watermark if isinstance(watermark, str) else None,
        checkpoint.session_id.startswith(IMPORT_SESSION_PREFIX),
    )


def tombstone_of(entry: LogEntry) -> Tombstone:
    """Return the tombstone that replaces an entry.

    Raises:
        ProtocolViolation: the input record's key does not contain its digest, so the tombstone could not name it.
    """
    event = entry.event
    completed = completed_epoch(event.checkpoint) if isinstance(event, CheckpointCompleted) else None
    if completed is not None and completed.plan.key != input_key(completed.plan.sha256):
        raise ProtocolViolation(
            f"manifest version {entry.version}: compaction refused: expected the input record"
            f" {input_key(completed.plan.sha256)}, got {completed.plan.key}. Nothing was written."
        )
    return Tombstone(
        entry.version,
        entry.write_id,
        event.at_ms,
        type(event).__name__,
        entry.next_checkpoint_id,
        () if isinstance(event, CheckpointsSubsumed) else checkpoints_of(event),
        event.reason.value if isinstance(event, CheckpointAborted) else None,
        completed,
    )


def event_name(entry: LogEntry | Tombstone) -> str:
    """Return the type name of an entry's event."""
    return entry.event if isinstance(entry, Tombstone) else type(entry.event).__name__


def completion_of(entry: LogEntry | LoggedEvent | Tombstone) -> CompletedEpoch | None:
    """Return the retained part of the checkpoint that an entry completed; None: it completed none."""
    if isinstance(entry, Tombstone):
        return entry.completed
    return completed_epoch(entry.event.checkpoint) if isinstance(entry.event, CheckpointCompleted) else None


def aborted_by(entry: LogEntry | LoggedEvent | Tombstone) -> tuple[CheckpointId, ...]:
    """Return the checkpoints that an entry aborted."""
    if isinstance(entry, Tombstone):
        return entry.checkpoint_ids if entry.event in _ABORTING else ()
    return tuple(aborted.pending.checkpoint_id for aborted in aborts_of(entry.event))


def to_row(tombstone: Tombstone) -> TombstoneRow:
    """Return the stored form of a tombstone."""
    completed = tombstone.completed
    return (
        tombstone.version,
        tombstone.write_id,
        tombstone.at_ms,
        tombstone.event,
        tombstone.next_checkpoint_id,
        tombstone.checkpoint_ids,
        tombstone.reason,
        None
        if completed is None
        else (
            completed.epoch,
            completed.parent,
            completed.token,
            urlsafe_b64encode(bytes.fromhex(completed.plan.sha256)).decode().rstrip("="),
            completed.plan.size,
            None if completed.watermark is None else completed.watermark.removesuffix(_UTC),
            int(completed.imported),
        ),
    )


def from_row(row: TombstoneRow) -> Tombstone:
    """Return the tombstone of a stored row. Raises ValueError: `to_row` cannot have made the row."""
    version, write_id, at_ms, event, next_checkpoint_id, ids, reason, completed = row
    tombstone = Tombstone(
        version,
        write_id,
        at_ms,
        event,
        CheckpointId(next_checkpoint_id),
        tuple(CheckpointId(checkpoint_id) for checkpoint_id in ids),
        reason,
        None if completed is None else _completed(ids, completed),
    )
    if to_row(tombstone) != row:
        raise ValueError(f"not in canonical form: {row}")
    return tombstone


def _completed(ids: tuple[int, ...], row: CompletedRow) -> CompletedEpoch:
    epoch, parent, token, digest, size, watermark, imported = row
    (checkpoint_id,) = ids
    if len(digest) != _DIGEST_CHARACTERS:
        raise ValueError(f"{digest!r} is not the digest of an input record")
    sha256 = urlsafe_b64decode(digest + "=").hex()
    return CompletedEpoch(
        CheckpointId(checkpoint_id),
        Epoch(epoch),
        CheckpointId(parent),
        FencingToken(token),
        ObjectHandle(input_key(sha256), size, sha256),
        watermark if watermark in (None, "end") else f"{watermark}{_UTC}",
        imported == 1,
    )
