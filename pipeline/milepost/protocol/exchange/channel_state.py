"""The writer of channel state: requests of the subtasks of one Spark task, in, the shared file's contents, out.

Per subtask and checkpoint: `start`, then `add_input` any number of times, `finish_input` and `finish_output`; the
result is taken once, and ends when the file does (`written`, `write_failed`). Checkpoint ids only move forward: a newer
checkpoint fails an older, unfinished one, and an aborted id cannot be started again. A request takes effect when it is
made: there is no queue and no thread, so no request overtakes another.

Ownership of buffers: those of an accepted `add_input` are the writer's until a `Release`; those of a call that raised
are still the caller's.

Source: Flink ChannelStateWriterImpl, ChannelStateWriteRequestDispatcherImpl and ChannelStateWriteRequestExecutorImpl.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from milepost.protocol.records.errors import CheckpointError, ProtocolViolation
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_SUBTASKS_PER_FILE = 5
"""How many subtasks share one file at most: a failure of one is a failure of all of them."""

MAX_LIVE_RESULTS = 1_000
"""How many results of one subtask may wait to be taken."""


class ChannelStateWriter:
    """Keeps the channel state of up to `MAX_SUBTASKS_PER_FILE` subtasks of one Spark task, one file per checkpoint."""

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
        """Whether one more subtask may register: until it is full, a checkpoint starts, or a subtask leaves."""
        return self._registering

    @property
    def held(self) -> tuple[InFlightBuffer, ...]:
        """Buffers that are neither stored nor released."""
        files = [*self._older.values(), *([self._file] if self._file is not None else [])]
        return tuple(buffer for file in files for buffer in file.held)

    def register(self, subtask: str) -> None:
        """Let a subtask share the files.

        Raises:
            ProtocolViolation: registration is over, or the subtask is registered.
        """
        self._check_usable(subtask, "registered", known=False)
        if not self._registering:
            raise _illegal(subtask, "registered after registration was over")
        if subtask in self._subtasks:
            raise _illegal(subtask, "registered twice")
        self._subtasks.add(subtask)
        self._registering = len(self._subtasks) < MAX_SUBTASKS_PER_FILE

    def start(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Begin a checkpoint for a subtask.

        Returns:
            The release of an older checkpoint's buffers: starting N + 1 fails an unfinished N with
            CHECKPOINT_DECLINED_SUBSUMED, but not one that is whole and being written. The result of an id that is not
            above the newest started, or was aborted, is failed from the start: ids cannot go back.
        Raises:
            ProtocolViolation: started before, not registered, closed, or too many results wait.
            CheckpointError: what broke the writer.
        """
        self._check_usable(subtask, f"started checkpoint {checkpoint_id}")
        key = (subtask, checkpoint_id)
        if key in self._results or (checkpoint_id == self._ongoing and self._takes_part(subtask)):
            raise _illegal(subtask, f"started checkpoint {checkpoint_id} twice")
        if sum(1 for owner, _ in self._results if owner == subtask) >= MAX_LIVE_RESULTS:
            raise _illegal(subtask, f"has {MAX_LIVE_RESULTS} results nobody took; checkpoint {checkpoint_id} refused")
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
        """Hand over buffers that a channel has in flight.

        Returns:
            Their release when the checkpoint was aborted or is an older one.
        Raises:
            ProtocolViolation: not started, already finished, a buffer that holds no data, closed: none is taken.
            CheckpointError: what broke the writer.
        """
        file = self._open_file(subtask, checkpoint_id, "added in-flight data")
        taken = tuple(buffers)
        return (Release(taken),) if file is None else file.add_input(subtask, channel, taken)

    def finish_input(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Every input channel of the subtask has been recorded to its barrier.

        Returns:
            The file's contents, if this was the last thing it waited for.
        Raises:
            As `add_input`.
        """
        file = self._open_file(subtask, checkpoint_id, "finished its input")
        return () if file is None else file.finish_input(subtask)

    def finish_output(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelCommands:
        """Everything the subtask emitted before the barrier has been handed on.

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
        """Give up a checkpoint and unfinished older ones; none up to it can start any more.

        The subtask's result fails with the cause, that of others in the same file with
        CHANNEL_STATE_SHARED_STREAM_EXCEPTION, those of older checkpoints with CHECKPOINT_DECLINED_SUBSUMED.

        Args:
            cleanup: whether the subtask's result goes; False: somebody will still take it.
        Returns:
            The release of what was held. Nothing when there is nothing to abort, and after `close`.
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
            raise _illegal(subtask, f"asked for a result of checkpoint {checkpoint_id} that is not there (any more)")
        return result

    def written(self, checkpoint_id: CheckpointId, file: ObjectHandle) -> ChannelCommands:
        """The file of a checkpoint is stored.

        Returns:
            The release of its buffers; nothing when it was given up meanwhile.
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
        """The file of a checkpoint could not be written: every subtask in it fails, and the writer takes no more.

        `start`, `add_input`, `finish_input` and `finish_output` raise the error from now on. Nothing happens when the
        checkpoint was given up meanwhile.

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
        """Take no more: what is not stored fails, and its buffers are released. Idempotent; results taken stay valid.

        Returns:
            The release of what was held; then, if the file could not be written and a subtask never took the result
            that says so, the error, so that it is not lost.
        """
        if self._closed:
            return ()
        self._closed = True
        self._registering = False
        files = [*self._older.values(), *([self._file] if self._file is not None else [])]
        closing = ChannelStateFailure(CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, "the writer was closed")
        released = tuple(command for file in files for command in file.fail(closing))
        untold = self._failure is not None and bool(self._results)
        self._results = {}
        return (*released, Rethrow(self._failure)) if self._failure is not None and untold else released

    def _check_usable(self, subtask: str, what: str, *, known: bool = True) -> None:
        if self._closed:
            raise _illegal(subtask, f"{what} after the writer was closed")
        if self._failure is not None:
            raise self._failure
        if known and subtask not in self._subtasks:
            raise _illegal(subtask, f"{what} without being registered")

    def _takes_part(self, subtask: str) -> bool:
        return self._file is not None and self._file.takes_part(subtask)

    def _refusal(self, subtask: str, checkpoint_id: CheckpointId) -> ChannelStateFailure | None:
        """Return why a checkpoint cannot start any more; None if it can."""
        if checkpoint_id == self._max_aborted and self._abort_cause is not None:
            own = subtask == self._aborted_by
            return self._abort_cause if own else shared_failure(self._abort_cause, self._aborted_by)
        if self._is_past(checkpoint_id):
            return _subsumed(f"checkpoint {max(self._ongoing, self._max_aborted)} came first")
        return None

    def _is_past(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id < self._ongoing or checkpoint_id <= self._max_aborted

    def _open_file(self, subtask: str, checkpoint_id: CheckpointId, what: str) -> ChannelStateFile | None:
        """Return the file of a checkpoint that goes on; None for one that is past. Raises if it was not started."""
        self._check_usable(subtask, f"{what} for checkpoint {checkpoint_id}")
        if self._is_past(checkpoint_id):
            return None
        if self._file is None or checkpoint_id != self._ongoing:
            raise _illegal(subtask, f"{what} for checkpoint {checkpoint_id}, which was not started")
        return self._file

    def _file_of(self, checkpoint_id: CheckpointId) -> ChannelStateFile | None:
        return self._file if checkpoint_id == self._ongoing else self._older.get(checkpoint_id)

    def _fail_unfinished(self, why: str) -> ChannelCommands:
        """Let a newer checkpoint come: one that is whole, and at most being written, is left alone."""
        unfinished = self._file is not None and self._file.state is FileState.OPEN
        return self._file.fail(_subsumed(why)) if self._file is not None and unfinished else ()


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
