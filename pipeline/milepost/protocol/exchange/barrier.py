"""Barriers, acknowledgements and digests of the exchange between levels.

A channel is one sender's rows for one receiving subtask: numbered buffers, then the barrier, then the acknowledgement.
The barrier states the count and digest of *all* channels of its sender, and is broadcast before the sender's snapshot.
The acknowledgement names that barrier, so its digest identifies the sender's attempt (I12): two attempts are the same
if and only if their digests are equal. A sender that declines sends a cancel marker instead of everything it has not
sent yet.

A sender with two receivers, of which the second gets no rows, sends::

    channel 0    buffer 0, buffer 1, Barrier({0: (2, d0), 1: (0, d1)}), AckEvent
    channel 1                        Barrier({0: (2, d0), 1: (0, d1)}), AckEvent

Source: Flink CheckpointBarrier, CancelCheckpointMarker. There the acknowledgement goes directly to the master. Here it
travels with the data, so it reaches the driver only along the rows that were really consumed (DESIGN 4.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any, ClassVar

from milepost.codec import AS_IS, decode, dump, encode, int_keys
from milepost.errors import CheckpointError, EnvironmentUnusable, StateCorrupt
from milepost.protocol.exchange.acknowledgements import Acknowledgement, ConsumedAttempt
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason


class EventKind(Enum):
    """The kind of one row of the exchange."""

    BUFFER = "buffer"
    BARRIER = "barrier"
    ACK = "ack"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class SubtaskIdentity:
    """The subtask and epoch of an answer. An attempt number is never part of it."""

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    subtask: int

    def decline(self, reason: CheckpointFailureReason, detail: str) -> Decline:
        """Return a decline of the checkpoint: a value, never an exception (DESIGN 4.2)."""
        return Decline(self.checkpoint_id, self.token, self.level, self.subtask, reason, detail)

    def decline_for(self, error: CheckpointError, who: str, otherwise: CheckpointFailureReason) -> Decline:
        """Return a decline because of a store's error.

        An unusable machine or service is not a failure of the epoch and is not counted as one. Any other error gets the
        reason `otherwise`.
        """
        is_unusable = isinstance(error, EnvironmentUnusable)
        reason = CheckpointFailureReason.ENVIRONMENT_UNUSABLE if is_unusable else otherwise
        detail = error.message if error.message.startswith((f"{who}: ", f"{who} ")) else f"{who}: {error.message}"
        decline = self.decline(reason, detail)
        return replace(decline, payload={"hint": error.hint}) if error.hint else decline

    def decline_for_stored(self, error: CheckpointError, who: str) -> Decline:
        """Return a decline as `decline_for`, for objects of a checkpoint or a table: damage is STATE_CORRUPT."""
        is_corrupt = isinstance(error, StateCorrupt)
        reason = CheckpointFailureReason.STATE_CORRUPT if is_corrupt else CheckpointFailureReason.IO_EXCEPTION
        return self.decline_for(error, who, reason)


@dataclass(frozen=True, slots=True)
class ChannelSum:
    """The contents of one channel before the barrier: number of buffers, and a digest over them in order (hex)."""

    stored_as_row: ClassVar[bool] = True

    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class BufferHeader:
    """Metadata of a buffer; part of the channel's digest.

    Attributes:
        operator, producer: the edge of the job graph that it belongs to.
        lateness_us: lateness watermark at which its rows were read. oldest_us: their smallest event time.
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
"""Hexadecimal digits of a channel's digest. A barrier contains those of all channels of its sender, on each of them."""


class ChannelDigest:
    """Accumulates the digest of one channel, buffer by buffer, in sequence order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()  # twice over every byte: processors have instructions for SHA-256
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
    """End of the epoch's input on every channel of one sender.

    Attributes:
        checkpoint_id, token: the epoch it belongs to.
        level, subtask: the sender.
        channels: receiving subtask -> sum of that channel; empty for the last level.
    """

    checkpoint_id: int
    token: int
    level: int
    subtask: int
    channels: Annotated[Mapping[int, ChannelSum], int_keys(ChannelSum)]

    def encode(self) -> bytes:
        """Return canonical bytes: equal barriers are encoded equally."""
        return encode(self)

    @property
    def digest(self) -> str:
        """Identifies everything that the sender sent on all its channels."""
        return _digest(self.encode())

    @staticmethod
    def decode(body: bytes) -> Barrier:
        """Return the barrier that `encode` wrote. Raises StateCorrupt."""
        return decode(Barrier, body, "barrier")


@dataclass(frozen=True, slots=True)
class SubtaskAck:
    """One subtask's acknowledgement in transit: everything up to its barrier is snapshotted and staged.

    Attributes:
        checkpoint_id, token, level, subtask: the subtask that acknowledges.
        barrier: digest of the sender's barrier.
        ack: payload (JSON): handles, counts, event times. A pure function of the plan and of where it was cut.
        consumed: channel -> digest of the acknowledgement consumed on it; empty for a source subtask.
        measured: measurements of the attempt (JSON). They differ between equal attempts, so the digest excludes them.
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
    """The event after the barrier: the sender's acknowledgement, and those of all levels upstream.

    Attributes:
        carried: distinct acknowledgements of earlier levels, in canonical order (level, subtask, digest).
    """

    own: SubtaskAck
    carried: tuple[SubtaskAck, ...] = ()

    def encode(self) -> bytes:
        """Return canonical bytes: equal attempts are encoded equally, except for their measurements."""
        return encode(self)

    @staticmethod
    def decode(body: bytes) -> AckEvent:
        """Return the event that `encode` wrote. Raises StateCorrupt."""
        return decode(AckEvent, body, "acknowledgement")


def distinct_acknowledgements(events: Iterable[AckEvent]) -> tuple[SubtaskAck, ...]:
    """Return all distinct acknowledgements of the events, own and carried ones, in canonical order."""
    distinct = {ack.digest: ack for event in events for ack in (event.own, *event.carried)}
    return tuple(sorted(distinct.values(), key=lambda item: (item.level, item.subtask, item.digest)))


def acknowledgement(ack: SubtaskAck) -> Acknowledgement:
    """Return an acknowledgement as the driver verifies it, with the attempts it consumed (I7)."""
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
