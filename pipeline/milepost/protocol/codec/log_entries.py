"""The entries of the manifest log, and what compaction leaves of one: the key stays taken, the state goes (I6).

A tombstone is a pure function of the entry that it replaces, so whoever writes it, and however often or late, writes
the same bytes. It keeps what is asked of old versions: whose write has the version, what happened when, which
checkpoints it began or ended, and the id that the next trigger would have taken, by which the version of any trigger is
found without walking the log (ids rise strictly with versions, I5). Of a completion also what a replay needs.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

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
from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.ids import IMPORT_SESSION_PREFIX, CheckpointId, Epoch, FencingToken
from milepost.protocol.records.layout import input_key
from milepost.protocol.records.manifest_state import ManifestState

_ABORTING = {event.__name__ for event in (CheckpointAborted, ForkDisposed, JobCanceled)}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One manifest version.

    Attributes:
        version: equals `state.version`.
        write_id: unique to one attempt to write: after a lost reply its writer knows its own entry by it (I1).
    """

    version: int
    write_id: str
    event: Event
    state: ManifestState

    @property
    def next_checkpoint_id(self) -> CheckpointId:
        """Of the state: as `Tombstone.next_checkpoint_id`, so that a trigger is found among entries of both kinds."""
        return self.state.next_checkpoint_id


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """What one manifest version says that happened, without the state that it led to: a fraction of the work."""

    version: int
    event: Event


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """What the log keeps for ever of a completed checkpoint: its place in a lineage, and what its epoch was to read.

    Attributes:
        parent: checkpoint it continued; 0 for the first.
        token: the winning one.
        plan: the input record.
        watermark: at its end, as its summary says it; None: none yet.
        imported: no epoch made it: it was restored or bootstrapped, and no recorded input leads to it.
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
        write_id: of the entry that was there: a writer that lost its reply still knows its own by it (I1).
        at_ms, event: when it was made, and the name of its event's type.
        next_checkpoint_id: of the state that it had led to.
        checkpoint_ids: those that the event concerned, ascending; () for subsumptions, which may have many.
        reason: of an abort, by the name of its CheckpointFailureReason; None for all others.
        completed: of a completion; None for all others.
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
"""What every watermark ends with, but the one that ends the event time."""

CompletedRow = tuple[int, int, int, str, int, str | None, int]
TombstoneRow = tuple[int, str, int, str, int, tuple[int, ...], str | None, CompletedRow | None]
"""As it is stored: by position, for names would take half of the bytes."""


def completed_epoch(checkpoint: CompletedCheckpoint) -> CompletedEpoch:
    """Return what is kept for ever of a completed checkpoint."""
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
    """Return what is left of an entry.

    Raises:
        ProtocolViolation: its input record is not named by its content, so that a tombstone cannot name it.
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
    """Return the name of the type of an entry's event."""
    return entry.event if isinstance(entry, Tombstone) else type(entry.event).__name__


def completion_of(entry: LogEntry | LoggedEvent | Tombstone) -> CompletedEpoch | None:
    """Return what is kept for ever of the checkpoint that an entry completed; None: it completed none."""
    if isinstance(entry, Tombstone):
        return entry.completed
    return completed_epoch(entry.event.checkpoint) if isinstance(entry.event, CheckpointCompleted) else None


def aborted_by(entry: LogEntry | LoggedEvent | Tombstone) -> tuple[CheckpointId, ...]:
    """Return the checkpoints that an entry gave up."""
    if isinstance(entry, Tombstone):
        return entry.checkpoint_ids if entry.event in _ABORTING else ()
    return tuple(aborted.pending.checkpoint_id for aborted in aborts_of(entry.event))


def to_row(tombstone: Tombstone) -> TombstoneRow:
    """Return a tombstone as it is stored."""
    done = tombstone.completed
    return (
        tombstone.version,
        tombstone.write_id,
        tombstone.at_ms,
        tombstone.event,
        tombstone.next_checkpoint_id,
        tombstone.checkpoint_ids,
        tombstone.reason,
        None
        if done is None
        else (
            done.epoch,
            done.parent,
            done.token,
            urlsafe_b64encode(bytes.fromhex(done.plan.sha256)).decode().rstrip("="),
            done.plan.size,
            None if done.watermark is None else done.watermark.removesuffix(_UTC),
            int(done.imported),
        ),
    )


def from_row(row: TombstoneRow) -> Tombstone:
    """Return the tombstone that `to_row` made a row of. Raises ValueError: it cannot have."""
    version, write_id, at_ms, event, next_checkpoint_id, ids, reason, done = row
    tombstone = Tombstone(
        version,
        write_id,
        at_ms,
        event,
        CheckpointId(next_checkpoint_id),
        tuple(CheckpointId(one) for one in ids),
        reason,
        None if done is None else _completed(ids, done),
    )
    if to_row(tombstone) != row:
        raise ValueError(f"not as it would be written: {row}")
    return tombstone


def _completed(ids: tuple[int, ...], row: CompletedRow) -> CompletedEpoch:
    epoch, parent, token, digest, size, watermark, imported = row
    (checkpoint_id,) = ids
    if len(digest) != _DIGEST_CHARACTERS:
        raise ValueError(f"{digest!r} is no digest of an input record")
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
