"""Plan the input of the next epoch: each source's listing minus its consumed objects, within its limits.

An epoch without work is not triggered. It has work if and only if

- there is new input, or rows are in flight,
- a source's start has to be recorded,
- a person allows it to discard state that the spec does not restore, or
- a timer is due that the firing watermark can reach.

The last case needs a firing watermark behind the operator's input. An epoch that leaves no rows in flight brings the
watermark up to date, so without rows in flight it only occurs if the spec gave the operator other sources.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from milepost.epoch import CheckpointMetadata, InputRecord, SourceInput, source_input
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import (
    SourcePlans,
    no_match,
    overdue,
    quarantined_note,
    unknown_objects_note,
)
from milepost.jobmaster.job.input.opened_log import open_log
from milepost.jobmaster.job.input.table_files import check_table_files
from milepost.jobspec.graph import JobGraph, Node
from milepost.jobspec.job import FileSourceSpec
from milepost.language.times import in_ms
from milepost.protocol.exchange import operator_watermark, output_watermark
from milepost.protocol.landed import (
    LogPosition,
    RecordLimits,
    StoredRecord,
    live_records,
    live_sequences,
    within_limits,
)
from milepost.protocol.records import QuarantinedObject
from milepost.sources import PathColumns
from milepost.sources.planning import (
    ConsumedSet,
    LogInput,
    SourcePlan,
    SourceRules,
    cut_to_bytes,
    has_new_rows,
    list_objects,
    needs_compaction,
    plan_log,
    plan_source,
)
from milepost.storage import open_store
from milepost.storage.concurrency import parallel_map, prefetch
from milepost.storage.log import SourceLog

_LOG = logging.getLogger(__name__)

LogBounds = Mapping[str, int]
"""Landed source -> sequence of the last record of its log that may be read. A source that is missing has no bound."""


def plan_epoch(
    context: JobContext,
    base: CheckpointMetadata | None,
    graph: JobGraph,
    plans: SourcePlans,
    *,
    drain: bool,
    changes_state: bool = False,
) -> InputRecord | None:
    """Plan the next epoch; None: it would have no work, or only objects that may still be written.

    Args:
        graph: with the declarations of process functions.
        changes_state: whether the epoch discards, refills or publishes state because of a new spec; such an epoch needs
            no input.
        drain: plan an epoch without work as the job's last one, unless the base was that.
    Raises: SourceChanged: a table has deleted or changed a data file that a log refers to.
    """
    record = _plan_record(context, base, graph, plans, drain=drain, changes_state=changes_state)
    if record is not None:  # else `no_input_message` states it
        _warn_of_silent_sources(context, base, plans)
        for item in record.sources:
            check_table_files(context, item.name, item.objects)
    return record


def _warn_of_silent_sources(context: JobContext, base: CheckpointMetadata | None, plans: SourcePlans) -> None:
    """Log each source that is overdue, never had an object, or leaves objects out."""
    for name, plan in plans.items():
        has_read = base is not None and name in base.sources and bool(base.sources[name].consumed)
        if plan.quarantined:
            _LOG.warning("source %s: %s", name, quarantined_note(plan))
        if plan.unknown:
            _LOG.warning("source %s: %s", name, unknown_objects_note(plan))
        if plan.overdue:
            _LOG.warning("source %s: %s", name, overdue(context, name, plan))
        elif not plan.listed and not has_read:
            _LOG.warning("source %s: %s", name, no_match(context, name, plan))


def _plan_record(
    context: JobContext,
    base: CheckpointMetadata | None,
    graph: JobGraph,
    plans: SourcePlans,
    *,
    drain: bool,
    changes_state: bool,
) -> InputRecord | None:
    timed = any(spec.idle_timeout is not None for spec in context.spec.streams.values())
    planned_ms = context.store.clock_ms() if timed or any(plan.objects for plan in plans.values()) else 0
    paced, held_back = _paced(context, base, plans)
    inputs = tuple(
        _with_idleness(context, base, source_input(name, plan, planned_ms), planned_ms) for name, plan in paced.items()
    )
    record = InputRecord(inputs, final=False, held_back=held_back)
    in_flight = base.in_flight_bytes if base is not None else 0
    if any(item.has_input for item in inputs) or in_flight or changes_state or _has_unrecorded_start(context, base):
        return record
    if base is not None and has_due_timer(base, graph, idle_sources(inputs)):
        return record
    ends = drain and base is not None and not base.final and not any(plan.settling for plan in plans.values())
    return replace(record, final=True) if ends else None


def _with_idleness(
    context: JobContext, base: CheckpointMetadata | None, item: SourceInput, planned_ms: int
) -> SourceInput:
    """Return a source's input with the time of its last new object, and whether the source is idle.

    Times are those of the triggers, not of the objects: an object that waited while no epoch ran delayed no operator.
    Example with `idle_timeout: 10m`: triggers at 12:00 (one new object), 12:06 and 12:11 (none) give active_ms 12:00
    for all three, and the third marks the source as idle.
    """
    timeout = context.spec.sources[item.name].idle_timeout
    before = base.sources.get(item.name) if base is not None else None
    active_ms = before.active_ms if before is not None else None
    item = replace(item, active_ms=active_ms, idle_before=before is not None and before.idle)
    if timeout is None:
        return item
    if item.objects or item.pending_objects or active_ms is None:
        return replace(item, active_ms=planned_ms)
    return replace(item, idle=planned_ms - active_ms >= in_ms(timeout))


def idle_sources(inputs: Iterable[SourceInput]) -> frozenset[str]:
    """Return the sources for which an epoch's operators do not wait."""
    return frozenset(item.name for item in inputs if item.idle)


