"""The level task runs the subtasks of all operators of its level in one Spark task.

It receives and checks all channels, lets each operator process up to the barrier, sends that one barrier, and only then
lets them snapshot. Rows are processed in plan order, so the result does not depend on arrival order; in the first
level, whose channels are the plan's own order, it does not depend on parallelism either.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import pyarrow as pa

from milepost.errors import CheckpointError
from milepost.operators.contract import OperatorFailed
from milepost.protocol.exchange.barrier import AckEvent, SubtaskAck, SubtaskIdentity, distinct_acknowledgements
from milepost.protocol.exchange.channel_state import share_files
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.manifest.transaction.lease import HEARTBEAT_INTERVAL_MS
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.input_gate import InputGate
from milepost.spark.task.operator_subtask import OperatorSubtask
from milepost.spark.task.processing import FrozenTables, OpenSlice, Processing
from milepost.spark.task.subtask_context import SubtaskResources, SubtaskWork
from milepost.spark.wire.channel_files import ChannelFiles
from milepost.spark.wire.epoch_clock import Pacer, task_deadline_ms
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan, input_watermark_us
from milepost.spark.wire.task_input import TaskInput, receive
from milepost.spark.wire.task_output import Declined, Forward, OperatorStageEnd, RowsDone, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.state.buffers.buffers import Buffer
from milepost.state.buffers.channel_state import restore_channel_state
from milepost.state.buffers.spill import SpilledBodies
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import FrozenState, restore_state
from milepost.state.keyed.slices import EncodedSlices
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.notices import AbortNotice, read_notice


def run_subtask(
    plan: LevelPlan, attempt: Attempt, batches: Iterable[pa.RecordBatch], store: ObjectStore, metrics: TaskMetrics
) -> Iterator[TaskOutput]:
    """Yield one task's output, then its acknowledgement or a decline. The input is always drained.

    Raises: EnvironmentUnusable: the node's disk does not take the input that the attempt's memory has no room for.
    """
    started_ms = attempt.clock()
    received = receive(plan.identity(attempt.subtask), plan.senders, batches, attempt.memory)
    metrics.mark("receive_ms")
    metrics.received(received.buffers, received.size)
    with attempt.executor(len(plan.operators) + 1) as pool:
        task = _Task(plan, attempt, store, metrics, pool)
        yield from task.run(received, started_ms)


class _Task:
    """One attempt of one task."""

    def __init__(
        self, plan: LevelPlan, attempt: Attempt, store: ObjectStore, metrics: TaskMetrics, pool: Executor
    ) -> None:
        self._clock, self._memory, self._subtask = attempt.clock, attempt.memory, attempt.subtask
        self._bodies = SpilledBodies(self._memory.spill)
        self._plan, self._store, self._metrics = plan, store, metrics
        self._restored_from = CheckpointObjects(store, plan.base, plan.job, each=partial(parallel_map, store))
        self._identity: SubtaskIdentity = plan.identity(self._subtask)
        self._key_groups = plan.key_groups(self._subtask)
        signatures = {item.operator.uid: item.signature for item in plan.operators}
        self._files = ChannelFiles(store, plan.channel_directory, self._key_groups, signatures, pool)
        cache = StateCache(plan.cache_directory)
        resources = SubtaskResources(self._upload, pool, self._files, cache, self._key_groups, metrics)
        writers = share_files(signatures)
        self._hosted = [
            (item, OperatorSubtask(plan, item, self._identity, writers[item.operator.uid], resources))
            for item in plan.operators
        ]
        self._writers = list({id(writer): writer for writer in writers.values()}.values())

    def run(self, received: TaskInput, started_ms: int) -> Iterator[TaskOutput]:
        try:
            declined = yield from self._run(received, started_ms)
            if declined is not None:
                yield Declined(declined)
        except Exception:  # no answer to the checkpoint: Spark runs another attempt, or gives the job up
            for _, one in self._hosted:
                one.crash()
            raise
        finally:  # also when Spark stops asking, because it has killed the task
            for _, one in self._hosted:
                one.close()
        for writer in self._writers:
            self._files.execute(writer, writer.close())

    def _run(self, received: TaskInput, started_ms: int) -> Generator[TaskOutput, None, Decline | None]:
        if isinstance(received.outcome, Decline):
            return self._refused(received, received.outcome)
        carried = distinct_acknowledgements(received.outcome)
        gates = [
            [
                buffers
                for one in item.inputs
                for buffers in received.take(item.operator.uid, one.edge, self._plan.senders)
            ]
            for item, _ in self._hosted
        ]
        for buffer in received.rest():
            yield Forward(self._subtask, buffer)
        deadline_ms = task_deadline_ms(self._plan.alignment, started_ms, self._plan.share.waves(self._subtask))
        for index, (item, one) in enumerate(self._hosted):
            self._metrics.working_on = one.uid
            now_ms, operators = self._clock(), len(self._hosted) - index
            # What is left is shared fairly with the operators that follow.
            ends_ms = None if deadline_ms is None else now_ms + (deadline_ms - now_ms) // operators
            pacer = Pacer(ends_ms, self._clock)
            try:
                work = self._restore(item, gates[index], pacer, carried)
            except OperatorFailed as error:
                one.fail_operator(error)
            except CheckpointError as error:
                one.fail_for(error)
            else:
                yield from one.process(work)
                self._metrics.rows_in += work.rows.rows_in
            self._metrics.mark("process_ms")
            if one.decline is not None:
                return one.decline
        self._metrics.working_on = None
        self._metrics.left_ms = None if deadline_ms is None else deadline_ms - self._clock()
        yield RowsDone()
        return (yield from self._snapshot(received.outcome, carried))

    def _refused(self, received: TaskInput, decline: Decline) -> Decline:
        """The channels are not whole, or a sender declined: so does each subtask here."""
        for _, one in self._hosted:
            if received.cancelled is not None and received.cancelled.decline is decline:
                one.cancel(received.cancelled.channel, decline)
            else:
                one.fail(decline)
        return decline

    def _restore(
        self, item: OperatorPlan, channels: Sequence[Sequence[Buffer]], pacer: Pacer, carried: tuple[SubtaskAck, ...]
    ) -> SubtaskWork:
        own = self._key_groups
        some_table = next(iter(item.tables))  # whose rows lie where they are exchanged to, as those of every other do
        replayed = restore_channel_state(
            self._state_of(item, some_table, own), item.channels, self._restored_from, item.routing_keys
        )
        self._metrics.mark("restore_ms")
        watermark_us = input_watermark_us(item.clocks, carried, final=self._plan.alignment.final)
        rows = Processing(item, own, self._plan, partial(self._open, item), self._memory, watermark_us)
        return SubtaskWork(gate=InputGate(replayed, channels), pacer=pacer, rows=rows)

    def _open(self, item: OperatorPlan, key_groups: range, previous_us: int | None) -> OpenSlice:
        """Restore some key groups of an operator: all that the subtask owns, or one slice of several."""
        whole = key_groups == self._key_groups
        self._metrics.mark("process_ms")
        objects = self._restored_from if whole else replace(self._restored_from, bodies=self._bodies)
        cache = StateCache(self._plan.cache_directory, keep_mapped=whole)
        tables = {
            name: restore_state(
                self._state_of(item, name, key_groups),
                table.handles,
                objects,
                watermark_us=previous_us,
                firing=item.firing,
                cache=cache,
            )
            for name, table in item.tables.items()
        }
        self._metrics.mark("restore_ms")
        return OpenSlice(tables, item.operator.begin(tables, previous_us))

    def _state_of(self, item: OperatorPlan, name: str, key_groups: range) -> StateIdentity:
        table = item.tables[name]
        keys = KeySpec(table.key, table.routing_key, self._plan.hasher)
        return StateIdentity.of(
            item.operator.uid, keys, table.schema, key_groups, self._plan.max_parallelism, table=name
        )

    def _snapshot(
        self, consumed: tuple[AckEvent, ...], carried: tuple[SubtaskAck, ...]
    ) -> Generator[TaskOutput, None, Decline | None]:
        """Behind the barrier: freeze, upload while the output stage stages its sinks, acknowledge."""
        try:
            notice = self._notice()
        except CheckpointError as error:
            return self._identity.decline_for(error, "notice of an abort", CheckpointFailureReason.IO_EXCEPTION)
        self._metrics.mark("notice_ms")
        for _, one in self._hosted:
            self._metrics.working_on = one.uid
            if notice is not None:
                one.aborted(notice)
            else:
                one.snapshot()
            if one.decline is not None:
                return one.decline
        self._metrics.working_on = None
        yield SnapshotStarted()
        self._files.settle()
        acks = {}
        for _, one in self._hosted:
            one.settle()
            if one.decline is not None:
                return one.decline
            acks[one.uid] = one.ack
        self._metrics.mark("async_wait_ms")
        digests = {channel: event.own.digest for channel, event in enumerate(consumed)}
        yield OperatorStageEnd({"operators": acks}, digests, carried)
        return None

    def _notice(self) -> AbortNotice | None:
        """Look for an abort. Of an epoch that has just begun hardly anybody says one, and there is little to skip."""
        if self._clock() - self._plan.alignment.started_ms < HEARTBEAT_INTERVAL_MS:
            return None
        return read_notice(self._store, self._plan.checkpoint_id, self._plan.token)

    def _upload(self, uid: str, tables: FrozenTables, directory: str) -> dict[str, StateHandle]:
        return {name: self._upload_table(uid, frozen, directory) for name, frozen in tables.items()}

    def _upload_table(self, uid: str, frozen: FrozenState | EncodedSlices, directory: str) -> StateHandle:
        began = time.monotonic()
        if isinstance(frozen, EncodedSlices):
            handle = frozen.upload(self._store.put)
            self._metrics.uploaded(uid, time.monotonic() - began)
            return handle
        snapshot = frozen.encode(directory)
        for upload in snapshot.uploads:
            self._store.put(upload.key, upload.body)
        frozen.stage_cache(snapshot)
        self._metrics.uploaded(uid, time.monotonic() - began)
        return snapshot.handle
