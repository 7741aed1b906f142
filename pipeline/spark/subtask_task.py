"""The host of a stateful subtask: aligns its channels, feeds its operators, snapshots their state.

One Spark task hosts the subtasks of all operators of its level. Rows are processed in plan order (inputs as the spec
names them, then channels, then sequence), so the result does not depend on arrival order; in the first level, whose
channels are the plan's own order, it does not depend on parallelism either.
The snapshot has a synchronous part (freeze) and an asynchronous one (encode, upload), which overlaps sink staging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.operators.contract import OperatorFailed, StatefulOperator
from pipeline.protocol.acknowledgements import Decline, decode_answer
from pipeline.protocol.barrier import Barrier, BarrierAligner, BarrierEvent, EventKind, SubtaskIdentity, carry
from pipeline.protocol.errors import CheckpointError, StateCorrupt
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.object_store import ObjectStore
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.protocol.watermarks import latest, operator_watermark, source_watermark
from pipeline.spark.exchange import decode_buffer
from pipeline.spark.items import Declined, Forward, HostEnd, Item, Rows, RowsDone
from pipeline.spark.task_metrics import TaskMetrics
from pipeline.state.cache import StateCache
from pipeline.state.handles import StateHandle
from pipeline.state.key_groups import key_group_range
from pipeline.state.keyed_state import FrozenState, restore_state


@dataclass(frozen=True, slots=True)
class SourceClock:
    """One event-time source as the watermark of an operator sees it: start of the epoch, and its delay."""

    name: str
    watermark_us: int | None
    delay_us: int


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One stateful operator of a level, with what its subtasks restore.

    Attributes:
        inputs: producers, in the order the spec names them. input_schema: of each of them.
        handles: of all subtasks in the base checkpoint, whatever its parallelism.
        directory: where this epoch's snapshots of it go.
        clocks: the event-time sources that reach it.
        previous_firing_us: its firing watermark in the base checkpoint.
    """

    operator: StatefulOperator
    inputs: tuple[str, ...]
    input_schema: pa.Schema
    handles: tuple[StateHandle, ...]
    directory: str
    clocks: tuple[SourceClock, ...]
    previous_firing_us: int | None


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """What the subtasks of one level do; the same for all of them."""

    job: str
    checkpoint_id: CheckpointId
    token: FencingToken
    base: CheckpointId
    level: int
    senders: int
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorPlan, ...]
    cache_directory: str

    def identity(self, subtask: int) -> SubtaskIdentity:
        return SubtaskIdentity(self.checkpoint_id, self.token, self.level, subtask)


def run_subtask(
    plan: LevelPlan, subtask: int, batches: Iterable[pa.RecordBatch], store: ObjectStore, metrics: TaskMetrics
) -> Iterator[Item]:
    """Yield one subtask's output, then its acknowledgement or a decline. The input is always drained."""
    aligner = BarrierAligner(plan.identity(subtask), plan.senders)
    buffers = _collect(aligner, batches)
    metrics.mark("alignment_ms")
    outcome = aligner.close()
    if isinstance(outcome, Decline):
        yield Declined(outcome)
        return
    carried = carry(outcome)
    newest = _newest_event_times(carried)
    hosted = {item.operator.uid for item in plan.operators}
    yield from _forward(subtask, buffers, hosted)
    uploads: dict[str, Future[StateHandle]] = {}
    counts: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(max_workers=max(1, len(plan.operators)), thread_name_prefix="snapshot") as pool:
        for item in plan.operators:
            rows = _input(item, buffers)
            uid = item.operator.uid
            try:
                frozen, emitted, late, firing_us = _process(plan, subtask, item, rows, newest, store, metrics)
            except OperatorFailed as error:
                yield _declined(
                    plan, subtask, CheckpointFailureReason.OPERATOR_ERROR, f"operator {uid}: {error.reason}"
                )
                return
            except CheckpointError as error:
                corrupt = isinstance(error, StateCorrupt)
                reason = CheckpointFailureReason.STATE_CORRUPT if corrupt else CheckpointFailureReason.IO_EXCEPTION
                yield Declined(plan.identity(subtask).decline_for(error, f"operator {uid}", reason))
                return
            uploads[uid] = pool.submit(_snapshot, frozen, item.directory, store)
            counts[uid] = {
                "rows_in": rows.num_rows,
                "rows_out": emitted.num_rows,
                "late_rows": late.num_rows,
                "firing_us": firing_us,
                "channel": None,
                "unaligned": False,
                "processed_bytes": sum(
                    payload.size
                    for (operator, _), channels in buffers.items()
                    if operator == uid
                    for payloads in channels.values()
                    for payload in payloads
                ),
            }
            metrics.rows_in += rows.num_rows
            yield Rows(uid, emitted)
            yield Rows(f"{uid}.late", late)
        metrics.mark("sync_ms")
        yield RowsDone()
        acks: dict[str, Any] = {}
        for uid, future in sorted(uploads.items()):
            try:
                acks[uid] = {**counts[uid], "state": future.result().to_json()}
            except CheckpointError as error:
                who, reason = f"operator {uid}: snapshot", CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
                yield Declined(plan.identity(subtask).decline_for(error, who, reason))
                return
        metrics.mark("async_ms")
    consumed = {channel: event.barrier.digest for channel, event in enumerate(outcome)}
    yield HostEnd({"operators": acks}, consumed, carried)


