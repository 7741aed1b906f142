"""Build the `_metadata` of a checkpoint from the verified acknowledgements of its epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.codec import from_json
from milepost.epoch import (
    AcknowledgedSubtask,
    CheckpointMetadata,
    EpochPlan,
    OperatorSnapshot,
    SinkSnapshot,
    SkippedAtStart,
    SourceInput,
    SourceSnapshot,
    code_by_name,
)
from milepost.epoch.timing import TaskTimes, ThroughputEstimate, Work, measure
from milepost.errors import ProtocolViolation
from milepost.jobmaster.compatibility.edits import INCOMPLETE
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import collect_task_times
from milepost.jobmaster.run.bad_input import bad_input
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobmaster.run.payloads import payloads_of
from milepost.jobmaster.run.shares import subtask_shares
from milepost.jobspec.graph import state_signatures
from milepost.jobspec.job import SourceSpec
from milepost.language.times import in_us
from milepost.operators import StatefulOperator
from milepost.protocol.exchange import (
    VerifiedAnswers,
    delivered_event_time,
    latest,
    newest_by_partition,
    source_watermark,
)
from milepost.protocol.records import CheckpointId, FencingToken, PendingCheckpoint
from milepost.quality import GateVerdict, RejectedRows
from milepost.sinks import PreparedTable
from milepost.sources import RowsAhead, merge_bad_input, merge_rows_ahead
from milepost.sources.planning import append
from milepost.state.buffers import ChannelStateHandle
from milepost.state.runs import StateHandle
from milepost.storage import consumed_prefix, contents_prefix
from milepost.storage.concurrency import prefetch
from milepost.tables.records import Committable, ContentsRecords, TableAddress, TableContents


@dataclass(frozen=True, slots=True)
class PendingResults:
    """The acknowledgements of an epoch, and results that the driver computes while the gate judges.

    Attributes:
        sources: waits for the source snapshots. Their runs of consumed objects are written by then.
        tasks: waits for the times that the tasks measured.
    """

    verified: VerifiedAnswers
    sources: Callable[[], dict[str, SourceSnapshot]]
    tasks: Callable[[], tuple[TaskTimes, ...]]

    @classmethod
    def begin(
        cls, context: JobContext, plan: EpochPlan, opened: OpenedEpoch, verified: VerifiedAnswers
    ) -> PendingResults:
        """Start the reads and writes in the background."""
        pending, base = opened.pending, opened.base
        return cls(
            verified,
            prefetch(context.store, partial(_source_snapshots, context, plan, pending, base, verified), "consumed"),
            prefetch(
                context.store, partial(collect_task_times, context, pending, verified.acknowledgements), "task-times"
            ),
        )


def build_metadata(
    context: JobContext,
    plan: EpochPlan,
    opened: OpenedEpoch,
    operators: Mapping[str, StatefulOperator],
    results: PendingResults,
    committables: Mapping[str, Committable],
    tables: Mapping[str, TableContents],
    rejected: Mapping[str, RejectedRows],
    verdict: GateVerdict,
) -> CheckpointMetadata:
    """Return the metadata of the checkpoint, except for the times that the driver measured.

    The runs of consumed objects that it refers to are written before it returns.

    Args:
        operators: stateful operators that ran, by uid. results: with one acknowledgement per expected subtask.
        tables: contents after the epoch, by sink, with their records written; {} for a vetoed epoch.
        rejected: rows that the row rules of each sink refused.
    """
    pending, base = opened.pending, opened.base
    verified = results.verified
    snapshots = operator_snapshots(plan, operators, verified)
    tasks = results.tasks()
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
        sources=results.sources(),
        operators=snapshots,
        sinks={
            name: SinkSnapshot(committable.rows, shown_checkpoint(base, name), *_rejected(plan, rejected, name))
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


def _rejected(plan: EpochPlan, rejected: Mapping[str, RejectedRows], sink: str) -> tuple[int | None, int | None]:
    """Return how many rows of a sink its row rules refused and quarantined; None without such rules."""
    if not any(suite.sink == sink and suite.row_rules for suite in plan.spec.quality):
        return None, None
    of_sink = rejected.get(sink)
    return (0, 0) if of_sink is None else (of_sink.dropped + of_sink.quarantined, of_sink.quarantined)


def _signatures(context: JobContext, plan: EpochPlan, base: CheckpointMetadata | None) -> dict[str, dict[str, Any]]:
    """Return the signatures that a restore checks the spec against, including removed sinks that still have a table.

    Statements that do not equal their queries are recorded as well (`with_incomplete`).
    """
    signatures = state_signatures(context.job.spec, plan.graph)
    if base is None:
        return signatures
    dropped = {name: sink for name, sink in base.signatures.get("sinks", {}).items() if name in base.tables}
    incomplete = {INCOMPLETE: base.signatures[INCOMPLETE]} if base.signatures.get(INCOMPLETE) else {}
    return signatures | {"sinks": dropped | signatures["sinks"]} | incomplete


def shown_checkpoint(base: CheckpointMetadata | None, sink: str) -> int:
    """Return the checkpoint that a sink's table shows before this epoch; 0 if there is none (I14)."""
    contents = base.tables.get(sink) if base is not None else None
    return 0 if contents is None else contents.checkpoint_id


