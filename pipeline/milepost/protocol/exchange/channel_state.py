"""Channel-state writer: requests of the subtasks of one Spark task in, contents of the shared file out.

Per subtask and checkpoint the calls are `start`, any number of `add_input`, `finish_input` and `finish_output`. The
result is taken once, and completes when the file does (`written`, `write_failed`). Checkpoint ids only increase: a
newer checkpoint fails an older, unfinished one, and an aborted id cannot start again. A request takes effect
immediately: there is no queue and no thread, so no request overtakes another.

Ownership of buffers: the writer owns those of an accepted `add_input` until their `Release`. The caller keeps those of
a call that raised.

Source: Flink ChannelStateWriterImpl, ChannelStateWriteRequestDispatcherImpl and ChannelStateWriteRequestExecutorImpl.
"""

from __future__ import annotations

from collections.abc import Iterable

from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.exchange.channel_file import (
    ChannelCommands,
    ChannelStateFailure,
    ChannelStateFile,
    ChannelStateResult,
    FileState,
    InFlightBuffer,
    InputChannel,
    Release,
    Rethrow,
    shared_failure,
)
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_SUBTASKS_PER_FILE = 5
"""Maximum number of subtasks that share a file; a failure of one fails all of them."""

MAX_LIVE_RESULTS = 1_000
"""Maximum number of results of one subtask that have not been taken."""


