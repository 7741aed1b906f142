"""One operator subtask's input: its channels, in the one order in which their buffers are processed.

The order is canonical: by lateness stamp, which is the order of the epochs in which rows were read; within a stamp the
buffers replayed from channel state, then inputs as the spec names them, channels ascending, sequence ascending. So rows
of a key that one sender sent on one input come in the order of a run that never leaves any in flight, and which input's
turn it is follows from plan and cuts alone. A channel here is one (input, sender): a barrier of a sender stands at the
end of each of its inputs' buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.errors import ProtocolViolation
from milepost.state.buffers.buffers import Buffer


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next buffers to process together, all of one stamp, and the channels that reach their barrier with them."""

    buffers: tuple[Buffer, ...]
    ended: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self.buffers)


class InputGate:
    """Hands out an operator's buffers in order, and says what is still in flight.

    Args:
        replayed: from channel state; they stand in front of the first channel.
        channels: buffers per channel, input by input.
    """

    def __init__(self, replayed: Sequence[Buffer], channels: Sequence[Sequence[Buffer]]) -> None:
        queued = [(0, buffer) for buffer in replayed]
        queued += [(channel, buffer) for channel, buffers in enumerate(channels) for buffer in buffers]
        queued.sort(key=lambda item: _order(item[1].lateness_us))
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
        """Everything that was not handed out, in order."""
        return tuple(self._buffers[self._position :])

    def announced(self) -> tuple[tuple[int, int], ...]:
        """Return each channel, and the position of its barrier: how many buffers stand before it."""
        counts = [0] * len(self._last)
        for channel in self._channel:
            counts[channel] += 1
        return tuple(enumerate(counts))

    def unread(self) -> dict[int, list[Buffer]]:
        """Return what each channel holds before its barrier; channels without anything are left out."""
        found: dict[int, list[Buffer]] = {}
        for position in range(self._position, len(self._buffers)):
            found.setdefault(self._channel[position], []).append(self._buffers[position])
        return found

    def block(self, channel: int) -> None:
        """Hand out nothing more of a channel."""
        self._blocked.add(channel)

    def unblock(self, channel: int) -> None:
        self._blocked.discard(channel)

    def take(self, limit_bytes: int | None) -> Chunk:
        """Hand out the next chunk: at least one buffer if there is one, else no more than `limit_bytes`.

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
        ended = tuple(channel for channel in self._open if self._last[channel] < self._position)
        self._open = [channel for channel in self._open if self._last[channel] >= self._position]
        return Chunk(tuple(self._buffers[start : self._position]), ended)


def _order(lateness_us: int | None) -> tuple[bool, int]:
    return (lateness_us is not None, lateness_us or 0)
