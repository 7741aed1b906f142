"""One try of `run_epoch`: from a granted token to a durable `_metadata` (everything before the commit point).

All of it lies below the token's own prefix, so a fenced try that still runs writes where nobody reads.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from pipeline.config.compatibility import state_signatures
from pipeline.heartbeat import Heartbeat
from pipeline.job_code import JobCode, LoadedCode, check_locations, check_recorded_spec, read_recorded_code
from pipeline.job_context import JobContext
from pipeline.metadata import (
    AcknowledgedSubtask,
    CheckpointMetadata,
    OperatorSnapshot,
    SinkPosition,
    SinkSnapshot,
    SourceSnapshot,
)
from pipeline.operators.contract import StatefulOperator
from pipeline.planning import EpochPlan, SourceInput, decode_input_record
from pipeline.protocol.abort_reasons import NOT_WRITTEN, stating
from pipeline.protocol.acknowledgements import SubtaskAnswer, Verified, verify
from pipeline.protocol.errors import InvalidRequest, StateCorrupt
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.protocol.records import ManifestState, PendingCheckpoint
from pipeline.protocol.watermarks import source_watermark
from pipeline.quality.gate import evaluate_all
from pipeline.quality.verdict import GateVerdict
from pipeline.sinks.contract import Committable, SinkMark, StagedFile
from pipeline.sinks.parquet import ParquetSink
from pipeline.sources.consumed import append
from pipeline.state.handles import StateHandle
from pipeline.storage.checked import read_handle
from pipeline.storage.layout import consumed_prefix, metadata_key, metrics_prefix

_LOG = logging.getLogger(__name__)
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class EpochAnswers:
    """What the data plane returns: the subtasks' answers, and the schemas they worked with.

    Attributes:
        answers: every acknowledgement that reached the driver, distinct copies included, and every decline.
        operators: stateful operators by uid. schemas: of every node's rows, `<uid>.late` included.
        session_ms: time until Spark was there. job_ms: time of the Spark job.
    """

    answers: tuple[SubtaskAnswer, ...]
    operators: Mapping[str, StatefulOperator]
    schemas: Mapping[str, pa.Schema]
    session_ms: int
    job_ms: int


class EpochRunner(Protocol):
    """The data plane as the JobMaster sees it."""

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run one epoch. Raises SubtaskDeclined, or what the store raises."""

    def stop(self) -> None:
        """End what `run` is doing, from another thread: its session was fenced. Nothing, when it does nothing."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The end of a try: acknowledged by every subtask, judged by the gate, durable; not yet committed."""

    checkpoint_id: CheckpointId
    token: FencingToken
    verdict: GateVerdict
    rows_in: int
    rows_out: int


def run_planned_epoch(
    context: JobContext, state: ManifestState, pending: PendingCheckpoint, runner: EpochRunner
) -> EpochReport:
    """Run the pending checkpoint's epoch under its token and write its `_metadata`.

    Raises:
        SubtaskDeclined: the code is not what the trigger recorded (I13), a subtask declined, or the acknowledgements do
            not fit together (I7).
        InvalidRequest: the spec does not fit the state it would restore, or a sink refuses the rows.
        StateCorrupt: the base checkpoint cannot be read.
    """
    started = time.monotonic()
    base = context.base_metadata(state, pending.base)
    inputs = decode_input_record(read_handle(context.store, pending.plan))
    check_recorded_spec(context, pending)
    check_locations(context, base)
    code = read_recorded_code(context, pending)
    plan = _plan(context, state, pending, base, inputs, code, code.load(context))
    with Heartbeat(context, pending, runner.stop):
        answers = runner.run(plan)
        _check_state_schemas(base, answers)
        verified = verify(pending.checkpoint_id, pending.token, pending.expected, answers.answers)
        ran = time.monotonic()
        committables = _committables(context, answers, verified)
        verdict = _judge(context, committables)
        judged = time.monotonic()
        if not verdict.vetoes:
            with stating(CheckpointFailureReason.SINK_PREPARE_FAILED, InvalidRequest):
                committables = _prepare(context, state, pending, base, committables)
        prepared = time.monotonic()
        timings = {
            "plan_ms": round((ran - started) * 1000) - answers.session_ms - answers.job_ms,
            "session_ms": answers.session_ms,
            "job_ms": answers.job_ms,
            "gate_ms": round((judged - ran) * 1000),
            "prepare_ms": round((prepared - judged) * 1000),
        }
        metadata = _metadata(context, plan, pending, base, inputs, answers, verified, committables, verdict, timings)
        with stating(CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, *NOT_WRITTEN):
            context.store.put(metadata_key(pending.checkpoint_id, pending.token), metadata.encode())
    rows_in = sum(source.rows for source in metadata.sources.values())
    rows_out = sum(sink.committable.rows for sink in metadata.sinks.values())
    return EpochReport(pending.checkpoint_id, pending.token, verdict, rows_in, rows_out)


