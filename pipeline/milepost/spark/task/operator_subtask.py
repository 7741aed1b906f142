"""Drives one operator's subtask through one epoch: events in, commands out, executed in order.

What happens when is decided by pure objects: the barrier handler (when the snapshot is taken), the task's lifecycle and
coordinator (in which order, and what ends it), the channel state writer (what is stored of rows in flight). Here are
the effects: rows processed, state restored and frozen, objects uploaded. One Spark task drives several of these; their
barriers leave as one, so each stops at its barrier, and goes on once that was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

from milepost.codec.records import to_json
from milepost.errors import CheckpointError, ProtocolViolation
from milepost.operators.contract import OperatorFailed
from milepost.protocol.exchange.barrier import EventKind, SubtaskIdentity
from milepost.protocol.exchange.channel_file import InFlightBuffer, InputChannel
from milepost.protocol.exchange.channel_state import ChannelStateWriter
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask import barrier_events as handler_says
from milepost.protocol.subtask import subtask_commands as coordinator_says
from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier
from milepost.protocol.subtask.barrier_handler import BarrierHandler
from milepost.protocol.subtask.snapshot import AsyncSnapshot, SubmitUpload
from milepost.protocol.subtask.subtask import Commands, SubtaskCommand, SubtaskCoordinator
from milepost.protocol.subtask.task_lifecycle import TaskLifecycle
from milepost.spark.task.input_gate import Chunk
from milepost.spark.task.subtask_context import Snapshot, SubtaskResources, SubtaskWork
from milepost.spark.wire.epoch_clock import Pacer
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan
from milepost.spark.wire.task_output import TaskOutput
from milepost.storage.notices import AbortNotice

_LOG = logging.getLogger(__name__)


class OperatorSubtask:
    """One operator's subtask: `process` up to its barrier, then `snapshot`, then `settle`.

    Attributes:
        uid: operator. decline: why it refuses the checkpoint; None as long as it does not.
        ack: its acknowledgement, once it is settled.

    Args:
        writer: of the channel state, which it may share with other operators of the task.
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
        self._moved: list[int] = []
        self._after_barrier: Commands | None = None
        self._work: SubtaskWork | None = None
        self._snapshot: Snapshot | None = None
        self._lifecycle.restore(plan.base, plan.notifications.reported)

    def process(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        """Process the input up to the barrier, or to the deadline; yield what comes out. May end in a decline."""
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
        """Go on behind the barrier, which has been sent: freeze the state, start the upload. May end in a decline."""
        if self._after_barrier is None:
            raise ProtocolViolation(f"operator {self.uid}: snapshot before its barrier. Nothing was uploaded.")
        commands, self._after_barrier = self._after_barrier, ()
        self._run(commands)

    def settle(self) -> None:
        """Wait for the upload, and acknowledge or decline."""
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
        """A sender sent its cancel marker on a channel: decline, and pass the sender's own reason on."""
        self._cause = cause
        self._drive(self._follow(self._handler.cancel(channel, self._checkpoint_id)))

    def fail(self, cause: Decline) -> None:
        """Give the checkpoint up for a reason of its own."""
        self._cause = cause
        self._run(self._coordinator.abort_on_barrier(self._checkpoint_id, cause.reason, cause.detail))

    def fail_operator(self, error: OperatorFailed) -> None:
        """Give the checkpoint up because the operator cannot process its rows."""
        detail = f"operator {self.uid}: {error.reason}"
        self.fail(self._identity.decline(CheckpointFailureReason.OPERATOR_ERROR, detail))

    def fail_for(self, error: CheckpointError) -> None:
        """Give the checkpoint up because of what a store raised."""
        self.fail(self._identity.decline_for_stored(error, f"operator {self.uid}"))

    def aborted(self, notice: AbortNotice) -> None:
        """The checkpoint was aborted while this subtask ran: it uploads nothing, and does not acknowledge."""
        self._run(self._lifecycle.notify_aborted(self._checkpoint_id, notice.latest_completed))
        detail = f"operator {self.uid}: the checkpoint was aborted while its subtask ran; nothing was uploaded"
        self.decline = self._identity.decline(notice.reason, detail)
        self.close()

    def close(self) -> None:
        """End: what is not acknowledged is given up. Idempotent."""
        self._handler.close()
        self._run(self._lifecycle.close())

    def crash(self) -> None:
        """An error that is no answer ends the attempt: nothing of it goes on while another one begins."""
        self._handler.close()
        self._run(self._lifecycle.fail())

    @property
    def _coordinator(self) -> SubtaskCoordinator:
        return self._lifecycle.coordinator

    def _align(self, work: SubtaskWork) -> Iterator[TaskOutput]:
        barrier = self._barrier(work.pacer)
        for channel, position in work.gate.announced():
            yield from self._follow(self._handler.announcement(channel, position, barrier, work.pacer.now_ms()))
        while True:
            if self._timer_ms is not None and work.pacer.now_ms() >= self._timer_ms:
                yield from self._follow(self._handler.timeout(self._checkpoint_id, work.pacer.now_ms()))
            else:
                chunk = work.gate.take(work.pacer.limit_bytes())
                yield from self._process(work, chunk)
                for channel in chunk.ended:
                    if channel in self._moved:
                        continue  # the time was up at a channel before it
                    yield from self._follow(self._handler.barrier(channel, barrier, work.pacer.now_ms()))
            while self._moved:
                channel = self._moved.pop(0)
                moved = self._handler.barrier(channel, barrier.unaligned(), work.pacer.now_ms())
                yield from self._follow(moved)
            if not self._handler.pending:
                break
        if self._collecting:
            yield from self._obey(self._coordinator.in_flight_collected(self._checkpoint_id))
        if self._plan.alignment.final:
            for channel in sorted(self._handler.open_channels):
                yield from self._follow(self._handler.end_of_partition(channel, work.pacer.now_ms()))
        times, metrics = self._handler.alignment_times, self._resources.metrics
        metrics.aligned(self.uid, times.duration_ms, sum(buffer.size for buffer in work.gate.in_flight))
        metrics.worked_in(self.uid, work.rows.slices)

    def _barrier(self, pacer: Pacer) -> CheckpointBarrier:
        """Return the barrier as this subtask meets it: what it may still spend counts from now."""
        now_ms, deadline_ms = pacer.now_ms(), pacer.deadline_ms
        if deadline_ms is None:
            return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.ALIGNED)
        return CheckpointBarrier(self._checkpoint_id, now_ms, Alignment.TIMEOUTABLE, max(1, deadline_ms - now_ms))

    def _process(self, work: SubtaskWork, chunk: Chunk) -> Iterator[TaskOutput]:
        if not chunk.buffers:
            return
        began_ms = work.pacer.clock()
        yield from work.rows.take(chunk)
        work.pacer.chunk(chunk.size, began_ms)

    def _follow(self, commands: tuple[handler_says.Command, ...]) -> Iterator[TaskOutput]:
        """Execute what the barrier handler says."""
        for command in commands:
            match command:
                case handler_says.ArmTimer():
                    self._timer_ms = command.at_ms
                case handler_says.CancelTimer():
                    self._timer_ms = None
                case handler_says.BlockChannel():
                    self._at_work.gate.block(command.channel)
                case handler_says.UnblockChannel():
                    self._at_work.gate.unblock(command.channel)
                case handler_says.Prioritise():
                    self._moved.append(command.channel)
                case handler_says.InitInputs():
                    self._at_work.unread = self._at_work.gate.unread()
                    yield from self._obey(self._coordinator.init_input_checkpoint(command.barrier))
                case handler_says.StartRecording():
                    self._record(command.channel)
                case handler_says.StopRecording():
                    continue  # everything that a channel holds was there, and recorded, when recording began
                case handler_says.TriggerCheckpoint():
                    self._unaligned = command.barrier.is_unaligned
                    finished = self._plan.alignment.final
                    if finished:
                        # Always aligned: the last barrier is here, so the last input is processed.
                        self._lifecycle.end_of_data(self._checkpoint_id)
                    refused = self._lifecycle.refuse(self._checkpoint_id)
                    yield from self._obey(
                        refused or self._coordinator.checkpoint_state(command.barrier, finished=finished)
                    )
                case handler_says.AbortCheckpoint():
                    yield from self._obey(
                        self._coordinator.abort_on_barrier(command.checkpoint_id, command.reason, command.detail)
                    )

    def _record(self, channel: int) -> None:
        producer, sender = divmod(channel, self._plan.senders)
        unread = self._at_work.unread.get(channel, ())
        buffers = [InFlightBuffer(EventKind.BUFFER, buffer.size, buffer) for buffer in unread]
        source = InputChannel(self._item.inputs[producer].edge, sender)
        files = self._resources.files
        files.execute(self._writer, self._writer.add_input(self.uid, self._checkpoint_id, source, buffers))

    def _obey(self, commands: Commands) -> Iterator[TaskOutput]:
        """Execute what the coordinator says, up to the barrier: what is behind it waits for `snapshot`."""
        waiting = iter(commands)
        for command in waiting:
            match command:
                case coordinator_says.PrepareOperators():
                    in_flight = [buffer.lateness_us for buffer in self._at_work.gate.in_flight]
                    yield from self._at_work.rows.finish(in_flight)
                case coordinator_says.BroadcastBarrier():
                    self._after_barrier = tuple(waiting)
                case coordinator_says.FreezeState():
                    yield from self._obey(self._freeze(command))
                case _:
                    self._execute(command)

    def _execute(self, command: SubtaskCommand) -> None:
        """Execute a command that emits no rows."""
        match command:
            case coordinator_says.CollectInFlight():
                self._collecting = True
            case SubmitUpload():
                self._submit(command.snapshot)
            case coordinator_says.AwaitUpload():
                if self._snapshot is not None and self._snapshot.upload is not None:
                    wait([self._snapshot.upload])
            case coordinator_says.CancelUpload():
                if self._snapshot is not None and self._snapshot.upload is not None:
                    self._snapshot.upload.cancel()
            case coordinator_says.DiscardSnapshot():
                self._snapshot = None
            case coordinator_says.RecordIncomplete():
                self._resources.metrics.incomplete = True
            case coordinator_says.DeclineCheckpoint():
                self.decline = self._cause or self._identity.decline(command.reason, command.detail)
            case coordinator_says.AcknowledgeCheckpoint():
                self._acknowledge(command)
            case coordinator_says.BroadcastCancelMarker():
                pass  # its task's output stage sends one marker for all its subtasks
            case coordinator_says.NotifyOperators():
                self._notify_operator(command)
            case coordinator_says.NotifyState():
                cache, key_groups = self._resources.cache, self._resources.key_groups
                cache.notify(self.uid, key_groups, command.checkpoint_id, command.what)
            case _:
                self._write_channel_state(command)

    def _write_channel_state(self, command: SubtaskCommand) -> None:
        """Tell the channel state writer of this subtask's part of its file."""
        writer = self._writer
        match command:
            case coordinator_says.StartChannelState():
                says = writer.start(self.uid, command.checkpoint_id)
            case coordinator_says.FinishInput():
                says = writer.finish_input(self.uid, command.checkpoint_id)
            case coordinator_says.FinishOutput():
                # Rows that were emitted are handed on, all of them: there is no output in flight.
                says = writer.finish_output(self.uid, command.checkpoint_id)
            case coordinator_says.AbortChannelState():
                says = writer.abort(
                    self.uid, command.checkpoint_id, command.reason, command.detail, cleanup=command.cleanup
                )
            case _:
                raise ProtocolViolation(f"operator {self.uid}: nobody executes {type(command).__name__}")
        self._resources.files.execute(writer, says)

    def _freeze(self, command: coordinator_says.FreezeState) -> Commands:
        try:
            frozen = self._at_work.rows.freeze()
            taken = self._writer.take_result(self.uid, command.checkpoint_id) if command.channel_state else None
        except ProtocolViolation:
            raise  # a bug, not a refusal
        except CheckpointError as error:
            cause = self._identity.decline_for(error, f"operator {self.uid}", CheckpointFailureReason.IO_EXCEPTION)
            self._cause = cause
            return self._coordinator.freeze_failed(command.checkpoint_id, cause.reason, cause.detail)
        self._snapshot = Snapshot(frozen, taken)
        self._resources.metrics.mark("sync_ms")
        return self._coordinator.frozen(command.checkpoint_id)

    def _submit(self, asynchronous: AsyncSnapshot) -> None:
        snapshot = self._snapshot
        assert snapshot is not None, "the state is frozen before its upload"
        snapshot.asynchronous = asynchronous
        upload, directory = self._resources.upload, self._item.directory
        snapshot.upload = self._resources.pool.submit(upload, self.uid, snapshot.frozen, directory)

    def _acknowledge(self, command: coordinator_says.AcknowledgeCheckpoint) -> None:
        work, snapshot = self._at_work, self._snapshot
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

    def _notify_operator(self, command: coordinator_says.NotifyOperators) -> None:
        listener = self._item.operator.listener
        if listener is None:
            return
        try:
            listener.notify(command.checkpoint_id, command.what)
        except OperatorFailed as error:
            if self.decline is None:
                raise
            _LOG.warning("checkpoint %s, which is given up: %s", self._checkpoint_id, error)

    def _fail_snapshot(self, asynchronous: AsyncSnapshot, cause: Decline) -> None:
        self._cause = cause
        self._run(asynchronous.failed(cause.detail, running=self._lifecycle.answers, reason=cause.reason))
        self._coordinator.upload_ended(self._checkpoint_id)

    @property
    def _at_work(self) -> SubtaskWork:
        if self._work is None:
            raise ProtocolViolation(f"operator {self.uid}: its subtask has not been restored")
        return self._work

    def _run(self, commands: Commands) -> None:
        self._drive(self._obey(commands))

    def _drive(self, items: Iterator[TaskOutput]) -> None:
        """Execute to the end what emits no rows."""
        for _ in items:
            raise ProtocolViolation(f"operator {self.uid}: rows where none may come")
