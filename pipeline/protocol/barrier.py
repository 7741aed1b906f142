"""Barriers, and their alignment over the channels of one subtask.

A channel is one sender's rows for one receiving subtask: numbered buffers, then the barrier. A barrier states count and
digest of *all* channels of its sender, so its own digest identifies the sender's attempt (I12): two attempts are the
same iff the digests are equal. Alignment is pure: events in, a verdict out; what a decline leads to is the driver's.

Source: Flink CheckpointBarrierHandler (aligned). Here all barriers exist before the receiving stage starts, so
alignment never blocks a channel; what it must prove is that every channel is whole and of one attempt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from pipeline.protocol.acknowledgements import Acknowledgement, ConsumedAttempt, Decline
from pipeline.protocol.errors import CheckpointError, EnvironmentUnusable, ProtocolViolation
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.reasons import CheckpointFailureReason


class EventKind(Enum):
    """What one row of the exchange is."""

    BUFFER = "buffer"
    BARRIER = "barrier"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class SubtaskIdentity:
    """Which subtask of which epoch answers; an attempt number is never part of it."""

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    subtask: int

    def decline(self, reason: CheckpointFailureReason, detail: str) -> Decline:
        """A refusal of the checkpoint: a value, never an exception (DESIGN 4.2)."""
        return Decline(self.checkpoint_id, self.token, self.level, self.subtask, reason, detail)

    def decline_for(self, error: CheckpointError, who: str, otherwise: CheckpointFailureReason) -> Decline:
        """A refusal because of an error that a store raised.

        A machine or service that cannot be used is no failure of the epoch, and is not counted as one; any other error
        gives the reason `otherwise`.
        """
        unusable = isinstance(error, EnvironmentUnusable)
        reason = CheckpointFailureReason.ENVIRONMENT_UNUSABLE if unusable else otherwise
        decline = self.decline(reason, f"{who}: {error.message}")
        return replace(decline, payload={"hint": error.hint}) if error.hint else decline


@dataclass(frozen=True, slots=True)
class ChannelSum:
    """What one channel carried before the barrier: number of buffers, and digest over them in order (hex)."""

    count: int
    digest: str


class ChannelDigest:
    """Accumulates the digest of one channel, buffer by buffer, in sequence order."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def add(self, operator: str, producer: str, payload: bytes) -> None:
        """Add the next buffer; `operator` and `producer` say which edge of the job graph it belongs to."""
        header = json.dumps([self._count, operator, producer, len(payload)], separators=(",", ":"))
        self._hash.update(header.encode())
        self._hash.update(payload)
        self._count += 1

    def sum(self) -> ChannelSum:
        return ChannelSum(self._count, self._hash.hexdigest())


@dataclass(frozen=True, slots=True)
class Barrier:
    """The end of the epoch's input on every channel of one sender.

    Attributes:
        checkpoint_id, token: the epoch it belongs to.
        level, subtask: the sender.
        channels: receiving subtask -> sum of that channel; empty at the last level.
        ack: the sender's acknowledgement payload (JSON): handles, counts, event times; a pure function of the plan.
        consumed: channel -> digest of the barrier the sender consumed on it; empty for a source subtask.
    """

    checkpoint_id: int
    token: int
    level: int
    subtask: int
    channels: Mapping[int, ChannelSum]
    ack: Mapping[str, Any]
    consumed: Mapping[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "token": self.token,
            "level": self.level,
            "subtask": self.subtask,
            "channels": {str(k): [v.count, v.digest] for k, v in sorted(self.channels.items())},
            "ack": self.ack,
            "consumed": {str(k): v for k, v in sorted(self.consumed.items())},
        }

    @property
    def digest(self) -> str:
        """Identifies the sender's attempt: its output on all channels, its acknowledgement, and what it consumed."""
        return hashlib.blake2b(_canonical(self.to_json()), digest_size=16).hexdigest()

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Barrier:
        return Barrier(
            checkpoint_id=document["checkpoint_id"],
            token=document["token"],
            level=document["level"],
            subtask=document["subtask"],
            channels={int(k): ChannelSum(v[0], v[1]) for k, v in document["channels"].items()},
            ack=document["ack"],
            consumed={int(k): v for k, v in document["consumed"].items()},
        )


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """What travels at the end of a channel: the sender's barrier, and those of all levels before it.

    So an acknowledgement can reach the driver only along the data that was really consumed (DESIGN 4.2).

    Attributes:
        carried: distinct barriers of earlier levels, ordered by (level, subtask, digest): canonical.
    """

    barrier: Barrier
    carried: tuple[Barrier, ...] = ()

    def encode(self) -> bytes:
        """Canonical bytes: equal attempts encode equally."""
        return _canonical({"barrier": self.barrier.to_json(), "carried": [item.to_json() for item in self.carried]})

    @staticmethod
    def decode(body: bytes) -> BarrierEvent:
        document = json.loads(body)
        return BarrierEvent(
            Barrier.from_json(document["barrier"]), tuple(Barrier.from_json(item) for item in document["carried"])
        )


