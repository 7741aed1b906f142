"""The file that the subtasks of one Spark task share for the channel state of one checkpoint.

Every subtask that takes part adds the buffers that its inputs have in flight and finishes; when all have finished, or
left, the file is written as one object, and only then are the results there. One subtask's failure is everybody's: the
cause for itself, CHANNEL_STATE_SHARED_STREAM_EXCEPTION for the others. Buffers are held until the file is written or
has failed, and released then, each exactly once.

Source: Flink ChannelStateCheckpointWriter and ChannelStateWriteResult.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from milepost.protocol.exchange.barrier import EventKind
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import CheckpointError, ProtocolViolation
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class InputChannel:
    """Where a buffer came from: the producer whose rows it holds, and the channel of that producer."""

    producer: str
    channel: int


@dataclass(frozen=True, slots=True)
class InFlightBuffer:
    """One row of the exchange that was received and not processed.

    Attributes:
        kind: only BUFFER holds data; barriers and markers are never channel state.
        size_bytes: of the payload.
        payload: whatever the driver needs to write it; opaque here, never decoded.
    """

    kind: EventKind
    size_bytes: int
    payload: object


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """One buffer of the file, and whose it is."""

    subtask: str
    channel: InputChannel
    buffer: InFlightBuffer


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write the entries as one object, then call `ChannelStateWriter.written` or `write_failed`.

    Attributes:
        entries: by subtask, each one's in the order in which they were added: the file does not depend on which
            subtask was first.
    """

    checkpoint_id: CheckpointId
    entries: tuple[ChannelEntry, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The writer holds these buffers no more: they are stored, or nobody needs them."""

    buffers: tuple[InFlightBuffer, ...]


@dataclass(frozen=True, slots=True)
class Rethrow:
    """Raise the error, after the other commands: the writer is closed and nobody has learnt of it."""

    error: CheckpointError


ChannelCommand = WriteFile | Release | Rethrow
ChannelCommands = tuple[ChannelCommand, ...]


@dataclass(frozen=True, slots=True)
class ChannelStateFailure:
    """Why there is no channel state."""

    reason: CheckpointFailureReason
    detail: str


class ChannelStateResult:
    """What one subtask gets of one checkpoint's channel state: pending, then there, or failed."""

    def __init__(self) -> None:
        self._done = False
        self._failure: ChannelStateFailure | None = None
        self._file: ObjectHandle | None = None
        self._buffers: dict[InputChannel, int] = {}
        self._size_bytes = 0

    @property
    def done(self) -> bool:
        """Whether it has ended, in either way."""
        return self._done

    @property
    def failure(self) -> ChannelStateFailure | None:
        return self._failure

    @property
    def file(self) -> ObjectHandle | None:
        """The shared file; None when this subtask had nothing in flight, and while it is not done."""
        return self._file

    @property
    def buffers(self) -> Mapping[InputChannel, int]:
        """How many buffers of each channel the file holds for this subtask; empty until it does."""
        return MappingProxyType(self._buffers)

    @property
    def size_bytes(self) -> int:
        """Bytes of this subtask's own buffers in the file, not of the file; 0 until they are there."""
        return self._size_bytes

    def complete(self, file: ObjectHandle | None, entries: Iterable[ChannelEntry] = ()) -> None:
        """The file is stored with these entries of the subtask, or it had none. The file calls this or `fail`, once."""
        own = tuple(entries)
        self._done = True
        self._file = file if own else None
        for entry in own:
            self._buffers[entry.channel] = self._buffers.get(entry.channel, 0) + 1
            self._size_bytes += entry.buffer.size_bytes

    def fail(self, failure: ChannelStateFailure) -> None:
        """There is no channel state."""
        self._done = True
        self._failure = failure


class FileState(Enum):
    """Where the shared file is. WRITTEN, EMPTY and FAILED are final."""

    OPEN = "open"
    WRITING = "writing"
    WRITTEN = "written"
    EMPTY = "empty"
    FAILED = "failed"


class _Part:
    """What one subtask has said so far."""

    def __init__(self, result: ChannelStateResult) -> None:
        self.result = result
        self.entries: list[ChannelEntry] = []
        self.input_finished = False
        self.output_finished = False

    @property
    def finished(self) -> bool:
        return self.input_finished and self.output_finished


class ChannelStateFile:
    """One checkpoint's channel state of all subtasks of a Spark task.

    Args:
        checkpoint_id: whose channel state it is.
        subtasks: who may take part, at least one. It is whole when each has finished, or left before it took part.
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
        """Buffers neither stored nor released, in the order of the file."""
        return tuple(entry.buffer for entry in self._entries())

    def takes_part(self, subtask: str) -> bool:
        """Return whether the subtask has registered its result."""
        return subtask in self._parts

    def register(self, subtask: str, result: ChannelStateResult) -> None:
        """Let a subtask take part.

        Raises:
            ProtocolViolation: the file is not open any more; the subtask is not awaited (it takes part).
        """
        if self._state is not FileState.OPEN:
            raise self._illegal(f"subtask {subtask} came when the file was {self._state.value}")
        if subtask not in self._awaited:
            raise self._illegal(f"subtask {subtask} takes part already")
        self._awaited.remove(subtask)
        self._parts[subtask] = _Part(result)

    def add_input(self, subtask: str, channel: InputChannel, buffers: Iterable[InFlightBuffer]) -> ChannelCommands:
        """Hold buffers for the file, behind the subtask's others.

        Returns:
            Their release when the file has failed.
        Raises:
            ProtocolViolation: one of them is no data; the subtask does not take part, or has finished its input. None
                of the buffers is taken.
        """
        taken = tuple(buffers)
        if self._state is FileState.FAILED:
            return (Release(taken),)
        part = self._part(subtask, "added in-flight data")
        events = [buffer.kind.value for buffer in taken if buffer.kind is not EventKind.BUFFER]
        if events:
            raise self._illegal(f"subtask {subtask} added {events[0]} of channel {channel}, expected buffers alone")
        if part.input_finished:
            raise self._illegal(f"subtask {subtask} added in-flight data after it had finished its input")
        part.entries += [ChannelEntry(subtask, channel, buffer) for buffer in taken]
        return ()

    def finish_input(self, subtask: str) -> ChannelCommands:
        """The subtask has no more in-flight input. Finishing twice changes nothing.

        Raises:
            ProtocolViolation: the subtask does not take part.
        """
        if self._state is FileState.FAILED:
            return ()
        self._part(subtask, "finished its input").input_finished = True
        return self._try_finish()

    def finish_output(self, subtask: str) -> ChannelCommands:
        """Everything the subtask emitted before its barrier is handed on. Finishing twice changes nothing.

        Raises:
            ProtocolViolation: the subtask does not take part.
        """
        if self._state is FileState.FAILED:
            return ()
        self._part(subtask, "finished its output").output_finished = True
        return self._try_finish()

    def written(self, file: ObjectHandle) -> ChannelCommands:
        """The object is stored: results are there, buffers are released.

        Returns:
            Nothing when the checkpoint was given up while it was written: the object is garbage of its token.
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
        """Give the file up, unless it has ended.

        Args:
            failure: the cause.
            subtask: whose it is: all others get CHANNEL_STATE_SHARED_STREAM_EXCEPTION. None: everybody's.
        """
        if self._state not in (FileState.OPEN, FileState.WRITING):
            return ()
        self._state = FileState.FAILED
        for name, part in self._parts.items():
            part.result.fail(failure if subtask in (None, name) else shared_failure(failure, subtask))
        return self._released()

    def _try_finish(self) -> ChannelCommands:
        if self._state is not FileState.OPEN or self._awaited or not all(p.finished for p in self._parts.values()):
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

    def _part(self, subtask: str, what: str) -> _Part:
        if self._state is not FileState.OPEN or subtask not in self._parts:
            raise self._illegal(f"subtask {subtask} {what} without taking part (the file is {self._state.value})")
        return self._parts[subtask]

    def _illegal(self, what: str) -> ProtocolViolation:
        return ProtocolViolation(f"channel state of checkpoint {self._checkpoint_id}: {what}. Nothing was changed.")


def shared_failure(cause: ChannelStateFailure, subtask: str | None) -> ChannelStateFailure:
    """Return what the other subtasks of a file get when one of them fails."""
    return ChannelStateFailure(
        CheckpointFailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION,
        f"subtask {subtask}, which shares the file, failed: {cause.reason.value}: {cause.detail}",
    )
