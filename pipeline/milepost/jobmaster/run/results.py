"""The results of an epoch become its `_metadata`, from verified acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.codec.records import from_json
from milepost.epoch.code_hash import code_by_name
from milepost.epoch.metadata import (
    AcknowledgedSubtask,
    CheckpointMetadata,
    OperatorSnapshot,
    SinkSnapshot,
    SourceSnapshot,
)
from milepost.epoch.plan import EpochPlan, SourceInput
from milepost.epoch.timing.task_times import TaskTimes
from milepost.epoch.timing.throughput import ThroughputEstimate, Work, measure
from milepost.errors import ProtocolViolation
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import collect_task_times
from milepost.jobmaster.run.acknowledged import acknowledged
from milepost.jobmaster.run.bad_input import bad_input
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobmaster.run.shares import subtask_shares
from milepost.jobspec.graph.compatibility import state_signatures
from milepost.jobspec.values.times.durations import in_us
from milepost.operators.contract import StatefulOperator
from milepost.protocol.exchange.acknowledgements import VerifiedAnswers
from milepost.protocol.exchange.watermarks import latest, source_watermark
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.quality.verdict import GateVerdict
from milepost.sinks.contract import PreparedTable
from milepost.sinks.records.committables import Committable
from milepost.sinks.records.contents import ContentsRecords, TableContents
from milepost.sinks.records.table_address import TableAddress
from milepost.sources.bad_input import together
from milepost.sources.event_times import RowsAhead, first_ahead
from milepost.sources.planning.consumed import append
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.runs.handles import StateHandle
from milepost.storage.concurrency.background import prefetch
from milepost.storage.layout import consumed_prefix, contents_prefix


@dataclass(frozen=True, slots=True)
class Gathered:
    """The acknowledgements of an epoch, and what the driver reads and writes for them beside the gate.

    Attributes:
        sources: waits for the sources after the epoch, whose runs of consumed objects are written. tasks: for what its
            tasks measured.
    """

    verified: VerifiedAnswers
    sources: Callable[[], dict[str, SourceSnapshot]]
    tasks: Callable[[], tuple[TaskTimes, ...]]

    @classmethod
    def begin(cls, context: JobContext, plan: EpochPlan, opened: OpenedEpoch, verified: VerifiedAnswers) -> Gathered:
        """Begin to read and to write it."""
        pending, base = opened.pending, opened.base
        return cls(
            verified,
            prefetch(context.store, partial(_sources, context, plan, pending, base, verified), "consumed"),
            prefetch(
                context.store, partial(collect_task_times, context, pending, verified.acknowledgements), "task-times"
            ),
        )


def build_metadata(
    context: JobContext,
    plan: EpochPlan,
    opened: OpenedEpoch,
    operators: Mapping[str, StatefulOperator],
    gathered: Gathered,
    committables: Mapping[str, Committable],
    tables: Mapping[str, TableContents],
    verdict: GateVerdict,
) -> CheckpointMetadata:
    """Return the checkpoint, all but what the driver measured.

    The runs of consumed objects that it refers to are written.

    Args:
        operators: stateful operators that ran, by uid. gathered: one acknowledgement per expected subtask.
        tables: after the epoch, by sink, their records written; none of an epoch that is vetoed.
    """
    pending, base = opened.pending, opened.base
    verified = gathered.verified
    snapshots = _operators(plan, operators, verified)
    tasks = gathered.tasks()
    tables_before = dict(base.tables) if base is not None else {}
    return CheckpointMetadata(
        job=context.spec.name,
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=plan.timeline,
        token=pending.token,
        base=pending.base,
        code_hash=pending.code_hash,
        code=code_by_name({uid: function.code.modules() for uid, function in plan.functions.items()}),
        spec_hash=pending.spec_hash,
        spec_text=context.job.text,
        signatures=_signatures(context, plan, base),
        max_parallelism=context.spec.checkpointing.max_parallelism,
        hasher=plan.hasher,
        plan=pending.plan,
        sources=gathered.sources(),
        operators=snapshots,
        sinks={
            name: SinkSnapshot(committable.rows, shown_by(base, name))
            for name, committable in sorted(committables.items())
        },
        tables=dict(sorted((tables_before | dict(tables)).items())),
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
        unaligned=_is_unaligned(verified, operators),
        held_back=plan.held_back,
        throughput=_throughput(plan, base, snapshots, tasks),
        tasks=tasks,
        shares=subtask_shares(plan.graph, verified),
        dimensions=plan.dimensions,
    )


def _signatures(context: JobContext, plan: EpochPlan, base: CheckpointMetadata | None) -> dict[str, dict[str, Any]]:
    """Return what restoring the checkpoint depends on: also of sinks that the spec has dropped, whose tables stay."""
    now = state_signatures(context.job.spec, plan.graph)
    if base is None:
        return now
    left = {name: sink for name, sink in base.signatures.get("sinks", {}).items() if name in base.tables}
    return now | {"sinks": left | now["sinks"]}


def shown_by(base: CheckpointMetadata | None, sink: str) -> int:
    """Return the checkpoint that a sink's table shows before this epoch; 0: nothing (I14)."""
    contents = base.tables.get(sink) if base is not None else None
    return 0 if contents is None else contents.checkpoint_id


