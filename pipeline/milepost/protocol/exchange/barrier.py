"""A barrier ends a channel; the sender's acknowledgement or its cancel marker follows it.

A channel is one sender's rows for one receiving subtask: numbered buffers, then the barrier, then the acknowledgement.
The barrier states count and digest of *all* channels of its sender and is broadcast before the sender's snapshot; the
acknowledgement names that barrier, so its digest identifies the sender's attempt (I12): two attempts are the same iff
the digests are equal. A sender that declines sends a cancel marker instead of what has not been sent yet.

Source: Flink CheckpointBarrier, CancelCheckpointMarker. There the acknowledgement goes straight to the master; here it
travels with the data, so it can reach the driver only along the rows that were really consumed (DESIGN 4.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any, ClassVar

from milepost.protocol.codec.records import decode, dump, encode
from milepost.protocol.exchange.acknowledgements import Acknowledgement, ConsumedAttempt
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.errors import CheckpointError, EnvironmentUnusable, StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.records.stored_fields import AS_IS, int_keys


class EventKind(Enum):
    """What one row of the exchange is."""

    BUFFER = "buffer"
    BARRIER = "barrier"
    ACK = "ack"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class SubtaskIdentity:
    """Which subtask of which epoch answers; an attempt number is never part of it."""

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    subtask: int

    def decline(self, reason: CheckpointFailureReason, detail: str) -> Decline:
        """Return a refusal of the checkpoint: a value, never an exception (DESIGN 4.2)."""
        return Decline(self.checkpoint_id, self.token, self.level, self.subtask, reason, detail)

    def decline_for(self, error: CheckpointError, who: str, otherwise: CheckpointFailureReason) -> Decline:
        """Return a refusal because of an error that a store raised.

        A machine or service that cannot be used is no failure of the epoch, and is not counted as one; any other error
        gives the reason `otherwise`.
        """
        unusable = isinstance(error, EnvironmentUnusable)
        reason = CheckpointFailureReason.ENVIRONMENT_UNUSABLE if unusable else otherwise
        detail = error.message if error.message.startswith((f"{who}: ", f"{who} ")) else f"{who}: {error.message}"
        decline = self.decline(reason, detail)
        return replace(decline, payload={"hint": error.hint}) if error.hint else decline

    def decline_for_stored(self, error: CheckpointError, who: str) -> Decline:
        """As `decline_for`, where what a checkpoint or a table consists of is read: damage of it is told as that."""
        corrupt = isinstance(error, StateCorrupt)
        reason = CheckpointFailureReason.STATE_CORRUPT if corrupt else CheckpointFailureReason.IO_EXCEPTION
        return self.decline_for(error, who, reason)


@dataclass(frozen=True, slots=True)
class ChannelSum:
    """What one channel carried before the barrier: number of buffers, and digest over them in order (hex)."""

    stored_as_row: ClassVar[bool] = True

    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class BufferHeader:
    """What a buffer says besides its rows; part of the channel's digest.

    Attributes:
        operator, producer: the edge of the job graph it belongs to.
        lateness_us: lateness watermark at which its rows were read. oldest_us: their least event time.
    """

    operator: str
    producer: str
    lateness_us: int | None
    oldest_us: int | None

    @property
    def edge(self) -> tuple[str, str]:
        return self.operator, self.producer

    @property
    def times(self) -> tuple[int | None, int | None]:
        return self.lateness_us, self.oldest_us


_DIGEST_DIGITS = 32
"""Of a channel's digest, hexadecimal: a barrier names those of all channels of its sender, on each of them."""


class ChannelDigest:
    """Accumulates the digest of one channel, buffer by buffer, in sequence order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()  # of every byte twice: processors have instructions for it
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def add(self, header: BufferHeader, payload: bytes | memoryview) -> None:
        """Add the next buffer."""
        self._hash.update(dump([self._count, *header.edge, *header.times, len(payload)]))
        self._hash.update(payload)
        self._count += 1

    def sum(self) -> ChannelSum:
        return ChannelSum(self._count, self._hash.hexdigest()[:_DIGEST_DIGITS])


@dataclass(frozen=True, slots=True)
class Barrier:
    """The end of the epoch's input on every channel of one sender.

    Attributes:
        checkpoint_id, token: the epoch it belongs to.
        level, subtask: the sender.
        channels: receiving subtask -> sum of that channel; empty at the last level.
    """

    checkpoint_id: int
    token: int
    level: int
    subtask: int
    channels: Annotated[Mapping[int, ChannelSum], int_keys(ChannelSum)]

    def encode(self) -> bytes:
        """Canonical bytes: equal barriers encode equally."""
        return encode(self)

    @property
    def digest(self) -> str:
        """Identifies what the sender sent on all its channels."""
        return _digest(self.encode())

    @staticmethod
    def decode(body: bytes) -> Barrier:
        """Read the barrier that `encode` had written. Raises StateCorrupt."""
        return decode(Barrier, body, "barrier")


@dataclass(frozen=True, slots=True)
class SubtaskAck:
    """One subtask's acknowledgement as it travels: it has snapshotted and staged everything up to its barrier.

    Attributes:
        checkpoint_id, token, level, subtask: whose it is.
        barrier: digest of the sender's barrier.
        ack: payload (JSON): handles, counts, event times; a pure function of the plan and of where it was cut.
        consumed: channel -> digest of the acknowledgement it consumed there; empty for a source subtask.
        measured: what the attempt measured (JSON). Two equal attempts differ in it: it is no part of their digest.
    """

    checkpoint_id: int
    token: int
    level: int
    subtask: int
    barrier: str
    ack: Annotated[Mapping[str, Any], AS_IS]
    consumed: Annotated[Mapping[int, str], int_keys(str)] = field(default_factory=dict)
    measured: Annotated[Mapping[str, Any], AS_IS] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Identifies the sender's attempt: its output on all channels, its acknowledgement, and what it consumed."""
        return _digest(encode(replace(self, measured={})))


@dataclass(frozen=True, slots=True)
class AckEvent:
    """What follows the barrier: the sender's acknowledgement, and those of all levels before it.

    Attributes:
        carried: distinct acknowledgements of earlier levels, ordered by (level, subtask, digest): canonical.
    """

    own: SubtaskAck
    carried: tuple[SubtaskAck, ...] = ()

    def encode(self) -> bytes:
        """Canonical bytes: equal attempts encode equally, but for what they measured."""
        return encode(self)

    @staticmethod
    def decode(body: bytes) -> AckEvent:
        """Read the event that `encode` had written. Raises StateCorrupt."""
        return decode(AckEvent, body, "acknowledgement")


def carry(events: Iterable[AckEvent]) -> tuple[SubtaskAck, ...]:
    """Return all distinct acknowledgements of the events, their own and the carried ones, in canonical order."""
    distinct = {ack.digest: ack for event in events for ack in (event.own, *event.carried)}
    return tuple(sorted(distinct.values(), key=lambda item: (item.level, item.subtask, item.digest)))


def acknowledgement(ack: SubtaskAck) -> Acknowledgement:
    """Return a travelled acknowledgement as the driver verifies it, naming the attempts it consumed (I7)."""
    return Acknowledgement(
        checkpoint_id=CheckpointId(ack.checkpoint_id),
        token=FencingToken(ack.token),
        level=ack.level,
        subtask=ack.subtask,
        attempt_digest=ack.digest,
        consumed=tuple(
            ConsumedAttempt(ack.level - 1, channel, digest) for channel, digest in sorted(ack.consumed.items())
        ),
        payload=dict(ack.ack),
        measured=dict(ack.measured),
    )


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
