"""The input gate of an operator subtask: its channels' buffers, in canonical order.

Buffers are ordered by lateness stamp, which is the order of the epochs in which their rows were read. Within a stamp,
buffers replayed from channel state come first, then the inputs in the order of the spec, channels and sequence numbers
ascending. So the rows of a key from one sender on one input have the order of a run that never leaves rows in flight,
and the order of the inputs depends only on the plan and the cuts.

A channel here is one (input, sender) pair. A sender's barrier is at the end of the buffers of each of its inputs.
Two inputs, two senders, one replayed buffer ``r``; letters are buffers, numbers their stamps, ``-`` means no stamp::

    replayed   r-          first chunk   r- a- c-   channels 1 and 2 reach their barriers
    channel 0  a-  b1      second chunk  b1 d1      channels 0 and 3 reach theirs
    channel 1  c-
    channel 2
    channel 3  d1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.errors import ProtocolViolation
from milepost.state.buffers import Buffer


@dataclass(frozen=True, slots=True)
class Chunk:
    """Buffers with one stamp that are processed together.

    Attributes:
        ended_channels: the channels whose barrier comes right after these buffers.
    """

    buffers: tuple[Buffer, ...]
    ended_channels: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self.buffers)


class InputGate:
    """Returns an operator's buffers in order, and lists those still in flight.

    Args:
        replayed: buffers from channel state; they count as the first buffers of channel 0.
        channels: buffers per channel, input by input.
    """

    def __init__(self, replayed: Sequence[Buffer], channels: Sequence[Sequence[Buffer]]) -> None:
        queued = [(0, buffer) for buffer in replayed]
        queued += [(channel, buffer) for channel, buffers in enumerate(channels) for buffer in buffers]
        queued.sort(key=lambda item: _stamp_order(item[1].lateness_us))
        self._buffers = [buffer for _, buffer in queued]
        self._channel = [channel for channel, _ in queued]
        self._last = [-1] * len(channels)
        for position, channel in enumerate(self._channel):
            self._last[channel] = position
        self._position = 0
        self._open = list(range(len(channels)))
        self._blocked: set[int] = set()

    @property
    def in_flight(self) -> tuple[Buffer, ...]:
        """The buffers not taken yet, in order."""
        return tuple(self._buffers[self._position :])

    def barrier_positions(self) -> tuple[tuple[int, int], ...]:
        """Return (channel, position of its barrier): the number of buffers ahead of the barrier."""
        counts = [0] * len(self._last)
        for channel in self._channel:
            counts[channel] += 1
        return tuple(enumerate(counts))

    def unread(self) -> dict[int, list[Buffer]]:
        """Return the untaken buffers of each channel that has any."""
        buffers: dict[int, list[Buffer]] = {}
        for position in range(self._position, len(self._buffers)):
            buffers.setdefault(self._channel[position], []).append(self._buffers[position])
        return buffers

    def block(self, channel: int) -> None:
        """Forbid taking further buffers of a channel."""
        self._blocked.add(channel)

    def unblock(self, channel: int) -> None:
        self._blocked.discard(channel)

    def take(self, limit_bytes: int | None) -> Chunk:
        """Take the next chunk: at least one buffer if any is left, and then at most `limit_bytes`.

        Raises:
            ProtocolViolation: the next buffer belongs to a blocked channel.
        """
        start, size = self._position, 0
        while self._position < len(self._buffers):
            buffer, channel = self._buffers[self._position], self._channel[self._position]
            if self._position > start:
                too_large = limit_bytes is not None and size + buffer.size > limit_bytes
                if too_large or buffer.lateness_us != self._buffers[start].lateness_us:
                    break
            if channel in self._blocked:
                self._position = start
                raise ProtocolViolation(f"channel {channel} is blocked and holds a buffer. Nothing was handed out.")
            size += buffer.size
            self._position += 1
        ended_channels = tuple(channel for channel in self._open if self._last[channel] < self._position)
        self._open = [channel for channel in self._open if self._last[channel] >= self._position]
        return Chunk(tuple(self._buffers[start : self._position]), ended_channels)


def _stamp_order(lateness_us: int | None) -> tuple[bool, int]:
    return (lateness_us is not None, lateness_us or 0)
