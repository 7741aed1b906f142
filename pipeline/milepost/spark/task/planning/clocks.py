"""Event-time clocks of operator inputs, and stamps of edges."""

from __future__ import annotations

from milepost.epoch import EpochPlan, SourceInput
from milepost.jobspec.graph import Node
from milepost.language.times import in_us
from milepost.protocol.exchange import latest, operator_watermark
from milepost.spark.wire.exchange import OwnStamp, Stamp
from milepost.spark.wire.level_plan import Clock, SourceClock, UpstreamClock, fired_us, start_watermark_us


def stamp_of(plan: EpochPlan, level: int, producer: Node, receiver: Node) -> Stamp | OwnStamp:
    """Return the stamp of an edge's rows.

    Rows of a source get the receiver's start watermark, or its firing watermark if that is higher. Rows of a stateful
    operator carry their own stamp (`OwnStamp`).
    """
    receiver_clocks = clocks(plan, receiver)
    start, fired = start_watermark_us(receiver_clocks), fired_us(plan.firing.get(receiver.uid, ()))
    if level == 0:
        return Stamp(latest(start, fired))
    producer_clocks = _clocks_of(plan, producer.uid)
    holdback_us = max((clock.holdback_us for clock in producer_clocks if isinstance(clock, UpstreamClock)), default=0)
    return OwnStamp(holdback_us, Stamp(start) if len(receiver_clocks) > 1 else None, fired)


def clocks(plan: EpochPlan, node: Node) -> tuple[Clock, ...]:
    """Return the clocks of an operator's inputs, each producer once.

    In `clicks -> a (sql) -> b (aggregate) -> c (join with clicks)`, b has the clock of `clicks`, and c those of
    b and `clicks`.
    """
    return tuple(dict.fromkeys(clock for name in node.inputs for clock in _clocks_of(plan, name)))


def _clocks_of(plan: EpochPlan, producer: str) -> tuple[Clock, ...]:
    """Return the clocks of a producer; none if no source with event time is upstream of it."""
    node = plan.graph.nodes[producer]
    if node.is_row_wise:
        return clocks(plan, node)
    if not is_timed(plan, producer):
        return ()
    if node.is_stateful:
        start_us = operator_watermark(plan.firing.get(node.uid, ()))
        idle_before, idle = _are_idle(plan, node)
        return (UpstreamClock(node.uid, node.holdback_us, start_us, idle_before, idle, stateful_ancestors(plan, node)),)
    delay_us = in_us(plan.spec.sources[node.uid].watermark_delay)
    idle_before, idle = _are_idle(plan, node)
    partitions = tuple(plan.partitions.get(node.uid, {}).items())
    item = _inputs(plan).get(node.uid)
    behind = None if item is None else item.behind
    return (SourceClock(node.uid, plan.watermarks_us.get(node.uid), delay_us, idle_before, idle, partitions, behind),)


def _are_idle(plan: EpochPlan, node: Node) -> tuple[bool, bool]:
    """Return whether all event-time sources upstream of a node are idle, at the start and at the end of the epoch."""
    inputs = _inputs(plan)
    timed = [inputs.get(name) for name in node.sources if plan.spec.sources[name].event_time]
    return (
        bool(timed) and all(item is not None and item.idle_before for item in timed),
        bool(timed) and all(item is not None and item.idle for item in timed),
    )


def _inputs(plan: EpochPlan) -> dict[str, SourceInput]:
    """Return the inputs by source. A replayed epoch has none of a source that the job did not read then."""
    return {item.name: item for item in plan.inputs}


def stateful_ancestors(plan: EpochPlan, node: Node) -> tuple[str, ...]:
    """Return the stateful operators upstream of a node, each once."""
    inputs = [plan.graph.nodes[name] for name in node.inputs]
    ancestors = [
        uid
        for upstream in inputs
        for uid in (*((upstream.uid,) if upstream.is_stateful else ()), *stateful_ancestors(plan, upstream))
    ]
    return tuple(dict.fromkeys(ancestors))


def is_timed(plan: EpochPlan, uid: str) -> bool:
    """Return whether a source with event time is upstream of a node."""
    return any(plan.spec.sources[name].event_time is not None for name in plan.graph.nodes[uid].sources)