def contents_after(
    records: ContentsRecords,
    sink: str,
    place: tuple[TableAddress, str],
    owner: tuple[CheckpointId, FencingToken],
    left: TableContents | None,
    table: PreparedTable,
) -> TableContents:
    """Return what one table consists of after an epoch, its record written.

    Args:
        place: of the table: its address and location. owner: the checkpoint and token that write it.
        left: contents at the checkpoint that the epoch continues; None: the empty table.
    Raises: StateCorrupt: a record that would be taken in cannot be read.
    """
    checkpoint_id, token = owner
    before = left.records if left is not None else ()
    address, location = place
    return TableContents(
        checkpoint_id=int(checkpoint_id),
        address=address,
        location=location,
        table_id=table.table_id,
        schema=table.schema,
        files=table.files,
        rows=table.rows,
        records=records.extend(before, table.change, contents_prefix(checkpoint_id, token), sink),
    )


def _sources(
    context: JobContext,
    plan: EpochPlan,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    verified: VerifiedAnswers,
) -> dict[str, SourceSnapshot]:
    # A source that the spec has dropped keeps its position: when it comes back, nothing is read twice.
    snapshots = {
        name: replace(item.at_rest(), finished=False)
        for name, item in (base.sources.items() if base is not None else ())
        if name not in context.spec.streams
    }
    for item in plan.inputs:
        before = base.sources.get(item.name) if base is not None else None
        snapshots[item.name] = _source(context, plan, pending, item, before, verified)
    return dict(sorted(snapshots.items()))


def _source(
    context: JobContext,
    plan: EpochPlan,
    pending: PendingCheckpoint,
    item: SourceInput,
    before: SourceSnapshot | None,
    verified: VerifiedAnswers,
) -> SourceSnapshot:
    """Return a source after the epoch, its run of consumed objects written. before: as of the base; None: it is new."""
    spec = context.spec.sources[item.name]
    acks = acknowledged(verified, "sources", item.name)
    missing = tuple(sorted(key for ack in acks for key in ack["missing"]))
    newest_us = newest_event_us(acks)
    furthest_us = newest_event_us(acks, "furthest_us")
    ahead_since = before.ahead_since if before else None
    if ahead_since is None and furthest_us is not None:
        ahead_since = int(pending.checkpoint_id)
    watermark_us = None
    if spec.event_time is not None:
        delay_us = in_us(spec.watermark_delay)
        watermark_us = source_watermark(before.watermark_us if before else None, newest_us, delay_us)
    consumed, run = append(
        context.store,
        f"{consumed_prefix(pending.checkpoint_id, pending.token)}{item.name}-",
        before.consumed if before else (),
        [obj for obj in item.consumed if obj.key not in missing],
        pending.checkpoint_id,
        item.forgets,
        read=partial(context.consumed, item.name),
    )
    if run is not None:
        context.cache_consumed(item.name, consumed[-1], run)
    return SourceSnapshot(
        watermark_us=watermark_us,
        consumed=consumed,
        horizon_ms=latest(before.horizon_ms if before else None, item.forgets.horizon_ms if item.forgets else None),
        rows=sum(ack["rows"] for ack in acks),
        objects=len(item.objects) - len(missing),
        missing=missing,
        finished=plan.alignment.final,
        newest_event_us=latest(before.newest_event_us if before else None, newest_us),
        ahead_rows=sum(ack["ahead_rows"] for ack in acks),
        ahead=first_ahead(from_json(RowsAhead, one, item.name) for ack in acks for one in ack["ahead"]),
        furthest_us=latest(before.furthest_us if before else None, furthest_us),
        ahead_since=ahead_since,
        skipped=dict(sorted(item.skipped.items())),
        bad_names=item.bad_names,
        empty=item.empty,
        overdue=item.overdue,
        active_ms=item.active_ms,
        idle=item.idle,
        bad=together(bad_input(verified, item.name), before.bad if before else None),
    )


