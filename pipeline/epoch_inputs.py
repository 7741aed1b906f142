"""What the next epoch of a job would read: each source's listing against what it has consumed, within what fits.

An epoch that has nothing to do is not triggered. It has something to do iff there is new input, rows are in flight, a
source's start is to be recorded, or a timer is due that the firing watermark can reach. The last is possible only where
a subtask's firing watermark is behind its operator's input: an epoch that leaves nothing in flight brings it up to
date, so without rows in flight that takes a spec by which the operator has other sources now.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.graph import JobGraph
from pipeline.job_context import JobContext
from pipeline.metadata import CheckpointMetadata
from pipeline.planning import InputRecord, SourceInput, source_input
from pipeline.protocol.watermarks import operator_watermark
from pipeline.sources.consumed import ConsumedSet
from pipeline.sources.objects import list_objects
from pipeline.sources.plan import plan_source
from pipeline.storage.open import open_store


def plan_epoch(
    context: JobContext, base: CheckpointMetadata | None, graph: JobGraph, *, drain: bool
) -> InputRecord | None:
    """Plan the next epoch; None: it would have nothing to do.

    Args:
        graph: with what process functions declare.
        drain: the epoch that would have nothing to do is the job's last one, unless that has been.
    Raises: as `plan_inputs`.
    """
    inputs = plan_inputs(context, base)
    inputs, held_back = _paced(context, base, inputs)
    record = InputRecord(inputs, final=False, held_back=held_back)
    in_flight = base.in_flight_bytes if base is not None else 0
    if any(item.consumed for item in inputs) or in_flight or _has_unrecorded_start(context, base):
        return record
    if base is not None and has_due_timer(base, graph):
        return record
    return replace(record, final=True) if drain and base is not None and not base.final else None


def plan_inputs(context: JobContext, base: CheckpointMetadata | None) -> tuple[SourceInput, ...]:
    """Plan every source, in name order, within its own limits. Reads listings only, never data.

    Raises:
        SourceChanged: a consumed object has another version now, and the source says `on_change: fail`.
        StateCorrupt: the set of consumed objects cannot be read.
        EnvironmentUnusable: a bucket is missing, or access is denied.
    """
    inputs = []
    for name in sorted(context.spec.sources):
        spec = context.spec.sources[name]
        store, pattern = context.source(name)
        snapshot = base.sources.get(name) if base is not None else None
        consumed = context.consumed(name, snapshot.consumed) if snapshot is not None else ConsumedSet.empty()
        start = spec.start if spec.start_time_ms is None else spec.start_time_ms
        plan = plan_source(
            name,
            list_objects(open_store(store), pattern),
            consumed,
            max_files=spec.limits_per_epoch.max_files,
            max_bytes=spec.limits_per_epoch.max_bytes,
            start=start,
            on_change=spec.on_change,
            first_epoch=snapshot is None,
        )
        inputs.append(source_input(name, plan))
    return tuple(inputs)


def has_due_timer(base: CheckpointMetadata, graph: JobGraph) -> bool:
    """Whether an epoch without any rows would fire a timer or window, or forget a key."""
    for node in graph.stateful:
        snapshot = base.operators.get(node.uid)
        timed = [base.sources[name] for name in node.sources if graph.nodes[name].event_time and name in base.sources]
        reached_us = operator_watermark(source.watermark_us for source in timed)
        if snapshot is None or reached_us is None:
            continue
        for handle, firing_us in zip(snapshot.handles, snapshot.firing, strict=True):
            behind = firing_us is None or firing_us < reached_us
            if behind and any(timer_us <= reached_us for _, timer_us in handle.timers):
                return True
    return False


def _paced(
    context: JobContext, base: CheckpointMetadata | None, inputs: tuple[SourceInput, ...]
) -> tuple[tuple[SourceInput, ...], str | None]:
    """What of the inputs fits now, and why it is not all of them; None when it is."""
    spec = context.spec.checkpointing
    if base is None or not any(item.objects for item in inputs):
        return inputs, None
    in_flight = base.in_flight_bytes
    why = over_max_in_flight(context, base)
    if why is not None:
        return tuple(_first_bytes(item, 0, at_least_one=False) for item in inputs), why
    if spec.epoch_budget is None:
        return inputs, None
    budget_ms = round(spec.epoch_budget.total_seconds() * 1000)
    fits = base.pace.source_bytes_within(budget_ms)
    planned = sum(obj.size for item in inputs for obj in item.objects)
    if fits is None or planned <= fits:
        return inputs, None
    # The sources keep their shares. Without rows in flight each is read on: an epoch makes progress.
    scaled = tuple(
        _first_bytes(item, fits * sum(obj.size for obj in item.objects) // max(planned, 1), at_least_one=not in_flight)
        for item in inputs
    )
    return scaled, f"epoch_budget: of {planned} bytes that are next, {fits} fit beside {in_flight} in flight"


def over_max_in_flight(context: JobContext, base: CheckpointMetadata | None) -> str | None:
    """Why the epoch that continues a checkpoint reads nothing new: too much is in flight; None when it is not."""
    limit = context.spec.checkpointing.max_in_flight
    if limit is None or base is None or base.in_flight_bytes <= limit:
        return None
    return f"max_in_flight: {base.in_flight_bytes} bytes are in flight, more than {limit}"


def _first_bytes(item: SourceInput, limit: int, *, at_least_one: bool) -> SourceInput:
    """The source's first objects, in plan order, of at most so many bytes; the others are left for later epochs."""
    count = total = 0
    for obj in item.objects:
        total += obj.size
        if total > limit and not (at_least_one and count == 0):
            break
        count += 1
    left = item.objects[count:]
    return replace(
        item,
        objects=item.objects[:count],
        pending_objects=item.pending_objects + len(left),
        pending_bytes=item.pending_bytes + sum(obj.size for obj in left),
    )


def _has_unrecorded_start(context: JobContext, base: CheckpointMetadata | None) -> bool:
    """Whether a source with `start: latest` still has to record where it starts.

    Its first epoch runs even when it finds nothing: else what lands before the second trigger would pass for old.
    """
    known = base.sources if base is not None else {}
    return any(spec.start == "latest" and name not in known for name, spec in context.spec.sources.items())