_Buffers = dict[tuple[str, str], dict[int, list[pa.Buffer]]]


def _collect(aligner: BarrierAligner, batches: Iterable[pa.RecordBatch]) -> _Buffers:
    buffers: _Buffers = {}
    for batch in batches:
        channels, sequences = batch.column("channel").to_pylist(), batch.column("sequence").to_pylist()
        operators, producers = batch.column("operator").to_pylist(), batch.column("producer").to_pylist()
        kinds, payloads = batch.column("kind").to_pylist(), batch.column("payload")
        for index, channel in enumerate(channels):
            payload = payloads[index].as_buffer()
            kind = EventKind(kinds[index])
            if kind is EventKind.BUFFER:
                operator, producer = operators[index], producers[index]
                if aligner.buffer(channel, sequences[index], operator, producer, payload):
                    buffers.setdefault((operator, producer), {}).setdefault(channel, []).append(payload)
            elif kind is EventKind.BARRIER:
                aligner.barrier(channel, BarrierEvent.decode(payload.to_pybytes()))
            else:
                answer = decode_answer(payload.to_pybytes().decode())
                assert isinstance(answer, Decline)
                aligner.cancel(answer)
    return buffers


def _forward(subtask: int, buffers: _Buffers, hosted: set[str]) -> Iterator[Item]:
    for operator, producer in sorted(buffers):
        if operator not in hosted:
            for _, payloads in sorted(buffers[operator, producer].items()):
                for payload in payloads:
                    yield Forward(subtask, operator, producer, payload.to_pybytes())


def _input(item: OperatorPlan, buffers: _Buffers) -> pa.Table:
    tables = [
        decode_buffer(payload).select(item.input_schema.names).cast(item.input_schema)
        for producer in item.inputs
        for _, payloads in sorted(buffers.get((item.operator.uid, producer), {}).items())
        for payload in payloads
    ]
    return pa.concat_tables(tables) if tables else item.input_schema.empty_table()


def _newest_event_times(carried: tuple[Barrier, ...]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for barrier in carried:
        for name, ack in barrier.ack.get("sources", {}).items():
            if ack["newest_event_us"] is not None:
                newest[name] = max(newest.get(name, ack["newest_event_us"]), ack["newest_event_us"])
    return newest


def _process(
    plan: LevelPlan,
    subtask: int,
    item: OperatorPlan,
    rows: pa.Table,
    newest: Mapping[str, int],
    store: ObjectStore,
    metrics: TaskMetrics,
) -> tuple[FrozenState, pa.Table, pa.Table, int | None]:
    operator = item.operator
    # Never below what has fired: rows of a window that was emitted stay late, whatever sources the operator reads now.
    lateness_us = latest(item.previous_firing_us, operator_watermark(clock.watermark_us for clock in item.clocks))
    ends = (source_watermark(clock.watermark_us, newest.get(clock.name), clock.delay_us) for clock in item.clocks)
    firing_us = latest(item.previous_firing_us, operator_watermark(ends))
    metrics.mark("process_ms")
    state = restore_state(
        operator.uid,
        operator.key,
        operator.state_schema,
        routing_key=operator.routing_key,
        handles=item.handles,
        key_groups=key_group_range(plan.max_parallelism, plan.parallelism, subtask),
        max_parallelism=plan.max_parallelism,
        watermark_us=item.previous_firing_us,
        store=store,
        checkpoint_id=plan.base,
        job=plan.job,
        cache=StateCache(plan.cache_directory),
    )
    metrics.mark("restore_ms")
    run = operator.begin(state, item.previous_firing_us)
    fired = run.advance(lateness_us)
    output = run.rows(rows, lateness_us)
    emitted = pa.concat_tables([fired, output.rows, run.finish(firing_us)])
    metrics.mark("process_ms")
    frozen = state.freeze(firing_us)
    metrics.mark("sync_ms")
    return frozen, emitted, output.late, firing_us


def _snapshot(frozen: FrozenState, directory: str, store: ObjectStore) -> StateHandle:
    snapshot = frozen.encode(directory)
    for upload in snapshot.uploads:
        store.put(upload.key, upload.body)
    frozen.stage_cache(snapshot)
    return snapshot.handle


def _declined(plan: LevelPlan, subtask: int, reason: CheckpointFailureReason, detail: str) -> Declined:
    return Declined(plan.identity(subtask).decline(reason, detail))
