"""Check that one subtask's channels are complete, each from a single attempt (I12).

Pure: rows in, a verdict out. The driver decides what follows from a decline, and `BarrierHandler` when barriers count.
With channel 0 in order, and then a gap in channel 1::

    buffer(0, 0), barrier(0), ack(0)        accepted
    buffer(1, 0), buffer(1, 2)              declined: CHANNEL_INCOMPLETE, expected buffer 1, got buffer 2
    close()                                 returns that decline
"""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.errors import ProtocolViolation
from milepost.protocol.exchange.barrier import AckEvent, Barrier, BufferHeader, ChannelDigest, SubtaskIdentity
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(slots=True)
class _Channel:
    digest: ChannelDigest = field(default_factory=ChannelDigest)
    barrier: Barrier | None = None
    ack: AckEvent | None = None


class ChannelCheck:
    """Compare the rows of one subtask's channels with what the senders sent.

    Call `buffer`, `barrier`, `ack` and `cancel` in the order of arrival (channels in any order, each in sequence
    order), and `close` at the end of the input. The first problem becomes the decline; later events are ignored.
    """

    def __init__(self, identity: SubtaskIdentity, channels: int) -> None:
        self._identity = identity
        self._channels = [_Channel() for _ in range(channels)]
        self._decline: Decline | None = None
        self._closed = False

    def buffer(self, channel: int, sequence: int, header: BufferHeader, payload: bytes | memoryview) -> bool:
        """Add one buffer. Returns whether its checkpoint is still possible; if not, drain the input."""
        state = self._channel(channel)
        if self._decline is not None or state is None:
            return False
        if state.barrier is not None:
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
        state.digest.add(header, payload)
        return True

    def barrier(self, channel: int, barrier: Barrier) -> None:
        """Add a channel's barrier, and check the channel's buffers against it."""
        state, identity = self._channel(channel), self._identity
        if self._decline is not None or state is None:
            return
        if state.barrier is not None:
            self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, f"channel {channel} carries two barriers")
        elif (barrier.checkpoint_id, barrier.token) != (identity.checkpoint_id, identity.token):
            self._refuse(
                CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH,
                f"channel {channel}: barrier of checkpoint {barrier.checkpoint_id} token {barrier.token}, "
                f"expected checkpoint {identity.checkpoint_id} token {identity.token}",
            )
        elif (stated := barrier.channels.get(identity.subtask)) != (actual := state.digest.sum()):
            count = stated.count if stated is not None else "no"
            reason = (
                CheckpointFailureReason.CHANNEL_INCOMPLETE
                if count != actual.count
                else CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH
            )
            self._refuse(reason, f"channel {channel}: barrier states {count} buffers, {actual.count} arrived")
        else:
            state.barrier = barrier

    def ack(self, channel: int, event: AckEvent) -> None:
        """Add the acknowledgement of a channel's sender, and check that it belongs to the barrier before it."""
        state = self._channel(channel)
        if self._decline is not None or state is None:
            return
        if state.barrier is None or state.ack is not None:
            event_kind = "two acknowledgements" if state.ack is not None else "an acknowledgement before its barrier"
            self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, f"channel {channel} carries {event_kind}")
        elif event.own.barrier != state.barrier.digest:
            self._refuse(
                CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH,
                f"channel {channel}: the acknowledgement is of barrier {event.own.barrier}, "
                f"the barrier that arrived is {state.barrier.digest}",
            )
        else:
            state.ack = event

    def cancel(self, decline: Decline) -> None:
        """Process a cancel marker: a sender declined, so this subtask forwards the first such decline."""
        if self._decline is None:
            self._decline = decline

    def close(self) -> tuple[AckEvent, ...] | Decline:
        """Return the acknowledgements in channel order, or the decline, at the end of the input.

        Raises:
            ProtocolViolation: closed twice.
        """
        if self._closed:
            raise ProtocolViolation(
                f"the channels of subtask {self._identity.level}/{self._identity.subtask} were closed twice"
            )
        self._closed = True
        for event_kind, missing in (
            ("barrier", [index for index, state in enumerate(self._channels) if state.barrier is None]),
            ("acknowledgement", [index for index, state in enumerate(self._channels) if state.ack is None]),
        ):
            if self._decline is None and missing:
                detail = f"no {event_kind} arrived on channel {missing[0]}"
                self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, detail)
        if self._decline is not None:
            return self._decline
        return tuple(state.ack for state in self._channels if state.ack is not None)

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