def _plan(
    context: JobContext,
    state: ManifestState,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    inputs: tuple[SourceInput, ...],
    code: JobCode,
    loaded: LoadedCode,
) -> EpochPlan:
    stateful = [node.uid for node in loaded.graph.stateful]
    known = base.operators if base is not None else {}
    return EpochPlan(
        job=context.job,
        spec=context.spec,
        graph=loaded.graph,
        checkpoint_id=pending.checkpoint_id,
        token=pending.token,
        timeline=state.live,
        epoch=pending.epoch,
        base=pending.base,
        inputs=inputs,
        watermarks_us={name: item.watermark_us for name, item in base.sources.items()} if base is not None else {},
        firing_us={uid: known[uid].firing_us for uid in stateful if uid in known},
        states={uid: known[uid].handles for uid in stateful if uid in known},
        job_store=context.store_config,
        sources={name: context.source(name)[0] for name in context.spec.sources},
        sinks={sink.name: context.sink_config(sink.name) for sink in context.spec.sinks},
        functions=loaded.functions,
        code_hash=code.hash,
        cache_directory=context.cache_directory,
        timeout_ms=max(1, pending.deadline_ms - context.store.clock_ms()),
    )


def _check_state_schemas(base: CheckpointMetadata | None, answers: EpochAnswers) -> None:
    """Refuse a type change that only Spark's analysis of the SQL could show."""
    for uid, snapshot in base.operators.items() if base is not None else ():
        operator = answers.operators.get(uid)
        if operator is not None and _types(operator.state_schema) != _types(snapshot.state_schema):
            raise InvalidRequest(
                f"operator {uid}: its state has the columns {_columns(snapshot.state_schema)}, the job now asks for "
                f"{_columns(operator.state_schema)}. Nothing was published.",
                hint="undo the change; or give the operator a new uid and add --allow-non-restored-state",
            )


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _committables(context: JobContext, answers: EpochAnswers, verified: Verified) -> dict[str, Committable]:
    """What each sink would publish: the staged files that the verified acknowledgements name, in subtask order."""
    committables = {}
    for name, sink_input in context.graph.sink_inputs.items():
        node = f"{sink_input.uid}.late" if sink_input.late else sink_input.uid
        files = []
        for ack in verified.acknowledgements:
            staged = ack.payload.get("sinks")
            if isinstance(staged, dict) and name in staged:
                files.append(StagedFile(**staged[name]))
        committables[name] = context.sink(name).committable(files, answers.schemas[node])
    return committables


def _judge(context: JobContext, committables: Mapping[str, Committable]) -> GateVerdict:
    judged = {spec.sink for spec in context.spec.quality}
    tables = {name: context.sink(name).staged_table(committables[name]) for name in sorted(judged)}
    return evaluate_all(context.spec.quality, tables)


def _prepare(
    context: JobContext,
    state: ManifestState,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    committables: Mapping[str, Committable],
) -> dict[str, Committable]:
    """Everything that can fail for a known reason, before the commit point (DESIGN section 7)."""
    prepared = {}
    for name, committable in committables.items():
        sink = context.sink(name)
        predecessor = _predecessor(base, name)
        _check_position(state, name, sink, predecessor)
        sink.prepare(committable, mark=SinkMark(state.live, pending.checkpoint_id, predecessor))
        prepared[name] = sink.compact(
            committable, predecessor=predecessor, checkpoint_id=pending.checkpoint_id, token=pending.token
        )
    return prepared


def _check_position(state: ManifestState, name: str, sink: ParquetSink, predecessor: int | None) -> None:
    """Refuse a table that is not where this lineage left it: its commit could never follow (I14)."""
    if any(name in checkpoint.unconfirmed for checkpoint in state.checkpoints):
        return  # an older commit is still to come: the table may be at any checkpoint before it
    head = sink.head()
    at = head.checkpoint_id if head is not None else 0
    if at != (predecessor or 0):
        raise InvalidRequest(
            f"sink {name}: its table is at checkpoint {at}, this job left it at checkpoint {predecessor or 0}. "
            "Nothing was published.",
            hint="it was moved, deleted, or written by an earlier life of the job: put it back, or use a new path",
            sink=name,
        )


def _predecessor(base: CheckpointMetadata | None, sink: str) -> int | None:
    position = base.marks.get(sink) if base is not None else None
    return None if position is None else position.checkpoint_id


