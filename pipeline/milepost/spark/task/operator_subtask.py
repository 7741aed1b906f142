"""Drive one operator's subtask through one epoch.

Pure objects make the decisions and return commands: the barrier handler decides when the snapshot is taken, the
lifecycle and the coordinator decide the order of steps and what aborts them, the channel state writer decides which
rows in flight are stored. This module executes the commands: it processes rows, restores and freezes state, and
uploads objects.

A Spark task drives several operator subtasks. They share one barrier, so each stops at its barrier and continues
after the task has sent it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

from milepost.codec import to_json
from milepost.errors import CheckpointError, ProtocolViolation
from milepost.operators import OperatorFailed
from milepost.protocol.exchange import (
    ChannelStateWriter,
    Decline,
    EventKind,
    InFlightBuffer,
    InputChannel,
    SubtaskIdentity,
)
from milepost.protocol.records import CheckpointFailureReason
from milepost.protocol.subtask import (
    Alignment,
    AsyncSnapshot,
    BarrierHandler,
    CheckpointBarrier,
    Commands,
    SubmitUpload,
    SubtaskCommand,
    SubtaskCoordinator,
    TaskLifecycle,
)
from milepost.protocol.subtask import barrier_events as handler_commands
from milepost.protocol.subtask import subtask_commands as coordinator_commands
from milepost.spark.task.input_gate import Chunk
from milepost.spark.task.subtask_context import Snapshot, SubtaskResources, SubtaskWork
from milepost.spark.wire.epoch_clock import Pacer
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan
from milepost.spark.wire.task_output import TaskOutput
from milepost.storage import AbortNotice

_LOG = logging.getLogger(__name__)


class OperatorSubtask:
    """One operator's subtask: `process` up to its barrier, then `snapshot`, then `settle`.

    Attributes:
        uid: operator uid.
        decline: why the subtask declines the checkpoint; None while it does not.
        ack: the acknowledgement, after `settle`.

    Args:
        writer: channel state writer, which operators of a task may share.
    """

    def __init__(
        self,
        plan: LevelPlan,
        item: OperatorPlan,
        identity: SubtaskIdentity,
        writer: ChannelStateWriter,
        resources: SubtaskResources,
    ) -> None:
        self.uid = item.operator.uid
        self.decline: Decline | None = None
        self.ack: dict[str, Any] | None = None
        self._plan, self._item, self._identity = plan, item, identity
        self._writer, self._resources = writer, resources
        self._checkpoint_id = plan.checkpoint_id
        self._handler = BarrierHandler(plan.senders * len(item.inputs), alternating=plan.alignment.may_leave_rows)
        self._lifecycle = TaskLifecycle(f"{self.uid}/{identity.subtask}")
        self._cause: Decline | None = None
        self._unaligned = False
        self._collecting = False
        self._timer_ms: int | None = None
        self._prioritised: list[int] = []
        self._after_barrier: Commands | None = None
        self._work: SubtaskWork | None = None
        self._snapshot: Snapshot | None = None
        self._lifecycle.restore(plan.base, plan.notifications.reported)

    def process(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        """Process the input up to the barrier or the deadline, and yield the output. May end in a decline."""
        self._work = work
        try:
            self._run(self._lifecycle.notify(self._plan.notifications))
            yield from self._align(work)
        except OperatorFailed as error:
            self.fail_operator(error)
        except ProtocolViolation:
            raise  # a bug, not a refusal
        except CheckpointError as error:
            self.fail_for(error)

    def snapshot(self) -> None:
        """Continue after the barrier was sent: freeze the state and start the upload. May end in a decline."""
        if self._after_barrier is None:
            raise ProtocolViolation(f"operator {self.uid}: snapshot before its barrier. Nothing was uploaded.")
        commands, self._after_barrier = self._after_barrier, ()
        self._run(commands)

    def settle(self) -> None:
        """Wait for the upload, then acknowledge or decline."""
        snapshot, work = self._snapshot, self._work
        if snapshot is None or work is None or snapshot.upload is None or snapshot.asynchronous is None:
            raise ProtocolViolation(f"operator {self.uid}: nothing was snapshotted that could be acknowledged")
        self._run(self._lifecycle.finish())
        who = f"operator {self.uid}: snapshot"
        try:
            snapshot.upload.result()
        except CheckpointError as error:
            cause = self._identity.decline_for(error, who, CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION)
            self._fail_snapshot(snapshot.asynchronous, cause)
            return
        if snapshot.channel is not None and (failure := snapshot.channel.failure) is not None:
            self._fail_snapshot(
                snapshot.asynchronous, self._identity.decline(failure.reason, f"{who}: {failure.detail}")
            )
            return
        self._run(snapshot.asynchronous.completed())
        self._coordinator.upload_ended(self._checkpoint_id)

    def cancel(self, channel: int, cause: Decline) -> None:
        """Decline because a sender sent its cancel marker on a channel, with the sender's own reason."""
        self._cause = cause
        self._run_without_rows(self._execute_handler(self._handler.cancel(channel, self._checkpoint_id)))

    def fail(self, cause: Decline) -> None:
        """Decline the checkpoint for the given cause."""
        self._cause = cause
        self._run(self._coordinator.abort_on_barrier(self._checkpoint_id, cause.reason, cause.detail))

    def fail_operator(self, error: OperatorFailed) -> None:
        """Decline the checkpoint because the operator cannot process its rows."""
        detail = f"operator {self.uid}: {error.reason}"
        self.fail(self._identity.decline(CheckpointFailureReason.OPERATOR_ERROR, detail))

    def fail_for(self, error: CheckpointError) -> None:
        """Decline the checkpoint because of a store's error."""
        self.fail(self._identity.decline_for_stored(error, f"operator {self.uid}"))

    def aborted(self, notice: AbortNotice) -> None:
        """Decline because the checkpoint was aborted while this subtask ran. Nothing is uploaded."""
        self._run(self._lifecycle.notify_aborted(self._checkpoint_id, notice.latest_completed))
        detail = f"operator {self.uid}: the checkpoint was aborted while its subtask ran; nothing was uploaded"
        self.decline = self._identity.decline(notice.reason, detail)
        self.close()

    def close(self) -> None:
        """End the subtask, and abort whatever is not acknowledged. Idempotent."""
        self._handler.close()
        self._run(self._lifecycle.close())

    def crash(self) -> None:
        """End the attempt after an unexpected error, so that nothing of it runs while the next attempt starts."""
        self._handler.close()
        self._run(self._lifecycle.fail())

    @property
    def _coordinator(self) -> SubtaskCoordinator:
        return self._lifecycle.coordinator

    def _align(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        barrier = self._barrier(work.pacer)
        for channel, position in work.gate.barrier_positions():
            yield from self._execute_handler(
                self._handler.announcement(channel, position, barrier, work.pacer.now_ms())
            )
        while True:
            if self._timer_ms is not None and work.pacer.now_ms() >= self._timer_ms:
                yield from self._execute_handler(self._handler.timeout(self._checkpoint_id, work.pacer.now_ms()))
            else:
                chunk = work.gate.take(work.pacer.limit_bytes())
                yield from self._process(work, chunk)
                for channel in chunk.ended_channels:
                    if channel in self._prioritised:
                        continue  # its barrier was prioritised when the timer fired on an earlier channel
                    yield from self._execute_handler(self._handler.barrier(channel, barrier, work.pacer.now_ms()))
            while self._prioritised:
                channel = self._prioritised.pop(0)
                barrier_commands = self._handler.barrier(channel, barrier.unaligned(), work.pacer.now_ms())
                yield from self._execute_handler(barrier_commands)
            if not self._handler.pending:
                break
        if self._collecting:
            yield from self._execute_coordinator(self._coordinator.in_flight_collected(self._checkpoint_id))
        if self._plan.alignment.final:
            for channel in sorted(self._handler.open_channels):
                yield from self._execute_handler(self._handler.end_of_partition(channel, work.pacer.now_ms()))
        times, metrics = self._handler.alignment_times, self._resources.metrics
        metrics.record_alignment(self.uid, times.duration_ms, sum(buffer.size for buffer in work.gate.in_flight))
        metrics.record_slices(self.uid, work.rows.slices)

    def _barrier(self, pacer: Pacer) -> CheckpointBarrier:
        """Return the barrier, with its alignment timeout counted from now."""
        now_ms, deadline_ms = pacer.now_ms(), pacer.deadline_ms
        if deadline_ms is None:
            return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.ALIGNED)
        return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.TIMEOUTABLE, max(1, deadline_ms - now_ms))

    def _process(self, work: SubtaskWork, chunk: Chunk) -> Iterator[TaskOutput]:
        if not chunk.buffers:
            return
        began_ms = work.pacer.clock()
        yield from work.rows.take(chunk)
        work.pacer.record_chunk(chunk.size, began_ms)

    def _execute_handler(self, commands: tuple[handler_commands.Command, ...]) -> Iterator[TaskOutput]:
        """Execute the barrier handler's commands."""
        for command in commands:
            match command:
                case handler_commands.ArmTimer():
                    self._timer_ms = command.at_ms
                case handler_commands.CancelTimer():
                    self._timer_ms = None
                case handler_commands.BlockChannel():
                    self._current_work.gate.block(command.channel)
                case handler_commands.UnblockChannel():
                    self._current_work.gate.unblock(command.channel)
                case handler_commands.Prioritise():
                    self._prioritised.append(command.channel)
                case handler_commands.InitInputs():
                    self._current_work.unread = self._current_work.gate.unread()
                    yield from self._execute_coordinator(self._coordinator.init_input_checkpoint(command.barrier))
                case handler_commands.StartRecording():
                    self._record(command.channel)
                case handler_commands.StopRecording():
                    continue  # a channel is complete when recording starts, so all of it was recorded then
                case handler_commands.TriggerCheckpoint():
                    self._unaligned = command.barrier.is_unaligned
                    finished = self._plan.alignment.final
                    if finished:
                        # A final epoch is always aligned: the last barrier has arrived, so all input is processed.
                        self._lifecycle.end_of_data(self._checkpoint_id)
                    refused = self._lifecycle.refuse(self._checkpoint_id)
                    yield from self._execute_coordinator(
                        refused or self._coordinator.checkpoint_state(command.barrier, finished=finished)
                    )
                case handler_commands.AbortCheckpoint():
                    yield from self._execute_coordinator(
                        self._coordinator.abort_on_barrier(command.checkpoint_id, command.reason, command.detail)
                    )

    def _record(self, channel: int) -> None:
        producer, sender = divmod(channel, self._plan.senders)
        unread = self._current_work.unread.get(channel, ())
        buffers = [InFlightBuffer(EventKind.BUFFER, buffer.size, buffer) for buffer in unread]
        source = InputChannel(self._item.inputs[producer].edge, sender)
        files = self._resources.files
        files.execute(self._writer, self._writer.add_input(self.uid, self._checkpoint_id, source, buffers))

    def _execute_coordinator(self, commands: Commands) -> Iterator[TaskOutput]:
        """Execute the coordinator's commands up to the barrier. `snapshot` executes those after it."""
        waiting = iter(commands)
        for command in waiting:
            match command:
                case coordinator_commands.PrepareOperators():
                    in_flight = [buffer.lateness_us for buffer in self._current_work.gate.in_flight]
                    yield from self._current_work.rows.finish(in_flight)
                case coordinator_commands.BroadcastBarrier():
                    self._after_barrier = tuple(waiting)
                case coordinator_commands.FreezeState():
                    yield from self._execute_coordinator(self._freeze(command))
                case _:
                    self._execute(command)

    def _execute(self, command: SubtaskCommand) -> None:
        """Execute a command that emits no rows."""
        match command:
            case coordinator_commands.CollectInFlight():
                self._collecting = True
            case SubmitUpload():
                self._submit(command.snapshot)
            case coordinator_commands.AwaitUpload():
                if self._snapshot is not None and self._snapshot.upload is not None:
                    wait([self._snapshot.upload])
            case coordinator_commands.CancelUpload():
                if self._snapshot is not None and self._snapshot.upload is not None:
                    self._snapshot.upload.cancel()
            case coordinator_commands.DiscardSnapshot():
                self._snapshot = None
            case coordinator_commands.RecordIncomplete():
                self._resources.metrics.incomplete = True
            case coordinator_commands.DeclineCheckpoint():
                self.decline = self._cause or self._identity.decline(command.reason, command.detail)
            case coordinator_commands.AcknowledgeCheckpoint():
                self._acknowledge(command)
            case coordinator_commands.BroadcastCancelMarker():
                pass  # its task's output stage sends one marker for all its subtasks
            case coordinator_commands.NotifyOperators():
                self._notify_operator(command)
            case coordinator_commands.NotifyState():
                cache, key_groups = self._resources.cache, self._resources.key_groups
                cache.notify(self.uid, key_groups, command.checkpoint_id, command.what)
            case _:
                self._write_channel_state(command)

    def _write_channel_state(self, command: SubtaskCommand) -> None:
        """Pass a command to the channel state writer, and execute what the writer returns."""
        writer = self._writer
        match command:
            case coordinator_commands.StartChannelState():
                writer_commands = writer.start(self.uid, command.checkpoint_id)
            case coordinator_commands.FinishInput():
                writer_commands = writer.finish_input(self.uid, command.checkpoint_id)
            case coordinator_commands.FinishOutput():
                # All emitted rows were passed downstream, so no output is in flight.
                writer_commands = writer.finish_output(self.uid, command.checkpoint_id)
            case coordinator_commands.AbortChannelState():
                writer_commands = writer.abort(
                    self.uid, command.checkpoint_id, command.reason, command.detail, cleanup=command.cleanup
                )
            case _:
                raise ProtocolViolation(f"operator {self.uid}: no handler for command {type(command).__name__}")
        self._resources.files.execute(writer, writer_commands)

    def _freeze(self, command: coordinator_commands.FreezeState) -> Commands:
        try:
            frozen = self._current_work.rows.freeze()
            channel_result = (
                self._writer.take_result(self.uid, command.checkpoint_id) if command.channel_state else None
            )
        except ProtocolViolation:
            raise  # a bug, not a refusal
        except CheckpointError as error:
            cause = self._identity.decline_for(error, f"operator {self.uid}", CheckpointFailureReason.IO_EXCEPTION)
            self._cause = cause
            return self._coordinator.freeze_failed(command.checkpoint_id, cause.reason, cause.detail)
        self._snapshot = Snapshot(frozen, channel_result)
        self._resources.metrics.mark("sync_ms")
        return self._coordinator.frozen(command.checkpoint_id)

    def _submit(self, asynchronous: AsyncSnapshot) -> None:
        snapshot = self._snapshot
        assert snapshot is not None, "the state is frozen before its upload"
        snapshot.asynchronous = asynchronous
        upload, directory = self._resources.upload, self._item.directory
        snapshot.upload = self._resources.pool.submit(upload, self.uid, snapshot.frozen, directory)

    def _acknowledge(self, command: coordinator_commands.AcknowledgeCheckpoint) -> None:
        work, snapshot = self._current_work, self._snapshot
        assert snapshot is not None and snapshot.upload is not None, "what is acknowledged was uploaded"
        self.ack = {
            "rows_in": work.rows.rows_in,
            "rows_out": work.rows.rows_out,
            "late_rows": work.rows.late_rows,
            "firing_us": work.rows.fired_us,
            "state": {name: to_json(handle) for name, handle in snapshot.upload.result().items()},
            "channel": to_json(self._resources.files.handle(self.uid)),
            "unaligned": self._unaligned,
            "finished": command.finished,
            "processed_bytes": work.pacer.processed_bytes,
        }

    def _notify_operator(self, command: coordinator_commands.NotifyOperators) -> None:
        listener = self._item.operator.listener
        if listener is None:
            return
        try:
            listener.notify(command.checkpoint_id, command.what)
        except OperatorFailed as error:
            if self.decline is None:
                raise
            _LOG.warning("checkpoint %s, already declined: %s", self._checkpoint_id, error)

    def _fail_snapshot(self, asynchronous: AsyncSnapshot, cause: Decline) -> None:
        self._cause = cause
        self._run(asynchronous.failed(cause.detail, running=self._lifecycle.answers, reason=cause.reason))
        self._coordinator.upload_ended(self._checkpoint_id)

    @property
    def _current_work(self) -> SubtaskWork:
        if self._work is None:
            raise ProtocolViolation(f"operator {self.uid}: its subtask has not been restored")
        return self._work

    def _run(self, commands: Commands) -> None:
        self._run_without_rows(self._execute_coordinator(commands))

    def _run_without_rows(self, items: Iterator[TaskOutput]) -> None:
        """Exhaust an iterator that must not emit rows."""
        for _ in items:
            raise ProtocolViolation(f"operator {self.uid}: rows emitted where none are allowed")
