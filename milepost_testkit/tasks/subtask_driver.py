"""Drives real coordinators, snapshots and channel state writers as the host of a Spark task does, without its I/O.

What would be a put, a row of the exchange or a thread is a list here; a test decides when an upload or a write ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.protocol.exchange.barrier import EventKind
from milepost.protocol.exchange.channel_file import (
    ChannelCommand,
    ChannelStateResult,
    InFlightBuffer,
    InputChannel,
    Release,
    Rethrow,
    WriteFile,
)
from milepost.protocol.exchange.channel_state import ChannelStateWriter, share_files
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier
from milepost.protocol.subtask.snapshot import AsyncSnapshot, SubmitUpload
from milepost.protocol.subtask.subtask import SubtaskCommand, SubtaskCoordinator
from milepost.protocol.subtask.subtask_commands import (
    AbortChannelState,
    CollectInFlight,
    FinishInput,
    FinishOutput,
    FreezeState,
    StartChannelState,
)

CHANNEL = InputChannel("orders", 0)


def barrier(checkpoint_id: int, alignment: Alignment = Alignment.ALIGNED) -> CheckpointBarrier:
    timeout_ms = 1_000 if alignment is Alignment.TIMEOUTABLE else None
    return CheckpointBarrier(CheckpointId(checkpoint_id), 0, alignment, timeout_ms)


def data(size_bytes: int = 10, name: object = None) -> InFlightBuffer:
    return InFlightBuffer(EventKind.BUFFER, size_bytes, name)


def stored(name: str = "channel/a.arrow", size: int = 99) -> ObjectHandle:
    return ObjectHandle(name, size, "0" * 64)


@dataclass
class SpillFile:
    """Requests of the writer of a Spark task: files to write, and buffers that it no longer holds."""

    writer: ChannelStateWriter
    to_write: list[WriteFile] = field(default_factory=list)
    released: list[InFlightBuffer] = field(default_factory=list)

    def execute(self, commands: tuple[ChannelCommand, ...]) -> None:
        for command in commands:
            if isinstance(command, WriteFile):
                self.to_write.append(command)
            elif isinstance(command, Release):
                self.released += command.buffers
            else:
                assert isinstance(command, Rethrow)
                raise command.error

    def store(self, file: ObjectHandle | None = None) -> None:
        """End the oldest requested write."""
        self.execute(self.writer.written(self.to_write.pop(0).checkpoint_id, file or stored()))


class SubtaskDriver:
    """One subtask: its coordinator, and its part of the channel state.

    Attributes:
        said: every command that was not handled here, in order: barriers, markers, answers, notifications, discards.
        in_flight: data before the barriers of its input channels.
        freeze_error: what the synchronous part fails with, if it does.
    """

    def __init__(self, uid: str = "join/0", spill: SpillFile | None = None, last_id: int = NO_CHECKPOINT) -> None:
        self.uid = uid
        self.spill = spill or SpillFile(share_files([uid])[uid])
        self.coordinator = SubtaskCoordinator(uid, CheckpointId(last_id))
        self.in_flight: list[InFlightBuffer] = []
        self.said: list[SubtaskCommand] = []
        self.order: list[SubtaskCommand] = []
        self.results: dict[int, ChannelStateResult] = {}
        self.uploads: dict[int, AsyncSnapshot] = {}
        self.freeze_error: CheckpointFailureReason | None = None

    def init(self, barrier: CheckpointBarrier) -> None:
        self.execute(self.coordinator.init_input_checkpoint(barrier))

    def checkpoint(self, barrier: CheckpointBarrier, *, finished: bool = False) -> None:
        self.execute(self.coordinator.checkpoint_state(barrier, finished=finished))

    def take(self, barrier: CheckpointBarrier) -> None:
        """What the barrier handler asks for when all barriers are there."""
        self.init(barrier)
        self.checkpoint(barrier)

    def abort_notified(self, checkpoint_id: int, *, running: bool = True) -> None:
        self.execute(self.coordinator.notify_aborted(CheckpointId(checkpoint_id), running=running))

    def end_upload(self, checkpoint_id: int) -> None:
        snapshot = self.uploads.pop(checkpoint_id)
        self.execute(snapshot.completed())
        self.coordinator.upload_ended(snapshot.checkpoint_id)

    def fail_upload(self, checkpoint_id: int, detail: str = "no space", *, running: bool = True) -> None:
        snapshot = self.uploads.pop(checkpoint_id)
        self.execute(snapshot.failed(detail, running=running))
        self.coordinator.upload_ended(snapshot.checkpoint_id)

    def all(self, kind: type[SubtaskCommand]) -> list[SubtaskCommand]:
        return [command for command in self.order if isinstance(command, kind)]

    def execute(self, commands: tuple[SubtaskCommand, ...]) -> None:
        for command in commands:
            self.order.append(command)
            checkpoint_id = getattr(command, "checkpoint_id", NO_CHECKPOINT)
            writer = self.spill.writer
            if isinstance(command, StartChannelState):
                self.spill.execute(writer.start(self.uid, checkpoint_id))
            elif isinstance(command, CollectInFlight):
                self.collect(checkpoint_id)
            elif isinstance(command, FinishInput):
                self.spill.execute(writer.finish_input(self.uid, checkpoint_id))
            elif isinstance(command, FinishOutput):
                self.spill.execute(writer.finish_output(self.uid, checkpoint_id))
            elif isinstance(command, AbortChannelState):
                self.spill.execute(
                    writer.abort(self.uid, checkpoint_id, command.reason, command.detail, cleanup=command.cleanup)
                )
            elif isinstance(command, FreezeState):
                self._freeze(command)
            elif isinstance(command, SubmitUpload):
                self.uploads[checkpoint_id] = command.snapshot
            else:
                self.said.append(command)

    def collect(self, checkpoint_id: CheckpointId) -> None:
        """All barriers are there, and what precedes them is in memory."""
        self.record(checkpoint_id, CHANNEL, self.in_flight)
        self.execute(self.coordinator.in_flight_collected(checkpoint_id))

    def record(self, checkpoint_id: CheckpointId, channel: InputChannel, buffers: list[InFlightBuffer]) -> None:
        self.spill.execute(self.spill.writer.add_input(self.uid, checkpoint_id, channel, buffers))

    def _freeze(self, command: FreezeState) -> None:
        checkpoint_id = command.checkpoint_id
        if self.freeze_error is not None:
            self.execute(self.coordinator.freeze_failed(checkpoint_id, self.freeze_error, "the state is broken"))
            return
        if command.channel_state:
            self.results[checkpoint_id] = self.spill.writer.take_result(self.uid, checkpoint_id)
        self.execute(self.coordinator.frozen(checkpoint_id))