class ChannelStateWriter:
    """Collect the channel state of up to `MAX_SUBTASKS_PER_FILE` subtasks of a Spark task, one file per checkpoint."""

    def __init__(self) -> None:
        self._subtasks: set[str] = set()
        self._registering = True
        self._results: dict[tuple[str, CheckpointId], ChannelStateResult] = {}
        self._ongoing = NO_CHECKPOINT
        self._file: ChannelStateFile | None = None
        self._older: dict[CheckpointId, ChannelStateFile] = {}
        self._max_aborted = NO_CHECKPOINT
        self._aborted_by = ""
        self._abort_cause: ChannelStateFailure | None = None
        self._failure: CheckpointError | None = None
        self._closed = False

    @property
    def registering(self) -> bool:
        """Whether another subtask may register: until it is full, a checkpoint starts, or a subtask leaves."""
        return self._registering

    @property
    def held(self) -> tuple[InFlightBuffer, ...]:
        """Buffers that are neither stored nor released."""
        files = [*self._older.values(), *([self._file] if self._file is not None else [])]
        return tuple(buffer for file in files for buffer in file.held)

    def register(self, subtask: str) -> None:
        """Add a subtask to those that share the files.

        Raises:
            ProtocolViolation: registration has ended, or the subtask is registered already.
        """
        self._check_usable(subtask, "registered", requires_registration=False)
        if not self._registering:
            raise _illegal(subtask, "registered after registration was over")
        if subtask in self._subtasks:
            raise _illegal(subtask, "registered twice")
        self._subtasks.add(subtask)
        self._registering = len(self._subtasks) < MAX_SUBTASKS_PER_FILE

    def start(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Start a checkpoint for a subtask.

        Returns:
            The release of an older checkpoint's buffers. Starting N + 1 fails an unfinished N with
            CHECKPOINT_DECLINED_SUBSUMED, but not a complete one that is being written. An id that was aborted, or is
            not above the newest started one, gets a failed result: ids cannot decrease.
        Raises:
            ProtocolViolation: started before, not registered, closed, or too many results were not taken.
            CheckpointError: the error that broke the writer.
        """
        self._check_usable(subtask, f"started checkpoint {checkpoint_id}")
        key = (subtask, checkpoint_id)
        if key in self._results or (checkpoint_id == self._ongoing and self._takes_part(subtask)):
            raise _illegal(subtask, f"started checkpoint {checkpoint_id} twice")
        if sum(1 for owner, _ in self._results if owner == subtask) >= MAX_LIVE_RESULTS:
            raise _illegal(
                subtask, f"has {MAX_LIVE_RESULTS} results that were not taken; checkpoint {checkpoint_id} refused"
            )
        self._registering = False
        result = self._results[key] = ChannelStateResult()
        refusal = self._refusal(subtask, checkpoint_id)
        if refusal is not None:
            result.fail(refusal)
            return ()
        released: ChannelCommands = ()
        if checkpoint_id > self._ongoing:
            released = self._fail_unfinished(f"checkpoint {checkpoint_id} was started")
            if self._file is not None and self._file.state is FileState.WRITING:
                self._older[self._ongoing] = self._file
            self._file = ChannelStateFile(checkpoint_id, self._subtasks)
            self._ongoing = checkpoint_id
        assert self._file is not None, "an ongoing checkpoint has a file"
        self._file.register(subtask, result)
        return released

    def add_input(
        self, subtask: str, checkpoint_id: CheckpointId, channel: InputChannel, buffers: Iterable[InFlightBuffer]
    ) -> ChannelCommands:
        """Pass on in-flight buffers of a channel.

        Returns:
            Their release if the checkpoint was aborted or is an older one.
        Raises:
            ProtocolViolation: not started, already finished, a buffer without data, or closed. None is accepted.
            CheckpointError: the error that broke the writer.
        """
        file = self._open_file(subtask, checkpoint_id, "added in-flight data")
        accepted = tuple(buffers)
        return (Release(accepted),) if file is None else file.add_input(subtask, channel, accepted)

    def finish_input(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Record that every input channel of the subtask has been recorded up to its barrier.

        Returns:
            The file's contents, if this was the last missing part.
        Raises:
            As `add_input`.
        """
        file = self._open_file(subtask, checkpoint_id, "finished its input")
        return () if file is None else file.finish_input(subtask)

    def finish_output(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Record that everything the subtask emitted before the barrier has been forwarded.

        Returns, Raises: as `finish_input`.
        """
        file = self._open_file(subtask, checkpoint_id, "finished its output")
        return () if file is None else file.finish_output(subtask)

    def abort(
        self,
        subtask: str,
        checkpoint_id: CheckpointId,
        reason: CheckpointFailureReason,
        detail: str,
        *,
        cleanup: bool,
    ) -> ChannelCommands:
        """Abort a checkpoint and unfinished older ones; none up to it can start any longer.

        The subtask's result fails with the cause, results of other subtasks in the same file with
        CHANNEL_STATE_SHARED_STREAM_EXCEPTION, and those of older checkpoints with CHECKPOINT_DECLINED_SUBSUMED.

        Args:
            cleanup: whether to drop the subtask's result; False: it will still be taken.
        Returns:
            The release of held buffers. Nothing if there is nothing to abort, and after `close`.
        """
        if self._closed:
            return ()
        cause = ChannelStateFailure(reason, detail)
        if checkpoint_id > self._max_aborted:
            self._max_aborted, self._aborted_by, self._abort_cause = checkpoint_id, subtask, cause
        if checkpoint_id > self._ongoing:
            released = self._fail_unfinished(f"checkpoint {checkpoint_id} was aborted")
        else:
            file = self._file_of(checkpoint_id)
            released = () if file is None else file.fail(cause, subtask)
        if cleanup:
            self._results.pop((subtask, checkpoint_id), None)
        return released

    def take_result(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelStateResult:
        """Return a subtask's result of a checkpoint, once; it may still be pending.

        Raises:
            ProtocolViolation: never started, taken before, or removed by an abort with cleanup or by `close`.
        """
        result = self._results.pop((subtask, checkpoint_id), None)
        if result is None:
            raise _illegal(
                subtask, f"requested a result of checkpoint {checkpoint_id} that does not exist, or no longer"
            )
        return result

    def written(self, checkpoint_id: CheckpointId, file: ObjectHandle) -> ChannelCommands:
        """Complete the results of a checkpoint after its file was stored.

        Returns:
            The release of its buffers; nothing if it was aborted in the meantime.
        Raises:
            ProtocolViolation: no file of that checkpoint was to be written.
        """
        written = self._file_of(checkpoint_id)
        if written is None:
            raise _illegal(file.key, f"was written for checkpoint {checkpoint_id}, which has no file")
        self._older.pop(checkpoint_id, None)
        return written.written(file)

    def write_failed(
        self, checkpoint_id: CheckpointId, reason: CheckpointFailureReason, error: CheckpointError
    ) -> ChannelCommands:
        """Fail every subtask of a file that could not be written, and refuse further requests.

        From now on `start`, `add_input`, `finish_input` and `finish_output` raise the error. Nothing happens if the
        checkpoint was aborted in the meantime.

        Raises:
            ProtocolViolation: no file of that checkpoint was to be written.
        """
        file = self._file_of(checkpoint_id)
        if file is None or file.state not in (FileState.WRITING, FileState.FAILED):
            raise _illegal(f"checkpoint {checkpoint_id}", "was not written, and has no file to write")
        self._older.pop(checkpoint_id, None)
        if file.state is FileState.WRITING:
            self._failure = error
        return file.fail(ChannelStateFailure(reason, error.message))

    def close(self) -> ChannelCommands:
        """Refuse further requests, fail what is not stored, and release its buffers. Idempotent.

        Results that were taken stay valid.

        Returns:
            The release of held buffers. Then, if the file could not be written and a subtask never took its failed
            result, the error, so that it is not lost.
        """
        if self._closed:
            return ()
        self._closed = True
        self._registering = False
        files = [*self._older.values(), *([self._file] if self._file is not None else [])]
        closing = ChannelStateFailure(CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, "the writer was closed")
        released = tuple(command for file in files for command in file.fail(closing))
        is_unreported = self._failure is not None and bool(self._results)
        self._results = {}
        return (*released, Rethrow(self._failure)) if self._failure is not None and is_unreported else released

    def _check_usable(self, subtask: str, operation: str, *, requires_registration: bool = True) -> None:
        if self._closed:
            raise _illegal(subtask, f"{operation} after the writer was closed")
        if self._failure is not None:
            raise self._failure
        if requires_registration and subtask not in self._subtasks:
            raise _illegal(subtask, f"{operation} without being registered")

    def _takes_part(self, subtask: str) -> bool:
        return self._file is not None and self._file.takes_part(subtask)

    def _refusal(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelStateFailure | None:
        """Return why a checkpoint can no longer start; None if it can."""
        if checkpoint_id == self._max_aborted and self._abort_cause is not None:
            is_own = subtask == self._aborted_by
            return self._abort_cause if is_own else shared_failure(self._abort_cause, self._aborted_by)
        if self._is_past(checkpoint_id):
            return _subsumed(f"checkpoint {max(self._ongoing, self._max_aborted)} came first")
        return None

    def _is_past(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id < self._ongoing or checkpoint_id <= self._max_aborted

    def _open_file(self, subtask: str, checkpoint_id: CheckpointId, operation: str) -> ChannelStateFile | None:
        """Return the file of a checkpoint in progress; None for an older one. Raises if it was not started."""
        self._check_usable(subtask, f"{operation} for checkpoint {checkpoint_id}")
        if self._is_past(checkpoint_id):
            return None
        if self._file is None or checkpoint_id != self._ongoing:
            raise _illegal(subtask, f"{operation} for checkpoint {checkpoint_id}, which was not started")
        return self._file

    def _file_of(self, checkpoint_id: CheckpointId) -> ChannelStateFile | None:
        return self._file if checkpoint_id == self._ongoing else self._older.get(checkpoint_id)

    def _fail_unfinished(self, detail: str) -> ChannelCommands:
        """Fail an unfinished older file in favour of a newer checkpoint. A complete one is left alone."""
        unfinished = self._file is not None and self._file.state is FileState.OPEN
        return self._file.fail(_subsumed(detail)) if self._file is not None and unfinished else ()


def share_files(subtasks: Iterable[str]) -> dict[str, ChannelStateWriter]:
    """Return the writer of each subtask of a Spark task: as few as the limit per file allows, filled in order."""
    writers: dict[str, ChannelStateWriter] = {}
    writer = ChannelStateWriter()
    for subtask in subtasks:
        if not writer.registering:
            writer = ChannelStateWriter()
        writer.register(subtask)
        writers[subtask] = writer
    return writers


def _subsumed(detail: str) -> ChannelStateFailure:
    return ChannelStateFailure(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, detail)


def _illegal(who: str, what: str) -> ProtocolViolation:
    return ProtocolViolation(f"channel state of {who}: {what}. Nothing was changed.")
