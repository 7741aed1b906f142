"""Outputs are what a level gives to sinks and to the operators of later levels: each has a name, and is of a node."""

from __future__ import annotations

from milepost.epoch.plan import EpochPlan
from milepost.spec.graph.edges import BAD, marked_output
from milepost.spec.graph.graph import Node

WHOLE = ".whole"
"""Behind an operator's name: all rows that it has now, beside those that the epoch changes."""


Output = tuple[str, Node, tuple[str, ...]]
"""An output of a level: its name, its node, and the sinks it feeds."""


def outputs(plan: EpochPlan, level: int) -> list[Output]:
    """Return every output of a level: its name, its node, and the sinks it feeds.

    A name is `uid`, `uid.retract`, `uid.late`, `uid.bad`, `uid.whole`, or of a reader `uid.marked`.
    """
    found = []
    for node in plan.graph.nodes.values():
        if level in node.levels:
            filled = tuple(name for name in node.sinks if name in plan.filled)
            found.append((node.uid, node, tuple(name for name in node.sinks if name not in filled)))
            if node.retracts:
                found.append((node.read, node, ()))
            late = [plan.graph.sink_inputs[name] for name in node.late_sinks]
            for output in dict.fromkeys(one.output for one in late):
                found.append((output, node, tuple(one.sink for one in late if one.output == output)))
            if node.bad_sinks:
                found.append((node.uid + BAD, node, node.bad_sinks))
            if filled:
                found.append((node.uid + WHOLE, node, filled))
            marked = (marked_output(uid) for uid in node.consumers if plan.graph.nodes[uid].reads_marked)
            found += ((output, node, ()) for output in marked)
    return found


def readers(plan: EpochPlan, name: str, node: Node) -> list[str]:
    """Return the stateful operators that read an output of a node, which is its rows, or those marked for one."""
    readers = [plan.graph.nodes[uid] for uid in node.consumers]
    return [
        one.uid
        for one in readers
        if one.is_stateful and name == (marked_output(one.uid) if one.reads_marked else node.read)
    ]


def whole_outputs(plan: EpochPlan) -> set[str]:
    """Return the operators that put out all their rows."""
    return {plan.graph.sink_inputs[name].uid for name in plan.filled}
