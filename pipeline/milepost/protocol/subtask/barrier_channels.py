"""State of a subtask's input channels for its barrier handler: open, blocked, announced, recording.

Every change returns the commands that the driver executes to apply it, in ascending order of channels.

Source: Flink ChannelState of the barrier handlers.
"""

from __future__ import annotations

from collections.abc import Iterator

from milepost.errors import ProtocolViolation
from milepost.protocol.subtask.barrier_events import (
    BlockChannel,
    Command,
    Prioritise,
    StartRecording,
    StopRecording,
    UnblockChannel,
)


class InputChannels:
    """State of `count` input channels. Initially all are open, and none is blocked, announced or recording.

    Raises:
        ProtocolViolation: `count` is below 1.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ProtocolViolation(f"barrier handler of {count} channels refused, expected at least 1")
        self._count = count
        self._open = set(range(count))
        self._blocked: set[int] = set()
        self._recording: set[int] = set()
        self._announced: dict[int, Prioritise] = {}

    @property
    def open(self) -> frozenset[int]:
        return frozenset(self._open)

    @property
    def blocked(self) -> frozenset[int]:
        return frozenset(self._blocked)

    @property
    def recording(self) -> frozenset[int]:
        return frozenset(self._recording)

    def check_open(self, channel: int, event: str) -> None:
        """Raise ProtocolViolation if the event cannot come from this channel, which is unknown or has ended."""
        if channel not in self._open:
            fault = "has ended" if 0 <= channel < self._count else f"is unknown, expected below {self._count}"
            raise ProtocolViolation(f"channel {channel}: {event} refused, the channel {fault}. Nothing was changed.")

    def end(self, channel: int) -> None:
        self._open.remove(channel)

    def announce(self, announced: Prioritise) -> None:
        """Store the position of a channel's queued barrier, in case it has to overtake."""
        self._announced[announced.channel] = announced

    def arrive(self, channel: int) -> None:
        """Drop the announcement of a channel after its barrier has arrived."""
        self._announced.pop(channel, None)

    def block(self, channel: int) -> Iterator[Command]:
        self._blocked.add(channel)
        yield BlockChannel(channel)

    def drop(self, channel: int) -> None:
        """Drop the block of an ended channel."""
        self._blocked.discard(channel)

    def prioritise_announced(self) -> Iterator[Command]:
        for channel in sorted(self._announced):
            yield self._announced[channel]
        self._announced.clear()

    def start_recording(self) -> Iterator[Command]:
        """Record all open channels except the blocked ones, which were read up to their barrier."""
        self._recording = self._open - self._blocked
        for channel in sorted(self._recording):
            yield StartRecording(channel)

    def stop_recording(self, channel: int) -> Iterator[Command]:
        if channel in self._recording:
            self._recording.remove(channel)
            yield StopRecording(channel)

    def stop_recording_all(self) -> Iterator[Command]:
        for channel in sorted(self._recording):
            yield StopRecording(channel)
        self._recording.clear()

    def unblock_all(self) -> Iterator[Command]:
        for channel in sorted(self._blocked):
            yield UnblockChannel(channel)
        self._blocked.clear()

    def reset(self) -> None:
        """Prepare for the next checkpoint.

        Raises:
            ProtocolViolation: a channel is still blocked or recording, and would remain so permanently.
        """
        self._announced.clear()
        if self._blocked or self._recording:
            raise ProtocolViolation(
                f"the checkpoint is over, but channels {sorted(self._blocked)} are still blocked and channels"
                f" {sorted(self._recording)} recorded"
            )