def write_contents(
    records: ContentsRecords,
    sink: str,
    place: tuple[TableAddress, str],
    owner: tuple[CheckpointId, FencingToken],
    before: TableContents | None,
    table: PreparedTable,
) -> TableContents:
    """Write the contents record of one table after an epoch, and return the contents.

    Args:
        place: address and location of the table. owner: the checkpoint and token that write the record.
        before: contents at the checkpoint that the epoch continues; None for an empty table.
    Raises: StateCorrupt: an older record that would be merged cannot be read.
    """
    checkpoint_id, token = owner
    records_before = before.records if before is not None else ()
    address, location = place
    return TableContents(
        checkpoint_id=int(checkpoint_id),
        address=address,
        location=location,
        table_id=table.table_id,
        schema=table.schema,
        files=table.files,
        rows=table.rows,
        records=records.extend(records_before, table.change, contents_prefix(checkpoint_id, token), sink),
    )


def _source_snapshots(
    context: JobContext,
    plan: EpochPlan,
    pending: PendingCheckpoint,
    base: CheckpointMetadata | None,
    verified: VerifiedAnswers,
) -> dict[str, SourceSnapshot]:
    # A source that was removed from the spec keeps its position: if it returns, no object is read twice.
    snapshots = {
        name: replace(item.at_rest(), finished=False)
        for name, item in (base.sources.items() if base is not None else ())
        if name not in context.spec.streams
    }
    for item in plan.inputs:
        before = base.sources.get(item.name) if base is not None else None
        snapshots[item.name] = _source_snapshot(context, plan, pending, item, before, verified)
    return dict(sorted(snapshots.items()))


def _source_snapshot(
    context: JobContext,
    plan: EpochPlan,
    pending: PendingCheckpoint,
    item: SourceInput,
    before: SourceSnapshot | None,
    verified: VerifiedAnswers,
) -> SourceSnapshot:
    """Write the run of objects that a source consumed, and return its snapshot after the epoch.

    Args:
        before: the snapshot in the base checkpoint; None for a new source.
    """
    spec = context.spec.sources[item.name]
    acks = payloads_of(verified, "sources", item.name)
    missing = tuple(sorted(key for ack in acks for key in ack["missing"]))
    newest_us = newest_event_us(acks)
    furthest_us = newest_event_us(acks, "furthest_us")
    ahead_since = before.ahead_since if before else None
    if ahead_since is None and furthest_us is not None:
        ahead_since = int(pending.checkpoint_id)
    tombstones = sum(ack.get("tombstones", 0) for ack in acks)
    skipped = {**item.skipped, "tombstones": tombstones} if tombstones else item.skipped
    reached_us, reached_by = (before.watermark_us, before.partitions) if before else (None, {})
    watermark_us, partitions = source_progress(spec, item, acks, reached_us, reached_by)
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
        context.consumed_runs.add(item.name, consumed[-1], run)
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
        ahead=merge_rows_ahead(from_json(RowsAhead, rows, item.name) for ack in acks for rows in ack["ahead"]),
        furthest_us=latest(before.furthest_us if before else None, furthest_us),
        ahead_since=ahead_since,
        skipped=dict(sorted(skipped.items())),
        bad_names=item.bad_names,
        empty=item.empty,
        overdue=item.overdue,
        active_ms=item.active_ms,
        idle=item.idle,
        bad=merge_bad_input(bad_input(verified, item.name), before.bad if before else None),
        partitions=partitions,
        position=item.landed.end if item.landed is not None else before.position if before is not None else None,
        stored_as=_stored_as(context, item.name),
        at_start=SkippedAtStart.of(item.baseline) or (before.at_start if before is not None else None),
    )


def source_progress(
    spec: SourceSpec,
    item: SourceInput,
    acks: Sequence[Mapping[str, Any]],
    watermark_us: int | None,
    partitions: Mapping[str, int],
) -> tuple[int | None, dict[str, int]]:
    """Return a source's watermark, and its newest event time per partition, after an epoch.

    Args:
        acks: acknowledgements of its subtasks. watermark_us, partitions: at the start of the epoch.
    """
    newest = newest_by_partition(partitions, (ack["partitions"] for ack in acks))
    if spec.event_time is None:
        return None, newest
    reached_us = delivered_event_time(newest_event_us(acks), newest, item.behind)
    return source_watermark(watermark_us, reached_us, in_us(spec.watermark_delay)), newest