def plan_sources(
    context: JobContext,
    base: CheckpointMetadata | None,
    quarantined: Sequence[QuarantinedObject],
    up_to: LogBounds | None = None,
) -> SourcePlans:
    """Plan every source but static ones, in name order, within its limits. Reads listings, no data.

    Args:
        quarantined: objects that are not read. up_to: None: all records of landed sources count as input.

    Raises:
        SourceChanged: a consumed object has another version now, and the source says `on_change: fail`.
        SourceReplaced: the log of a landed source belongs to an earlier life of the job.
        InvalidRequest: an object's name is unusable, and the source says `on_bad_name: fail`.
        StateCorrupt: the set of consumed objects cannot be read.
        EnvironmentUnusable: a bucket is missing, or access is denied.
    """
    names = sorted(context.spec.streams)
    plans = parallel_map(context.store, lambda name: plan_stream(context, base, name, quarantined, up_to), names)
    return dict(zip(names, plans, strict=True))


def plan_stream(
    context: JobContext,
    base: CheckpointMetadata | None,
    name: str,
    quarantined: Sequence[QuarantinedObject] = (),
    up_to: LogBounds | None = None,
) -> SourcePlan:
    """Plan one source. Lists its objects while the consumed set is read. Arguments and errors: as `plan_sources`."""
    if name in context.spec.landed:
        return _plan_landed(context, base, name, None if up_to is None else up_to.get(name))
    config, pattern = context.source(name)
    store = open_store(config)
    listing = prefetch(store, lambda: list_objects(store, pattern), "listing")
    snapshot = base.sources.get(name) if base is not None else None
    consumed = ConsumedSet.empty()
    if snapshot is not None:
        recorded = context.consumed(name, snapshot.consumed)
        consumed = ConsumedSet(recorded.table, snapshot.horizon_ms, needs_compaction(snapshot.consumed))
    rules = _rules(name, context.spec.files[name], local=config.is_local)
    listed = listing()
    timed = rules.settle_ms or rules.expect_every_ms or rules.forget_after_ms
    now_ms = store.clock_ms() if timed else 0
    held = [one.version for one in quarantined if one.source == name]
    return plan_source(name, listed, consumed, rules, now_ms, first_epoch=snapshot is None, quarantined=held)


def _plan_landed(context: JobContext, base: CheckpointMetadata | None, name: str, up_to: int | None) -> SourcePlan:
    """Plan one landed source, from the records after the position of the base. Records after `up_to` do not count."""
    spec, (log, position, newest) = context.spec.landed[name], open_log(context, base, name)
    records: tuple[StoredRecord, ...] = ()
    last = _bounded(log, position, newest, up_to)
    if newest is not None and last is not None and has_new_rows(position, last.record):
        limits = spec.limits_per_epoch
        allowed = RecordLimits(limits.max_records, limits.max_rows, limits.max_bytes)
        records = within_limits(live_records(log.since(position, last), newest.record.voids), allowed)
    expect_every_ms = None if spec.expect_every is None else in_ms(spec.expect_every)
    now_ms = 0 if expect_every_ms is None else context.store.clock_ms()
    return plan_log(LogInput(position, None if newest is None else newest.record, records), now_ms, expect_every_ms)


def _bounded(
    log: SourceLog, position: LogPosition | None, newest: StoredRecord | None, up_to: int | None
) -> StoredRecord | None:
    """Return the newest record that counts as input and is not void; None: there is none after the position."""
    if newest is None or up_to is None or newest.record.sequence <= up_to:
        return newest
    first = newest.record.first if position is None else position.next
    live = live_sequences(first, up_to, newest.record.voids)
    return log.record(live[-1]) if live else None