def _metadata(
    context: JobContext,
    plan: EpochPlan,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    inputs: tuple[SourceInput, ...],
    answers: EpochAnswers,
    verified: Verified,
    committables: Mapping[str, Committable],
    verdict: GateVerdict,
    timings: Mapping[str, int],
) -> CheckpointMetadata:
    marks = dict(base.marks) if base is not None else {}
    return CheckpointMetadata(
        job=context.spec.name,
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=plan.timeline,
        token=pending.token,
        base=pending.base,
        code_hash=pending.code_hash,
        spec_hash=pending.spec_hash,
        spec_text=context.job.text,
        signatures=state_signatures(context.job.spec, plan.graph),
        max_parallelism=context.spec.checkpointing.max_parallelism,
        plan=pending.plan,
        sources=_sources(context, pending, base, inputs, verified),
        operators=_operators(answers, verified),
        sinks={
            name: SinkSnapshot(committable, _predecessor(base, name), context.sink_location(name))
            for name, committable in committables.items()
        },
        marks=marks
        | {name: SinkPosition(int(pending.checkpoint_id), context.sink_location(name)) for name in committables},
        acknowledged=tuple(
            AcknowledgedSubtask(
                ack.level,
                ack.subtask,
                ack.attempt_digest,
                {str(item.subtask): item.attempt_digest for item in ack.consumed},
            )
            for ack in verified.acknowledgements
        ),
        verdict=verdict,
        timings=timings,
        tasks=_task_metrics(context, pending),
    )


def _sources(
    context: JobContext,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    inputs: tuple[SourceInput, ...],
    verified: Verified,
) -> dict[str, SourceSnapshot]:
    directory = consumed_prefix(pending.checkpoint_id, pending.token)
    # A source that the spec has dropped keeps its position: when it comes back, nothing is read twice.
    snapshots = {
        name: replace(item, rows=0, objects=0, missing=())
        for name, item in (base.sources.items() if base is not None else ())
        if name not in context.spec.sources
    }
    for item in inputs:
        spec = context.spec.sources[item.name]
        before = base.sources.get(item.name) if base is not None else None
        acks = _source_acks(verified, item.name)
        newest = max((ack["newest_event_us"] for ack in acks if ack["newest_event_us"] is not None), default=None)
        missing = tuple(sorted(key for ack in acks for key in ack["missing"]))
        watermark_us = None
        if spec.event_time is not None:
            delay_us = round(spec.watermark_delay.total_seconds() * _MICROSECONDS)
            watermark_us = source_watermark(before.watermark_us if before else None, newest, delay_us)
        snapshots[item.name] = SourceSnapshot(
            watermark_us=watermark_us,
            consumed=append(
                context.store,
                directory,
                item.name,
                before.consumed if before else (),
                [obj for obj in item.consumed if obj.key not in missing],
                pending.checkpoint_id,
            ),
            rows=sum(ack["rows"] for ack in acks),
            objects=len(item.objects) - len(missing),
            missing=missing,
        )
    return snapshots


def _source_acks(verified: Verified, source: str) -> list[dict[str, Any]]:
    found = []
    for ack in verified.acknowledgements:
        sources = ack.payload.get("sources")
        if isinstance(sources, dict) and source in sources:
            found.append(sources[source])
    return found


def _operators(answers: EpochAnswers, verified: Verified) -> dict[str, OperatorSnapshot]:
    snapshots = {}
    for uid, operator in answers.operators.items():
        acks: list[dict[str, Any]] = []
        for ack in verified.acknowledgements:
            operators = ack.payload.get("operators")
            if isinstance(operators, dict) and uid in operators:
                acks.append(operators[uid])
        firing = {ack["firing_us"] for ack in acks}
        if len(firing) != 1:
            raise StateCorrupt(f"operator {uid}: its subtasks acknowledged different firing watermarks: {firing}")
        snapshots[uid] = OperatorSnapshot(
            key=tuple(operator.key),
            routing_key=tuple(operator.routing_key),
            state_schema=operator.state_schema,
            firing_us=firing.pop(),
            handles=tuple(StateHandle.from_json(ack["state"]) for ack in acks),
            rows_in=sum(ack["rows_in"] for ack in acks),
            rows_out=sum(ack["rows_out"] for ack in acks),
            late_rows=sum(ack["late_rows"] for ack in acks),
        )
    return snapshots


def _task_metrics(context: JobContext, pending: PendingCheckpoint) -> tuple[Mapping[str, Any], ...]:
    directory = metrics_prefix(pending.checkpoint_id, pending.token)
    return tuple(json.loads(context.store.get(stat.key)) for stat in context.store.list(directory))
