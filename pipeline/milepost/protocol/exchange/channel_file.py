"""The channel-state file that the subtasks of one Spark task share, for one checkpoint.

Every participating subtask adds the in-flight buffers of its inputs and then finishes. When all subtasks have finished
or left, the file is written as one object, and the results become available. A failure of one subtask fails all: it
gets the cause itself, the others CHANNEL_STATE_SHARED_STREAM_EXCEPTION. Buffers are held until the file is written or
has failed, and then released, each exactly once. For two subtasks a and b::

    add_input(b, buffer 1), finish_input(b), finish_output(b)
    add_input(a, buffer 2), finish_input(a), finish_output(a)     WriteFile: a's buffer 2, b's buffer 1
    written(file)                                                 results complete, Release of both buffers

Source: Flink ChannelStateCheckpointWriter and ChannelStateWriteResult.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.exchange.barrier import EventKind
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class InputChannel:
    """Origin of a buffer: the producer of its rows, and the channel of that producer."""

    producer: str
    channel: int


@dataclass(frozen=True, slots=True)
class InFlightBuffer:
    """One row of the exchange that was received but not processed.

    Attributes:
        kind: only BUFFER holds data; barriers and markers are never channel state.
        size_bytes: of the payload.
        payload: what the driver needs to write the buffer; opaque here, never decoded.
    """

    kind: EventKind
    size_bytes: int
    payload: object


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """One buffer of the file, with its subtask and channel."""

    subtask: str
    channel: InputChannel
    buffer: InFlightBuffer


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write the entries as one object, then call `ChannelStateWriter.written` or `write_failed`.

    Attributes:
        entries: sorted by subtask, and by time of addition within a subtask, so that the file does not depend on which
            subtask was first.
    """

    checkpoint_id: CheckpointId
    entries: tuple[ChannelEntry, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The writer no longer holds these buffers: they are stored, or no longer needed."""

    buffers: tuple[InFlightBuffer, ...]


@dataclass(frozen=True, slots=True)
class Rethrow:
    """Raise the error after the other commands: the writer is closed and no subtask has seen the error."""

    error: CheckpointError


ChannelCommand = WriteFile | Release | Rethrow
ChannelCommands = tuple[ChannelCommand, ...]


@dataclass(frozen=True, slots=True)
class ChannelStateFailure:
    """Why there is no channel state."""

    reason: CheckpointFailureReason
    detail: str


class ChannelStateResult:
    """One subtask's part of a checkpoint's channel state: pending, then complete or failed."""

    def __init__(self) -> None:
        self._done = False
        self._failure: ChannelStateFailure | None = None
        self._file: ObjectHandle | None = None
        self._buffers: dict[InputChannel, int] = {}
        self._size_bytes = 0

    @property
    def done(self) -> bool:
        """Whether it is complete or failed."""
        return self._done

    @property
    def failure(self) -> ChannelStateFailure | None:
        return self._failure

    @property
    def file(self) -> ObjectHandle | None:
        """The shared file; None if this subtask had nothing in flight, and while the result is pending."""
        return self._file

    @property
    def buffers(self) -> Mapping[InputChannel, int]:
        """Number of this subtask's buffers in the file, by channel; empty until it is complete."""
        return MappingProxyType(self._buffers)

    @property
    def size_bytes(self) -> int:
        """Bytes of this subtask's own buffers in the file; 0 until it is complete."""
        return self._size_bytes

    def complete(self, file: ObjectHandle | None, entries: Iterable[ChannelEntry] = ()) -> None:
        """Complete the result with the subtask's entries in the stored file. Either this or `fail` is called, once."""
        own = tuple(entries)
        self._done = True
        self._file = file if own else None
        for entry in own:
            self._buffers[entry.channel] = self._buffers.get(entry.channel, 0) + 1
            self._size_bytes += entry.buffer.size_bytes

    def fail(self, failure: ChannelStateFailure) -> None:
        """Fail the result: there is no channel state."""
        self._done = True
        self._failure = failure


class FileState(Enum):
    """State of the shared file. WRITTEN, EMPTY and FAILED are final."""

    OPEN = "open"
    WRITING = "writing"
    WRITTEN = "written"
    EMPTY = "empty"
    FAILED = "failed"


class _Part:
    """Contributions of one subtask so far."""

    def __init__(self, result: ChannelStateResult) -> None:
        self.result = result
        self.entries: list[ChannelEntry] = []
        self.input_finished = False
        self.output_finished = False

    @property
    def finished(self) -> bool:
        return self.input_finished and self.output_finished


class ChannelStateFile:
    """Channel state of one checkpoint, for all subtasks of a Spark task.

    Args:
        checkpoint_id: the checkpoint.
        subtasks: subtasks that may participate, at least one. The file is complete once each has finished, or left
            before it participated.
    """

    def __init__(self, checkpoint_id: CheckpointId, subtasks: Iterable[str]) -> None:
        self._checkpoint_id = checkpoint_id
        self._awaited = set(subtasks)
        if not self._awaited:
            raise ProtocolViolation(
                f"channel state of checkpoint {checkpoint_id} refused: expected a subtask, got none"
            )
        self._parts: dict[str, _Part] = {}
        self._state = FileState.OPEN

    @property
    def state(self) -> FileState:
        return self._state

    @property
    def held(self) -> tuple[InFlightBuffer, ...]:
        """Buffers neither stored nor released, in file order."""
        return tuple(entry.buffer for entry in self._entries())

    def takes_part(self, subtask: str) -> bool:
        """Return whether the subtask has registered its result."""
        return subtask in self._parts

    def register(self, subtask: str, result: ChannelStateResult) -> None:
        """Add a subtask to the participants.

        Raises:
            ProtocolViolation: the file is no longer open, or the subtask is not expected or participates already.
        """
        if self._state is not FileState.OPEN:
            raise self._illegal(f"subtask {subtask} came when the file was {self._state.value}")
        if subtask not in self._awaited:
            raise self._illegal(f"subtask {subtask} takes part already")
        self._awaited.remove(subtask)
        self._parts[subtask] = _Part(result)

    def add_input(self, subtask: str, channel: InputChannel, buffers: Iterable[InFlightBuffer]) -> ChannelCommands:
        """Hold buffers for the file, after the subtask's earlier ones.

        Returns:
            Their release if the file has failed.
        Raises:
            ProtocolViolation: a buffer holds no data, or the subtask does not participate or has finished its input.
                None of the buffers is accepted.
        """
        accepted = tuple(buffers)
        if self._state is FileState.FAILED:
            return (Release(accepted),)
        part = self._part(subtask, "added in-flight data")
        events = [buffer.kind.value for buffer in accepted if buffer.kind is not EventKind.BUFFER]
        if events:
            raise self._illegal(f"subtask {subtask} added {events[0]} of channel {channel}, expected buffers alone")
        if part.input_finished:
            raise self._illegal(f"subtask {subtask} added in-flight data after it had finished its input")
        part.entries += [ChannelEntry(subtask, channel, buffer) for buffer in accepted]
        return ()

    def finish_input(self, subtask: str) -> ChannelCommands:
        """Record that the subtask has no more in-flight input. Idempotent.

        Raises:
            ProtocolViolation: the subtask does not participate.
        """
        if self._state is FileState.FAILED:
            return ()
        self._part(subtask, "finished its input").input_finished = True
        return self._try_finish()

    def finish_output(self, subtask: str) -> ChannelCommands:
        """Record that everything the subtask emitted before its barrier has been forwarded. Idempotent.

        Raises:
            ProtocolViolation: the subtask does not participate.
        """
        if self._state is FileState.FAILED:
            return ()
        self._part(subtask, "finished its output").output_finished = True
        return self._try_finish()

    def written(self, file: ObjectHandle) -> ChannelCommands:
        """Complete the results after the object was stored, and release the buffers.

        Returns:
            Nothing if the checkpoint was aborted during the write: the object is garbage of its token.
        Raises:
            ProtocolViolation: nothing is being written.
        """
        if self._state is FileState.FAILED:
            return ()
        if self._state is not FileState.WRITING:
            raise self._illegal(f"{file.key} was written when the file was {self._state.value}")
        self._state = FileState.WRITTEN
        for part in self._parts.values():
            part.result.complete(file, part.entries)
        return self._released()

    def fail(self, failure: ChannelStateFailure, subtask: str | None = None) -> ChannelCommands:
        """Fail the file, unless it is in a final state.

        Args:
            failure: the cause.
            subtask: that failed; all others get CHANNEL_STATE_SHARED_STREAM_EXCEPTION. None: all get the cause.
        """
        if self._state not in (FileState.OPEN, FileState.WRITING):
            return ()
        self._state = FileState.FAILED
        for name, part in self._parts.items():
            part.result.fail(failure if subtask in (None, name) else shared_failure(failure, subtask))
        return self._released()

    def _try_finish(self) -> ChannelCommands:
        all_finished = not self._awaited and all(part.finished for part in self._parts.values())
        if self._state is not FileState.OPEN or not all_finished:
            return ()
        if entries := self._entries():
            self._state = FileState.WRITING
            return (WriteFile(self._checkpoint_id, entries),)
        self._state = FileState.EMPTY
        for part in self._parts.values():
            part.result.complete(None)
        return ()

    def _released(self) -> ChannelCommands:
        held = self.held
        for part in self._parts.values():
            part.entries = []
        return (Release(held),) if held else ()

    def _entries(self) -> tuple[ChannelEntry, ...]:
        return tuple(entry for _, part in sorted(self._parts.items()) for entry in part.entries)

    def _part(self, subtask: str, operation: str) -> _Part:
        if self._state is not FileState.OPEN or subtask not in self._parts:
            raise self._illegal(f"subtask {subtask} {operation} without taking part (the file is {self._state.value})")
        return self._parts[subtask]

    def _illegal(self, what: str) -> ProtocolViolation:
        return ProtocolViolation(f"channel state of checkpoint {self._checkpoint_id}: {what}. Nothing was changed.")


def shared_failure(cause: ChannelStateFailure, subtask: str | None) -> ChannelStateFailure:
    """Return the failure for the other subtasks of a file when one of them fails."""
    return ChannelStateFailure(
        CheckpointFailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION,
        f"subtask {subtask}, which shares the file, failed: {cause.reason.value}: {cause.detail}",
    )
