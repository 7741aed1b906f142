"""The channel check holds one subtask's channels to be whole and of one attempt each (I12).

Pure: rows in, a verdict out. What a decline leads to is the driver's; when the barriers count is `BarrierHandler`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.protocol.exchange.barrier import AckEvent, Barrier, BufferHeader, ChannelDigest, SubtaskIdentity
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(slots=True)
class _Channel:
    digest: ChannelDigest = field(default_factory=ChannelDigest)
    barrier: Barrier | None = None
    ack: AckEvent | None = None


class ChannelCheck:
    """Takes the rows of one subtask's channels and says whether they are what the senders sent.

    Feed `buffer`, `barrier`, `ack` and `cancel` in the order rows arrive (whole channels in any order, each in sequence
    order); `close` at the end of the input. The first problem becomes the decline and stays; later events are drained.
    """

    def __init__(self, identity: SubtaskIdentity, channels: int) -> None:
        self._identity = identity
        self._channels = [_Channel() for _ in range(channels)]
        self._decline: Decline | None = None
        self._closed = False

    def buffer(self, channel: int, sequence: int, header: BufferHeader, payload: bytes | memoryview) -> bool:
        """Take one buffer. Returns whether it belongs to a checkpoint that is still possible (else: drain it)."""
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
        """Take a channel's barrier, and check the channel's buffers against it."""
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
        elif (stated := barrier.channels.get(identity.subtask)) != (found := state.digest.sum()):
            count = stated.count if stated is not None else "no"
            reason = (
                CheckpointFailureReason.CHANNEL_INCOMPLETE
                if count != found.count
                else CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH
            )
            self._refuse(reason, f"channel {channel}: barrier states {count} buffers, {found.count} arrived")
        else:
            state.barrier = barrier

    def ack(self, channel: int, event: AckEvent) -> None:
        """Take the acknowledgement of a channel's sender, and check that it is of the barrier that came before it."""
        state = self._channel(channel)
        if self._decline is not None or state is None:
            return
        if state.barrier is None or state.ack is not None:
            what = "two acknowledgements" if state.ack is not None else "an acknowledgement before its barrier"
            self._refuse(CheckpointFailureReason.CHANNEL_INCOMPLETE, f"channel {channel} carries {what}")
        elif event.own.barrier != state.barrier.digest:
            self._refuse(
                CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH,
                f"channel {channel}: the acknowledgement is of barrier {event.own.barrier}, "
                f"the barrier that arrived is {state.barrier.digest}",
            )
        else:
            state.ack = event

    def cancel(self, decline: Decline) -> None:
        """Take a cancel marker: a sender declined, so this subtask passes the first such decline on."""
        if self._decline is None:
            self._decline = decline

    def close(self) -> tuple[AckEvent, ...] | Decline:
        """End of the input: the acknowledgements in channel order, or the decline.

        Raises:
            ProtocolViolation: closed twice.
        """
        if self._closed:
            raise ProtocolViolation(
                f"the channels of subtask {self._identity.level}/{self._identity.subtask} were closed twice"
            )
        self._closed = True
        for what, missing in (
            ("barrier", [index for index, state in enumerate(self._channels) if state.barrier is None]),
            ("acknowledgement", [index for index, state in enumerate(self._channels) if state.ack is None]),
        ):
            if self._decline is None and missing:
                detail = f"no {what} arrived on channel {missing[0]}"
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