def _rules(name: str, spec: FileSourceSpec, *, local: bool) -> SourceRules:
    return SourceRules(
        max_files=spec.limits_per_epoch.max_files,
        max_bytes=spec.limits_per_epoch.max_bytes,
        start=spec.start if spec.start_time_ms is None else spec.start_time_ms,
        on_change=spec.on_change,
        on_bad_name=spec.on_bad_name,
        settle_ms=in_ms(spec.settle) if local else 0,
        partitions=PathColumns(spec.partitions),
        expect_every_ms=None if spec.expect_every is None else in_ms(spec.expect_every),
        forget_after_ms=None if spec.forget_after is None else in_ms(spec.forget_after),
    )


def has_due_timer(base: CheckpointMetadata, graph: JobGraph, idle: frozenset[str] = frozenset()) -> bool:
    """Return whether an epoch without any rows would fire a timer or window, or expire a key.

    Example: an operator has fired up to 12:00 and has a timer at 12:05. If its sources have watermarks 12:10 and
    12:03, it can fire up to 12:03 and the timer is not due. If the second source is idle, it is.

    Args:
        idle: sources for which no operator waits, unless it reads no others.
    """
    for node in graph.stateful:
        snapshot = base.operators.get(node.uid)
        reached = list(_reached_us(base, graph, node))
        active = [reached_us for name, reached_us in reached if name not in idle]
        reached_us = operator_watermark(active or (reached_us for _, reached_us in reached))
        if snapshot is None or reached_us is None:
            continue
        for table in snapshot.tables.values():
            for handle, firing_us in zip(table.handles, snapshot.firing, strict=True):
                lags = firing_us is None or firing_us < reached_us
                if lags and any(timer_us <= reached_us for _, timer_us in handle.timers):
                    return True
    return False


def _reached_us(base: CheckpointMetadata, graph: JobGraph, node: Node) -> Iterator[tuple[str, int | None]]:
    """Yield each source upstream of an operator with its watermark, minus the hold-back of the operators between."""
    for name in node.inputs:
        producer = graph.nodes[name]
        if producer.kind != "source":
            for source, reached_us in _reached_us(base, graph, producer):
                yield source, output_watermark(reached_us, producer.holdback_us)
        elif producer.event_time is not None and name in base.sources:
            yield name, base.sources[name].watermark_us


def _paced(context: JobContext, base: CheckpointMetadata | None, plans: SourcePlans) -> tuple[SourcePlans, str | None]:
    """Limit the plans to the epoch budget. Returns them, and why they are not all; None if they are.

    Example: `epoch_budget` allows 60 MB, and sources a and b have 90 MB and 30 MB of new objects. Both are scaled by
    60/120: a reads its first objects of at most 45 MB, b of at most 15 MB.
    """
    spec = context.spec.checkpointing
    if base is None or not any(plan.objects for plan in plans.values()):
        return plans, None
    in_flight = base.in_flight_bytes
    why = over_max_in_flight(context, base)
    if why is not None:
        return {name: cut_to_bytes(plan, 0, at_least_one=False) for name, plan in plans.items()}, why
    if spec.epoch_budget is None:
        return plans, None
    budget_ms = in_ms(spec.epoch_budget)
    fits = base.throughput.source_bytes_within(budget_ms)
    sizes = {name: sum(obj.size for obj in plan.objects) for name, plan in plans.items()}
    planned = sum(sizes.values())
    if fits is None or planned <= fits:
        return plans, None
    # Sources keep their shares. Without rows in flight each reads at least one object, so that the epoch progresses.
    scaled = {
        name: cut_to_bytes(plan, fits * sizes[name] // max(planned, 1), at_least_one=not in_flight)
        for name, plan in plans.items()
    }
    return scaled, f"epoch_budget: of {planned} bytes that are next, {fits} fit alongside {in_flight} in flight"


def over_max_in_flight(context: JobContext, base: CheckpointMetadata | None) -> str | None:
    """Format why the next epoch reads nothing new: too much is in flight; None if it is not."""
    limit = context.spec.checkpointing.max_in_flight
    if limit is None or base is None or base.in_flight_bytes <= limit:
        return None
    return f"max_in_flight: {base.in_flight_bytes} bytes are in flight, more than {limit}"


def _has_unrecorded_start(context: JobContext, base: CheckpointMetadata | None) -> bool:
    """Return whether a source with `start: latest` still has to record its start.

    Its first epoch runs even without input. Otherwise an object that lands before the second trigger would count as
    older than the start.
    """
    recorded = base.sources if base is not None else {}
    return any(spec.starts_at_latest and name not in recorded for name, spec in context.spec.streams.items())