def _stored_as(context: JobContext, source: str) -> str | None:
    """Return the former name of a landed source under which its log is stored; None: its own name."""
    stored = context.stored_name(source) if context.spec.sources[source].is_landed else source
    return None if stored == source else stored


def newest_event_us(acks: Iterable[Mapping[str, Any]], field: str = "newest_event_us") -> int | None:
    """Return the newest event time that a source's subtasks read; None if no row had one.

    Args:
        field: ``newest_event_us`` for the rows that count for the watermark, ``furthest_us`` for those too far ahead.
    """
    return max((ack[field] for ack in acks if ack[field] is not None), default=None)


def operator_snapshots(
    plan: EpochPlan, hosted: Mapping[str, StatefulOperator], verified: VerifiedAnswers
) -> dict[str, OperatorSnapshot]:
    """Return the state of each operator after an epoch, from the acknowledgements of its subtasks."""
    snapshots = {}
    for uid, operator in sorted(hosted.items()):
        acks = payloads_of(verified, "operators", uid)
        if plan.alignment.final and not all(ack["finished"] for ack in acks):
            raise ProtocolViolation(f"operator {uid}: a subtask acknowledged the last epoch before its input ended")
        tables = {
            name: replace(
                table, handles=tuple(from_json(StateHandle, ack["state"][name], "state handle") for ack in acks)
            )
            for name, table in plan.tables(operator).items()
        }
        snapshots[uid] = OperatorSnapshot(
            tables=tables,
            firing=tuple(ack["firing_us"] for ack in acks),
            channels=tuple(_channel_handle(ack["channel"]) for ack in acks),
            processed_bytes=tuple(ack["processed_bytes"] for ack in acks),
            rows_in=sum(ack["rows_in"] for ack in acks),
            rows_out=sum(ack["rows_out"] for ack in acks),
            late_rows=sum(ack["late_rows"] for ack in acks),
            dropped_rows=sum(ack["dropped_rows"] for ack in acks),
        )
    return snapshots


def _channel_handle(document: object) -> ChannelStateHandle | None:
    return None if document is None else from_json(ChannelStateHandle, document, "channel state handle")


def _is_unaligned(verified: VerifiedAnswers, operators: Iterable[str]) -> bool:
    """Return whether a subtask of some operator stopped before the end of its input."""
    return any(ack["unaligned"] for uid in operators for ack in payloads_of(verified, "operators", uid))


def _throughput(
    plan: EpochPlan,
    base: CheckpointMetadata | None,
    snapshots: Mapping[str, OperatorSnapshot],
    tasks: Sequence[TaskTimes],
) -> ThroughputEstimate:
    """Return the throughput of this epoch's subtasks, or the base checkpoint's where this epoch gives no estimate.

    Example for one subtask: 100 bytes replayed from the base's channel state, 900 processed, 300 still in flight at an
    unaligned barrier. So 900 + 300 - 100 = 1,100 bytes arrived from upstream in this epoch.
    """
    spent_ms = {(task.level, task.subtask): task.spent_ms("process_ms", "emit_ms") for task in tasks}
    work = []
    for level in range(1, plan.graph.levels + 1):
        hosted = [node.uid for node in plan.graph.at_level(level)]
        for subtask in range(plan.spec.spark.parallelism):
            processed = sum(snapshots[uid].processed_bytes[subtask] for uid in hosted)
            in_flight = sum(_bytes_in_flight(snapshots[uid])[subtask] for uid in hosted)
            replayed = sum(_replayed_bytes(base, uid, plan.spec.spark.parallelism)[subtask] for uid in hosted)
            received = max(0, processed + in_flight - replayed)
            work.append(Work(level, received, processed, in_flight, spent_ms.get((level, subtask), 0)))
    source_bytes = sum(obj.size for item in plan.inputs for obj in item.objects)
    return measure(work, source_bytes, base.throughput if base is not None else ThroughputEstimate())


def _bytes_in_flight(snapshot: OperatorSnapshot) -> list[int]:
    return [0 if channel is None else channel.bytes for channel in snapshot.channels]


def _replayed_bytes(base: CheckpointMetadata | None, uid: str, parallelism: int) -> list[int]:
    """Return the bytes of the base's channel state that each subtask replayed.

    After a rescale each subtask counts an equal share: [300, 100] at parallelism 4 gives [100, 100, 100, 100].
    """
    snapshot = base.operators.get(uid) if base is not None else None
    if snapshot is None:
        return [0] * parallelism
    stored = _bytes_in_flight(snapshot)
    return stored if len(stored) == parallelism else [sum(stored) // parallelism] * parallelism