def newest_event_us(acks: Iterable[Mapping[str, Any]], among: str = "newest_event_us") -> int | None:
    """Return the newest event time of what a source's subtasks read; None when no row had one.

    Args:
        among: ``newest_event_us``: of the rows that count for the watermark; ``furthest_us``: of the others.
    """
    return max((ack[among] for ack in acks if ack[among] is not None), default=None)


def _operators(
    plan: EpochPlan, hosted: Mapping[str, StatefulOperator], verified: VerifiedAnswers
) -> dict[str, OperatorSnapshot]:
    snapshots = {}
    for uid, operator in sorted(hosted.items()):
        acks = acknowledged(verified, "operators", uid)
        if plan.alignment.final and not all(ack["finished"] for ack in acks):
            raise ProtocolViolation(f"operator {uid}: a subtask acknowledged the last epoch before its data had ended")
        tables = {
            name: replace(
                table, handles=tuple(from_json(StateHandle, ack["state"][name], "state handle") for ack in acks)
            )
            for name, table in plan.tables(operator).items()
        }
        snapshots[uid] = OperatorSnapshot(
            tables=tables,
            firing=tuple(ack["firing_us"] for ack in acks),
            channels=tuple(_channel(ack["channel"]) for ack in acks),
            processed_bytes=tuple(ack["processed_bytes"] for ack in acks),
            rows_in=sum(ack["rows_in"] for ack in acks),
            rows_out=sum(ack["rows_out"] for ack in acks),
            late_rows=sum(ack["late_rows"] for ack in acks),
        )
    return snapshots


def _channel(document: object) -> ChannelStateHandle | None:
    return None if document is None else from_json(ChannelStateHandle, document, "channel state handle")


def _is_unaligned(verified: VerifiedAnswers, operators: Iterable[str]) -> bool:
    """Return whether a subtask of some operator stopped before the end of its input."""
    return any(ack["unaligned"] for uid in operators for ack in acknowledged(verified, "operators", uid))


def _throughput(
    plan: EpochPlan,
    base: CheckpointMetadata | None,
    snapshots: Mapping[str, OperatorSnapshot],
    tasks: Sequence[TaskTimes],
) -> ThroughputEstimate:
    """Return the throughput of this epoch's subtasks; of the base's where this one shows none."""
    spent_ms = {(task.level, task.subtask): task.spent_ms("process_ms", "emit_ms") for task in tasks}
    work = []
    for level in range(1, plan.graph.levels + 1):
        hosted = [node.uid for node in plan.graph.at_level(level)]
        for subtask in range(plan.spec.spark.parallelism):
            processed = sum(snapshots[uid].processed_bytes[subtask] for uid in hosted)
            left = sum(_bytes_in_flight(snapshots[uid])[subtask] for uid in hosted)
            replayed = sum(_replayed_bytes(base, uid, plan.spec.spark.parallelism)[subtask] for uid in hosted)
            received = max(0, processed + left - replayed)
            work.append(Work(level, received, processed, left, spent_ms.get((level, subtask), 0)))
    source_bytes = sum(obj.size for item in plan.inputs for obj in item.objects)
    return measure(work, source_bytes, base.throughput if base is not None else ThroughputEstimate())


def _bytes_in_flight(snapshot: OperatorSnapshot) -> list[int]:
    return [0 if channel is None else channel.bytes for channel in snapshot.channels]


def _replayed_bytes(base: CheckpointMetadata | None, uid: str, parallelism: int) -> list[int]:
    """Return what each subtask got from the base's rows in flight; with another parallelism an equal share."""
    snapshot = base.operators.get(uid) if base is not None else None
    if snapshot is None:
        return [0] * parallelism
    stored = _bytes_in_flight(snapshot)
    return stored if len(stored) == parallelism else [sum(stored) // parallelism] * parallelism
