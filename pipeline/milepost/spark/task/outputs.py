"""Outputs are what a level gives to sinks and to the operators of later levels: each has a name, and is of a node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from milepost.epoch.plan import EpochPlan
from milepost.jobspec.graph.edges import BAD, RETRACT, conditions_output
from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.graph.rules.node import APPEND

WHOLE = ".whole"
"""Behind a node's name: all rows that it has now, beside those that the epoch changes, for sinks that begin."""
FILL = ".fill"
"""Behind a node's name: the same, each come once, for operators that begin."""

Output = tuple[str, Node, tuple[str, ...]]
"""An output of a level: its name, its node, and the sinks it feeds."""


def outputs(plan: EpochPlan, level: int) -> list[Output]:
    """Return every output of a level.

    A name is `uid`, `uid.retract`, `uid.late`, `uid.bad`, `uid.whole`, or of a reader `uid.marked`.
    """
    found, whole, fill = [], whole_outputs(plan), fill_outputs(plan)
    for node in plan.graph.nodes.values():
        if level in node.levels:
            filled = tuple(name for name in node.sinks if name in plan.filled)
            if has_rows(node):
                found.append((node.uid, node, tuple(name for name in node.sinks if name not in filled)))
            if node.retracts:
                found.append((node.read, node, ()))
            late = [plan.graph.sink_inputs[name] for name in node.late_sinks]
            for output in dict.fromkeys(one.output for one in late):
                found.append((output, node, tuple(one.sink for one in late if one.output == output)))
            if node.bad_sinks:
                found.append((node.uid + BAD, node, node.bad_sinks))
            if node.uid in whole:
                found.append((node.uid + WHOLE, node, filled))
            if node.uid in fill:
                found.append((node.uid + FILL, node, ()))
            marked = (conditions_output(uid) for uid in node.consumers if plan.graph.nodes[uid].has_conditions)
            found += ((output, node, ()) for output in marked)
    return found


@dataclass(frozen=True, slots=True)
class SqlOutput:
    """An output that SQL makes of others, in the stage in which those are.

    Attributes:
        name: of it. node: that it is of; of `uid.marked` the operator that reads it.
        inputs: by the uid of each input, the output of it that is read.
    """

    name: str
    node: Node
    inputs: Mapping[str, str]

    @property
    def weighted(self) -> bool:
        """Whether its rows come and are taken back, with a weight each."""
        return self.name in (f"{self.node.uid}{RETRACT}", f"{self.node.uid}{FILL}")


def has_rows(node: Node) -> bool:
    """Return whether a node puts out rows by its own name: not SQL over updates that operators alone read."""
    return node.kind != "sql" or node.output_kind == APPEND or node.shown


def sql_outputs(
    graph: JobGraph, whole: Collection[str] = (), fill: Collection[str] = (), begin: Collection[str] = ()
) -> Iterator[SqlOutput]:
    """Yield every output that SQL makes, behind those that it is made of.

    Args:
        whole, fill: nodes that put out all their rows, for sinks and for operators. begin: those operators.
    """
    for node in graph.nodes.values():
        if node.kind == "sql" and has_rows(node):
            yield SqlOutput(node.uid, node, {name: name for name in node.inputs})
        if node.kind == "sql" and node.retracts:
            yield SqlOutput(node.read, node, {name: graph.nodes[name].read for name in node.inputs})
        if node.kind == "sql" and node.uid in whole:
            yield SqlOutput(node.uid + WHOLE, node, {name: name + WHOLE for name in node.inputs})
        if node.kind == "sql" and node.uid in fill:
            read = {name: name + FILL if graph.nodes[name].retracts else name for name in node.inputs}
            yield SqlOutput(node.uid + FILL, node, read)
    for node in graph.nodes.values():
        if node.has_conditions:
            read = {name: read_by(node, graph.nodes[name], begin) for name in node.inputs}
            yield SqlOutput(conditions_output(node.uid), node, read)


def readers(plan: EpochPlan, name: str, node: Node) -> list[str]:
    """Return the stateful operators that read an output of a node, which is its rows, or those marked for one."""
    consumers = [plan.graph.nodes[uid] for uid in node.consumers]
    return [
        one.uid
        for one in consumers
        if one.is_stateful
        and name == (conditions_output(one.uid) if one.has_conditions else read_by(one, node, plan.begin))
    ]


def row_wise_outputs(plan: EpochPlan, level: int) -> dict[str, str]:
    """Return the outputs that are all rows of an operator without state at a level, with its uid.

    One that nothing behind the level's stage reads is in none of them.
    """
    return {
        name: node.uid
        for name, node, sinks in outputs(plan, level)
        if node.is_row_wise
        and name == (node.uid if has_rows(node) else node.read)
        and (sinks or readers(plan, name, node))
    }


def read_by(reader: Node, node: Node, begin: Collection[str]) -> str:
    """Return the output of a node that an operator reads: one that begins, all rows of updates that there are."""
    return node.uid + FILL if node.retracts and reader.uid in begin else node.read


def whole_outputs(plan: EpochPlan) -> set[str]:
    """Return the nodes that put out all their rows: those that feed such a sink, and what is before their SQL."""
    found: set[str] = set()
    waiting = [plan.graph.sink_inputs[name].uid for name in plan.filled]
    while waiting:
        node = plan.graph.nodes[waiting.pop()]
        found.add(node.uid)
        waiting += [] if node.is_stateful else node.inputs
    return found


def fill_outputs(plan: EpochPlan) -> set[str]:
    """Return the nodes that put out all their rows for operators that begin: what is updated before those."""
    nodes, found = plan.graph.nodes, set[str]()
    waiting = [name for uid in plan.begin for name in nodes[uid].inputs]
    while waiting:
        node = nodes[waiting.pop()]
        if node.retracts:
            found.add(node.uid)
            waiting += [] if node.is_stateful else node.inputs
    return found
