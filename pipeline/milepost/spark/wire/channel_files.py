"""Write the channel state files of one Spark task, as its writers command."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from milepost.errors import CheckpointError
from milepost.protocol.exchange import ChannelCommands, ChannelStateWriter, InFlightBuffer, Release, Rethrow, WriteFile
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, ObjectHandle, ObjectStat, ObjectStore
from milepost.state.buffers import Buffer, ChannelFile, ChannelStateHandle, encode_channel_state


@dataclass(frozen=True, slots=True)
class _Write:
    """A file that is being uploaded."""

    writer: ChannelStateWriter
    checkpoint_id: CheckpointId
    file: ChannelFile
    stored: Future[ObjectStat]


class ChannelFiles:
    """The channel state files of one task.

    Args:
        directory: prefix of the object keys.
        key_groups: key groups that the task's subtasks own.
        signatures: operator -> signature of its inputs.
        pool: executor of the uploads.
    """

    def __init__(
        self, store: ObjectStore, directory: str, key_groups: range, signatures: Mapping[str, str], pool: Executor
    ) -> None:
        self._store = store
        self._directory = directory
        self._key_groups = key_groups
        self._signatures = signatures
        self._pool = pool
        self._writes: list[_Write] = []
        self._handles: dict[str, ChannelStateHandle] = {}

    def execute(self, writer: ChannelStateWriter, commands: ChannelCommands) -> None:
        """Execute a writer's commands in order. Raises the error of a `Rethrow`."""
        for command in commands:
            match command:
                case WriteFile():
                    self._write(writer, command)
                case Release():
                    # Buffers are plain memory. The writer held the last reference, so they are freed already.
                    continue
                case Rethrow():
                    raise command.error

    def settle(self) -> None:
        """Wait for every upload, and report its result to the writer."""
        while self._writes:
            write = self._writes.pop(0)
            try:
                write.stored.result()
            except CheckpointError as error:
                reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
                self.execute(write.writer, write.writer.write_failed(write.checkpoint_id, reason, error))
                continue
            handle = next(iter(write.file.handles.values()))
            stored = ObjectHandle(handle.key, handle.size, handle.sha256)
            self.execute(write.writer, write.writer.written(write.checkpoint_id, stored))
            self._handles |= write.file.handles

    def handle(self, uid: str) -> ChannelStateHandle | None:
        """Return the handle of an operator's stored channel state; None if it has nothing in flight."""
        return self._handles.get(uid)

    def _write(self, writer: ChannelStateWriter, command: WriteFile) -> None:
        in_flight: dict[str, list[Buffer]] = {}
        for entry in command.entries:
            in_flight.setdefault(entry.subtask, []).append(_buffer(entry.buffer))
        file = encode_channel_state(
            in_flight, directory=self._directory, key_groups=self._key_groups, signatures=self._signatures
        )
        assert file is not None, "a file is written only for buffers"
        stored = self._pool.submit(self._store.put, file.key, file.body)
        self._writes.append(_Write(writer, command.checkpoint_id, file, stored))


def _buffer(item: InFlightBuffer) -> Buffer:
    assert isinstance(item.payload, Buffer)
    return item.payload
