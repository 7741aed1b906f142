"""Clocks tell an operator how far its inputs are in event time, and how the rows of an edge are stamped."""

from __future__ import annotations

from milepost.epoch import EpochPlan
from milepost.jobspec.graph import Node
from milepost.jobspec.values.times import in_us
from milepost.protocol.exchange import latest, operator_watermark
from milepost.spark.wire.exchange import OwnStamp, Stamp
from milepost.spark.wire.level_plan import Clock, SourceClock, UpstreamClock, fired_us, start_watermark_us


def stamp_of(plan: EpochPlan, level: int, producer: Node, receiver: Node) -> Stamp | OwnStamp:
    """Return how the rows of an edge are stamped."""
    receiver_clocks = clocks(plan, receiver)
    start, fired = start_watermark_us(receiver_clocks), fired_us(plan.firing.get(receiver.uid, ()))
    if level == 0:
        return Stamp(latest(start, fired))
    producer_clocks = _clocks_of(plan, producer.uid)
    holdback_us = max((clock.holdback_us for clock in producer_clocks if isinstance(clock, UpstreamClock)), default=0)
    return OwnStamp(holdback_us, Stamp(start) if len(receiver_clocks) > 1 else None, fired)


def clocks(plan: EpochPlan, node: Node) -> tuple[Clock, ...]:
    """Return what tells an operator how far its inputs are, each producer once."""
    return tuple(dict.fromkeys(clock for name in node.inputs for clock in _clocks_of(plan, name)))


def _clocks_of(plan: EpochPlan, producer: str) -> tuple[Clock, ...]:
    """Return what tells how far a producer is. Nothing where no source with event time reaches it."""
    node = plan.graph.nodes[producer]
    if node.kind in ("sql", "lookup"):
        return clocks(plan, node)
    if not is_timed(plan, producer):
        return ()
    if node.is_stateful:
        start_us = operator_watermark(plan.firing.get(node.uid, ()))
        idle_before, idle = _are_idle(plan, node)
        return (
            UpstreamClock(node.uid, node.holdback_us, start_us, idle_before, idle, _stateful_ancestors(plan, node)),
        )
    delay_us = in_us(plan.spec.sources[node.uid].watermark_delay)
    return (SourceClock(node.uid, plan.watermarks_us.get(node.uid), delay_us, *_are_idle(plan, node)),)


def _are_idle(plan: EpochPlan, node: Node) -> tuple[bool, bool]:
    """Return whether all sources with event time that reach a node are idle: at the start of the epoch, at its end."""
    timed = [item for item in plan.inputs if item.name in node.sources and plan.spec.sources[item.name].event_time]
    return (
        bool(timed) and all(item.idle_before for item in timed),
        bool(timed) and all(item.idle for item in timed),
    )


def _stateful_ancestors(plan: EpochPlan, node: Node) -> tuple[str, ...]:
    """Return the operators with state that a node's rows come from, each once."""
    inputs = [plan.graph.nodes[name] for name in node.inputs]
    found = [
        uid for one in inputs for uid in (*((one.uid,) if one.is_stateful else ()), *_stateful_ancestors(plan, one))
    ]
    return tuple(dict.fromkeys(found))


def is_timed(plan: EpochPlan, uid: str) -> bool:
    """Return whether a source with event time reaches a node."""
    return any(plan.spec.sources[name].event_time is not None for name in plan.graph.nodes[uid].sources)