def carry(events: Iterable[BarrierEvent]) -> tuple[Barrier, ...]:
    """All distinct barriers of the events, their own and the carried ones, in canonical order."""
    distinct = {barrier.digest: barrier for event in events for barrier in (event.barrier, *event.carried)}
    return tuple(sorted(distinct.values(), key=lambda item: (item.level, item.subtask, item.digest)))


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Channel:
    digest: ChannelDigest = field(default_factory=ChannelDigest)
    event: BarrierEvent | None = None


class BarrierAligner:
    """Checks that one subtask's channels are whole, and collects their barriers.

    Feed `buffer`, `barrier` and `cancel` in the order rows arrive (whole channels in any order, each in sequence
    order); `close` at the end of the input. The first problem becomes the decline and stays; later events are drained.
    """

    def __init__(self, identity: SubtaskIdentity, channels: int) -> None:
        self._identity = identity
        self._channels = [_Channel() for _ in range(channels)]
        self._decline: Decline | None = None
        self._closed = False

    def buffer(self, channel: int, sequence: int, operator: str, producer: str, payload: bytes) -> bool:
        """Take one buffer. Returns whether it belongs to a checkpoint that is still possible (else: drain it)."""
        state = self._channel(channel)
        if self._decline is not None or state is None:
            return False
        if state.event is not None:
            return self._refuse(
                CheckpointFailureReason.CHANNEL_INCOMPLETE,
                f"buffer {sequence} of channel {channel} came after its barrier",
            )
        if sequence != state.digest.count:
            expected = state.digest.count
            return self._refuse(
                CheckpointFailureReason.CHANNEL_INCOMPLETE,
                f"channel {channel}: expected buffer {expected}, got buffer {sequence}",
            )
        state.digest.add(operator, producer, payload)
        return True

    def barrier(self, channel: int, event: BarrierEvent) -> None:
        """Take a channel's barrier, and check the channel against it."""
        state = self._channel(channel)
        barrier, identity = event.barrier, self._identity
        if self._decline is not None or state is None:
            return
        if state.event is not None:
            self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, f"channel {channel} carries two barriers")
        elif (barrier.checkpoint_id, barrier.token) != (identity.checkpoint_id, identity.token):
            self._refuse(
                CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH,
                f"channel {channel}: barrier of checkpoint {barrier.checkpoint_id} token {barrier.token}, "
                f"expected checkpoint {identity.checkpoint_id} token {identity.token}",
            )
        elif (stated := barrier.channels.get(identity.subtask)) != (found := state.digest.sum()):
            count = stated.count if stated is not None else "no"
            reason = (
                CheckpointFailureReason.CHANNEL_INCOMPLETE
                if count != found.count
                else CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH
            )
            self._refuse(reason, f"channel {channel}: barrier states {count} buffers, {found.count} arrived")
        else:
            state.event = event

    def cancel(self, decline: Decline) -> None:
        """Take a cancel marker: a sender declined, so this subtask passes the first such decline on."""
        if self._decline is None:
            self._decline = decline

    def close(self) -> tuple[BarrierEvent, ...] | Decline:
        """End of the input: the barriers in channel order, or the decline.

        Raises:
            ProtocolViolation: closed twice.
        """
        if self._closed:
            raise ProtocolViolation(
                f"alignment of subtask {self._identity.level}/{self._identity.subtask} was closed twice"
            )
        self._closed = True
        missing = [index for index, state in enumerate(self._channels) if state.event is None]
        if self._decline is None and missing:
            self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, f"no barrier arrived on channel {missing[0]}")
        if self._decline is not None:
            return self._decline
        return tuple(state.event for state in self._channels if state.event is not None)

    def _channel(self, channel: int) -> _Channel | None:
        if 0 <= channel < len(self._channels):
            return self._channels[channel]
        self._refuse(
            CheckpointFailureReason.CHANNEL_INCOMPLETE,
            f"row of unknown channel {channel}, expected below {len(self._channels)}",
        )
        return None

    def _refuse(self, reason: CheckpointFailureReason, detail: str) -> bool:
        if self._decline is None:
            self._decline = self._identity.decline(reason, detail)
        return False


def acknowledgement(barrier: Barrier) -> Acknowledgement:
    """A barrier as the acknowledgement that it is: of its sender, naming the attempts it consumed (I7)."""
    return Acknowledgement(
        checkpoint_id=CheckpointId(barrier.checkpoint_id),
        token=FencingToken(barrier.token),
        level=barrier.level,
        subtask=barrier.subtask,
        attempt_digest=barrier.digest,
        consumed=tuple(
            ConsumedAttempt(barrier.level - 1, channel, digest) for channel, digest in sorted(barrier.consumed.items())
        ),
        payload=dict(barrier.ack),
    )
