"""Run the subtasks of all operators of a level in one Spark task.

The task receives and checks all channels. Each operator processes its input up to the barrier. The task then sends one
barrier for all operators, and only after that do they take their snapshots.

Rows are processed in plan order, so the result does not depend on arrival order. In the first level, whose channels
follow the order of the plan, it does not depend on parallelism either.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from milepost.errors import CheckpointError
from milepost.operators import OperatorFailed
from milepost.protocol.exchange import (
    Decline,
    SubtaskAck,
    SubtaskIdentity,
    distinct_acknowledgements,
    share_files,
)
from milepost.protocol.manifest.transaction import HEARTBEAT_INTERVAL_MS
from milepost.protocol.records import CheckpointFailureReason, ObjectStore
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.input_gate import InputGate
from milepost.spark.task.operator_subtask import OperatorSubtask
from milepost.spark.task.processing import FrozenTables, OpenSlice, Processing
from milepost.spark.task.subtask_context import SubtaskResources, SubtaskWork
from milepost.spark.wire.channel_files import ChannelFiles
from milepost.spark.wire.epoch_clock import Pacer, task_deadline_ms
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan, input_watermark_us, is_settled
from milepost.spark.wire.task_input import TaskInput, receive
from milepost.spark.wire.task_output import Declined, Forward, OperatorStageEnd, RowsDone, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.state.buffers import Buffer, SpilledBodies, restore_channel_state
from milepost.state.cache import StateCache
from milepost.state.keyed import EncodedSlices, FrozenState, restore_state
from milepost.state.layers import KeySpec
from milepost.state.runs import CheckpointObjects, StateHandle, StateIdentity
from milepost.storage import AbortNotice, read_notice
from milepost.storage.concurrency import parallel_map


def run_subtask(
    plan: LevelPlan, attempt: Attempt, batches: Iterable[pa.RecordBatch], store: ObjectStore, metrics: TaskMetrics
) -> Iterator[TaskOutput]:
    """Yield one task's output, then its acknowledgement or a decline. The input is always drained.

    Raises: EnvironmentUnusable: the input exceeds the attempt's memory, and the node's disk is full.
    """
    started_ms = attempt.clock()
    received = receive(plan.identity(attempt.subtask), plan.senders, batches, attempt.memory)
    metrics.mark("receive_ms")
    metrics.record_input(received.buffers, received.size)
    with attempt.executor(len(plan.operators) + 1) as pool:
        task = _Task(plan, attempt, store, metrics, pool)
        yield from task.run(received, started_ms)


class _Task:
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
        self._subtasks = [
            (item, OperatorSubtask(plan, item, self._identity, writers[item.operator.uid], resources))
            for item in plan.operators
        ]
        self._writers = list({id(writer): writer for writer in writers.values()}.values())

    def run(self, received: TaskInput, started_ms: int) -> Iterator[TaskOutput]:
        try:
            declined = yield from self._run(received, started_ms)
            if declined is not None:
                yield Declined(declined)
        except Exception:  # the checkpoint gets no answer: Spark starts another attempt, or fails the job
            for _, subtask in self._subtasks:
                subtask.crash()
            raise
        finally:  # also when Spark stops iterating because it killed the task
            for _, subtask in self._subtasks:
                subtask.close()
        for writer in self._writers:
            self._files.execute(writer, writer.close())

    def _run(self, received: TaskInput, started_ms: int) -> Generator[TaskOutput, None, Decline | None]:
        """Take part in the checkpoint, in the order of the protocol. Return the first decline."""
        if isinstance(received.outcome, Decline):
            return self._decline_all(received, received.outcome)
        consumed, carried = received.outcome, distinct_acknowledgements(received.outcome)
        # Align and finish: each operator processes its input up to its barrier.
        declined = yield from self._process(received, carried, started_ms)
        if declined is not None:
            return declined
        # Send the barrier, one for all operators. Only after that do they freeze their state and start the uploads.
        yield RowsDone()
        declined = self._snapshot()
        if declined is not None:
            return declined
        # Acknowledge once everything is uploaded. Meanwhile the output stage stages its sinks.
        yield SnapshotStarted()
        acks = self._settle()
        if isinstance(acks, Decline):
            return acks
        digests = {channel: event.own.digest for channel, event in enumerate(consumed)}
        yield OperatorStageEnd({"operators": acks}, digests, carried)
        return None

    def _process(
        self, received: TaskInput, carried: tuple[SubtaskAck, ...], started_ms: int
    ) -> Generator[TaskOutput, None, Decline | None]:
        gates = [
            [
                buffers
                for input_ in item.inputs
                for buffers in received.pop_edge(item.operator.uid, input_.edge, self._plan.senders)
            ]
            for item, _ in self._subtasks
        ]
        for buffer in received.remaining():
            yield Forward(self._subtask, buffer)
        deadline_ms = task_deadline_ms(self._plan.alignment, started_ms, self._plan.share.waves(self._subtask))
        for index, (item, subtask) in enumerate(self._subtasks):
            self._metrics.working_on = subtask.uid
            now_ms, operators = self._clock(), len(self._subtasks) - index
            # The remaining time is divided evenly among this operator and those after it: of 900 ms left for three
            # operators the first gets 300. If it takes 100, the second gets (900 - 100) / 2 = 400.
            ends_ms = None if deadline_ms is None else now_ms + (deadline_ms - now_ms) // operators
            pacer = Pacer(ends_ms, self._clock)
            try:
                work = self._restore(item, gates[index], pacer, carried)
            except (OperatorFailed, CheckpointError) as error:
                subtask.fail_for(error)
            else:
                yield from subtask.process(work)
                self._metrics.rows_in += work.rows.rows_in
            self._metrics.mark("process_ms")
            if subtask.decline is not None:
                return subtask.decline
        self._metrics.working_on = None
        self._metrics.left_ms = None if deadline_ms is None else deadline_ms - self._clock()
        return None

    def _snapshot(self) -> Decline | None:
        try:
            notice = self._read_abort_notice()
        except CheckpointError as error:
            return self._identity.decline_for(error, "notice of an abort", CheckpointFailureReason.IO_EXCEPTION)
        self._metrics.mark("notice_ms")
        for _, subtask in self._subtasks:
            self._metrics.working_on = subtask.uid
            if notice is not None:
                subtask.aborted(notice)
            else:
                subtask.snapshot()
            if subtask.decline is not None:
                return subtask.decline
        self._metrics.working_on = None
        return None

    def _settle(self) -> dict[str, Any] | Decline:
        """Return the acknowledgement of each operator, or the first decline."""
        self._files.settle()
        acks = {}
        for _, subtask in self._subtasks:
            subtask.settle()
            if subtask.decline is not None:
                return subtask.decline
            acks[subtask.uid] = subtask.ack
        self._metrics.mark("async_wait_ms")
        return acks

    def _decline_all(self, received: TaskInput, decline: Decline) -> Decline:
        """Decline in every subtask, because the channels are incomplete or a sender declined."""
        for _, subtask in self._subtasks:
            if received.cancelled is not None and received.cancelled.decline is decline:
                subtask.cancel(received.cancelled.channel, decline)
            else:
                subtask.fail(decline)
        return decline

    def _restore(
        self, item: OperatorPlan, channels: Sequence[Sequence[Buffer]], pacer: Pacer, carried: tuple[SubtaskAck, ...]
    ) -> SubtaskWork:
        own = self._key_groups
        some_table = next(iter(item.tables))  # any table: all are partitioned like the operator's input
        replayed = restore_channel_state(
            self._state_identity(item, some_table, own), item.channels, self._restored_from, item.routing_keys
        )
        self._metrics.mark("restore_ms")
        watermark_us = input_watermark_us(item.clocks, carried, final=self._plan.alignment.final)
        is_upstream_settled = is_settled(item.upstream, carried)
        rows = Processing(
            item, own, self._plan, partial(self._open, item), self._memory, watermark_us, is_upstream_settled
        )
        return SubtaskWork(gate=InputGate(replayed, channels), pacer=pacer, rows=rows)

    def _open(self, item: OperatorPlan, key_groups: range, previous_us: int | None) -> OpenSlice:
        """Restore the given key groups of an operator: all that the subtask owns, or one slice of them."""
        whole = key_groups == self._key_groups
        self._metrics.mark("process_ms")
        objects = self._restored_from if whole else replace(self._restored_from, bodies=self._bodies)
        cache = StateCache(self._plan.cache_directory, keep_mapped=whole)
        tables = {
            name: restore_state(
                self._state_identity(item, name, key_groups),
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

    def _state_identity(self, item: OperatorPlan, name: str, key_groups: range) -> StateIdentity:
        table = item.tables[name]
        keys = KeySpec(table.key, table.routing_key, self._plan.hasher)
        return StateIdentity.of(
            item.operator.uid, keys, table.schema, key_groups, self._plan.max_parallelism, table=name
        )

    def _read_abort_notice(self) -> AbortNotice | None:
        """Read the abort notice. A young epoch skips the request: an abort is unlikely, and would save little work."""
        if self._clock() - self._plan.alignment.started_ms < HEARTBEAT_INTERVAL_MS:
            return None
        return read_notice(self._store, self._plan.checkpoint_id, self._plan.token)

    def _upload(self, uid: str, tables: FrozenTables, directory: str) -> dict[str, StateHandle]:
        return {name: self._upload_table(uid, frozen, directory) for name, frozen in tables.items()}

    def _upload_table(self, uid: str, frozen: FrozenState | EncodedSlices, directory: str) -> StateHandle:
        began = time.monotonic()
        if isinstance(frozen, EncodedSlices):
            handle = frozen.upload(self._store.put)
            self._metrics.record_upload(uid, time.monotonic() - began)
            return handle
        snapshot = frozen.encode(directory)
        for upload in snapshot.uploads:
            self._store.put(upload.key, upload.body)
        frozen.stage_cache(snapshot)
        self._metrics.record_upload(uid, time.monotonic() - began)
        return snapshot.handle
