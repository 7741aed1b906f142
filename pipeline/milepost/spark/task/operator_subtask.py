"""Drive one operator's subtask through one epoch: align, finish, send the barrier, freeze, upload, acknowledge.

Pure objects make the decisions, and this module follows them: the barrier handler decides when the snapshot is taken,
the lifecycle and the coordinator which steps it has, in which order, and what aborts it, the channel state writer which
rows in flight are stored.

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
    ChannelCommands,
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
from milepost.spark.task.subtask_context import Snapshot, SubtaskResources, SubtaskWork
from milepost.spark.wire.epoch_clock import Pacer
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan
from milepost.spark.wire.task_output import TaskOutput
from milepost.state.buffers import Buffer
from milepost.storage import AbortNotice

_LOG = logging.getLogger(__name__)


class OperatorSubtask:
    """One operator's subtask: `process`, then its task sends the barrier, then `snapshot`, then `settle`.

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
        self._work: SubtaskWork | None = None
        self._timer_ms: int | None = None
        self._prioritised: list[int] = []
        self._unread: dict[int, list[Buffer]] = {}
        self._trigger: CheckpointBarrier | None = None
        self._after_barrier: Commands | None = None
        self._snapshot: Snapshot | None = None
        self._lifecycle.restore(plan.base, plan.notifications.reported)

    def process(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        """Align, then finish: process the input up to the barrier or the deadline. May end in a decline.

        Yields:
            All rows before the barrier.
        """
        self._work = work
        try:
            self._execute(*self._lifecycle.notify(self._plan.notifications))
            yield from self._align(work)
            if self.decline is None:
                yield from self._finish(work)
        except ProtocolViolation:
            raise  # a bug, not a refusal
        except (OperatorFailed, CheckpointError) as error:
            self.fail_for(error)

    def snapshot(self) -> None:
        """Freeze the state and start its upload, after the barrier was sent. May end in a decline."""
        if self._after_barrier is None:
            raise ProtocolViolation(f"operator {self.uid}: snapshot before its barrier. Nothing was uploaded.")
        commands, self._after_barrier = self._after_barrier, ()
        for command in commands:
            if isinstance(command, coordinator_commands.FreezeState):
                self._freeze(command)
            else:
                self._execute(command)

    def settle(self) -> None:
        """Wait for the upload, then acknowledge or decline."""
        snapshot = self._snapshot
        if snapshot is None:
            raise ProtocolViolation(f"operator {self.uid}: nothing was snapshotted that could be acknowledged")
        self._execute(*self._lifecycle.finish())
        self._cause = cause = self._upload_failure(snapshot)
        if cause is None:
            self._execute(*snapshot.asynchronous.completed())
        else:
            running = self._lifecycle.answers
            self._execute(*snapshot.asynchronous.failed(cause.detail, running=running, reason=cause.reason))
        self._coordinator.upload_ended(self._checkpoint_id)

    def cancel(self, channel: int, cause: Decline) -> None:
        """Decline because a sender sent its cancel marker on a channel, with the sender's own reason."""
        self._cause = cause
        self._execute_alignment(self._handler.cancel(channel, self._checkpoint_id))

    def fail(self, cause: Decline) -> None:
        """Decline the checkpoint for the given cause."""
        self._cause = cause
        self._execute(*self._coordinator.abort_on_barrier(self._checkpoint_id, cause.reason, cause.detail))

    def fail_for(self, error: OperatorFailed | CheckpointError) -> None:
        """Decline the checkpoint because the operator cannot process its rows, or because of a store's error."""
        who = f"operator {self.uid}"
        if isinstance(error, OperatorFailed):
            self.fail(self._identity.decline(CheckpointFailureReason.OPERATOR_ERROR, f"{who}: {error.reason}"))
        else:
            self.fail(self._identity.decline_for_stored(error, who))

    def aborted(self, notice: AbortNotice) -> None:
        """Decline because the checkpoint was aborted while this subtask ran. Nothing is uploaded."""
        self._execute(*self._lifecycle.notify_aborted(self._checkpoint_id, notice.latest_completed))
        detail = f"operator {self.uid}: the checkpoint was aborted while its subtask ran; nothing was uploaded"
        self.decline = self._identity.decline(notice.reason, detail)
        self.close()

    def close(self) -> None:
        """End the subtask, and abort whatever is not acknowledged. Idempotent."""
        self._handler.close()
        self._execute(*self._lifecycle.close())

    def crash(self) -> None:
        """End the attempt after an unexpected error, so that nothing of it runs while the next attempt starts."""
        self._handler.close()
        self._execute(*self._lifecycle.fail())

    def _align(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        """Process buffers until every barrier has arrived, or until the timer lets the barriers overtake the rest."""
        handler, gate, pacer = self._handler, work.gate, work.pacer
        barrier = self._barrier(pacer)
        for channel, position in gate.barrier_positions():
            self._execute_alignment(handler.announcement(channel, position, barrier, pacer.now_ms()))
        while handler.pending:
            if self._timer_ms is not None and pacer.now_ms() >= self._timer_ms:
                self._execute_alignment(handler.timeout(self._checkpoint_id, pacer.now_ms()))
            else:
                chunk = gate.take(pacer.limit_bytes())
                if chunk.buffers:
                    began_ms = pacer.clock()
                    yield from work.rows.take(chunk)
                    pacer.record_chunk(chunk.size, began_ms)
                for channel in chunk.ended_channels:
                    if channel not in self._prioritised:  # it is if the timeout passed at an earlier channel's barrier
                        self._execute_alignment(handler.barrier(channel, barrier, pacer.now_ms()))
            while self._prioritised:
                channel = self._prioritised.pop(0)
                self._execute_alignment(handler.barrier(channel, barrier.unaligned(), pacer.now_ms()))
        if self._plan.alignment.final:
            for channel in sorted(handler.open_channels):
                self._execute_alignment(handler.end_of_partition(channel, pacer.now_ms()))
        in_flight_bytes = sum(buffer.size for buffer in gate.in_flight)
        self._resources.metrics.record_alignment(self.uid, handler.alignment_times.duration_ms, in_flight_bytes)

    def _finish(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        """Emit what belongs before the barrier, and stop there. `snapshot` executes the commands after it."""
        barrier, finished = self._trigger, self._plan.alignment.final
        assert barrier is not None, "an alignment that ends without an abort has triggered the snapshot"
        if finished:  # a final epoch is always aligned, so all input is processed
            self._lifecycle.end_of_data(self._checkpoint_id)
        refused = self._lifecycle.refuse(self._checkpoint_id)
        commands = iter(refused or self._coordinator.checkpoint_state(barrier, finished=finished))
        for command in commands:
            match command:
                case coordinator_commands.PrepareOperators():
                    yield from work.rows.finish([buffer.lateness_us for buffer in work.gate.in_flight])
                    self._resources.metrics.record_slices(self.uid, work.rows.slices)
                case coordinator_commands.BroadcastBarrier():
                    self._after_barrier = tuple(commands)
                case _:
                    self._execute(command)
        self._execute(*self._coordinator.in_flight_collected(self._checkpoint_id))

    def _freeze(self, command: coordinator_commands.FreezeState) -> None:
        """Freeze the state as it is at the barrier, and start its upload."""
        checkpoint_id, resources = command.checkpoint_id, self._resources
        try:
            frozen = self._current_work.rows.freeze()
            channel = self._writer.take_result(self.uid, checkpoint_id) if command.channel_state else None
        except ProtocolViolation:
            raise  # a bug, not a refusal
        except CheckpointError as error:
            cause = self._identity.decline_for(error, f"operator {self.uid}", CheckpointFailureReason.IO_EXCEPTION)
            self._cause = cause
            self._execute(*self._coordinator.freeze_failed(checkpoint_id, cause.reason, cause.detail))
            return
        resources.metrics.mark("sync_ms")
        for following in self._coordinator.frozen(checkpoint_id):
            if isinstance(following, SubmitUpload):
                upload = resources.pool.submit(resources.upload, self.uid, frozen, self._item.directory)
                self._snapshot = Snapshot(following.snapshot, upload, channel)
            else:
                self._execute(following)

    def _upload_failure(self, snapshot: Snapshot) -> Decline | None:
        """Return why the state or the rows in flight could not be stored; None if they were."""
        who = f"operator {self.uid}: snapshot"
        try:
            snapshot.upload.result()
        except CheckpointError as error:
            return self._identity.decline_for(error, who, CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION)
        failure = None if snapshot.channel is None else snapshot.channel.failure
        return None if failure is None else self._identity.decline(failure.reason, f"{who}: {failure.detail}")

    def _acknowledge(self, finished: bool) -> None:
        work, snapshot, trigger = self._current_work, self._snapshot, self._trigger
        assert snapshot is not None and trigger is not None, "what is acknowledged was triggered and uploaded"
        self.ack = {
            "rows_in": work.rows.rows_in,
            "rows_out": work.rows.rows_out,
            "late_rows": work.rows.late_rows,
            "dropped_rows": work.rows.dropped_rows,
            "firing_us": work.rows.fired_us,
            "state": {name: to_json(handle) for name, handle in snapshot.upload.result().items()},
            "channel": to_json(self._resources.files.handle(self.uid)),
            "unaligned": trigger.is_unaligned,
            "finished": finished,
            "processed_bytes": work.pacer.processed_bytes,
        }

    def _execute_alignment(self, commands: tuple[handler_commands.Command, ...]) -> None:
        """Execute the barrier handler's commands. Its trigger is followed by `_finish`, once all channels have aligned.

        Nothing is processed in between: a handler that triggers has prioritised every barrier that is missing.
        """
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
                    self._unread = self._current_work.gate.unread()
                    self._execute(*self._coordinator.init_input_checkpoint(command.barrier))
                case handler_commands.StartRecording():
                    self._record(command.channel)
                case handler_commands.StopRecording():
                    continue  # a channel is complete when recording starts, so all of it was recorded then
                case handler_commands.TriggerCheckpoint():
                    self._trigger = command.barrier
                case handler_commands.AbortCheckpoint():
                    self._execute(
                        *self._coordinator.abort_on_barrier(command.checkpoint_id, command.reason, command.detail)
                    )

    def _execute(self, *commands: SubtaskCommand) -> None:
        """Execute the commands of the coordinator and the lifecycle that emit no rows."""
        uid, writer, snapshot = self.uid, self._writer, self._snapshot
        for command in commands:
            match command:
                case coordinator_commands.StartChannelState():
                    self._write(writer.start(uid, command.checkpoint_id))
                case coordinator_commands.CollectInFlight() | coordinator_commands.BroadcastCancelMarker():
                    pass  # the handler records each channel, and the output stage sends one marker for the whole task
                case coordinator_commands.FinishInput():
                    self._write(writer.finish_input(uid, command.checkpoint_id))
                case coordinator_commands.FinishOutput():
                    # All emitted rows were passed downstream, so no output is in flight.
                    self._write(writer.finish_output(uid, command.checkpoint_id))
                case coordinator_commands.AbortChannelState(checkpoint_id, reason, detail, cleanup):
                    self._write(writer.abort(uid, checkpoint_id, reason, detail, cleanup=cleanup))
                case coordinator_commands.AwaitUpload():
                    if snapshot is not None:
                        wait([snapshot.upload])
                case coordinator_commands.CancelUpload():
                    if snapshot is not None:
                        snapshot.upload.cancel()
                case coordinator_commands.DiscardSnapshot():
                    self._snapshot = None
                case coordinator_commands.RecordIncomplete():
                    self._resources.metrics.incomplete = True
                case coordinator_commands.DeclineCheckpoint():
                    self.decline = self._cause or self._identity.decline(command.reason, command.detail)
                case coordinator_commands.AcknowledgeCheckpoint():
                    self._acknowledge(command.finished)
                case coordinator_commands.NotifyOperators():
                    self._notify_operator(command)
                case coordinator_commands.NotifyState():
                    key_groups = self._resources.key_groups
                    self._resources.cache.notify(uid, key_groups, command.checkpoint_id, command.what)
                case _:
                    raise ProtocolViolation(f"operator {uid}: no handler for command {type(command).__name__}")

    def _barrier(self, pacer: Pacer) -> CheckpointBarrier:
        """Return the barrier, with its alignment timeout counted from now."""
        now_ms, deadline_ms = pacer.now_ms(), pacer.deadline_ms
        if deadline_ms is None:
            return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.ALIGNED)
        return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.TIMEOUTABLE, max(1, deadline_ms - now_ms))

    def _record(self, channel: int) -> None:
        """Pass a channel's unread buffers to the channel state writer."""
        producer, sender = divmod(channel, self._plan.senders)
        buffers = [InFlightBuffer(EventKind.BUFFER, buffer.size, buffer) for buffer in self._unread.get(channel, ())]
        source = InputChannel(self._item.inputs[producer].edge, sender)
        self._write(self._writer.add_input(self.uid, self._checkpoint_id, source, buffers))

    def _write(self, commands: ChannelCommands) -> None:
        self._resources.files.execute(self._writer, commands)

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

    @property
    def _coordinator(self) -> SubtaskCoordinator:
        return self._lifecycle.coordinator

    @property
    def _current_work(self) -> SubtaskWork:
        if self._work is None:
            raise ProtocolViolation(f"operator {self.uid}: its subtask has not been restored")
        return self._work
