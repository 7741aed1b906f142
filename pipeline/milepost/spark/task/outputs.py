"""The named outputs of a level, for sinks and for later levels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from milepost.epoch import EpochPlan
from milepost.jobspec.graph import JobGraph, Node
from milepost.operators.base import APPEND, BAD, REJECTED, RETRACT, conditions_output

WHOLE = ".whole"
"""Suffix of the output with a node's complete current rows, changed or not, for sinks that start in this epoch."""
FILL = ".fill"
"""Suffix of the same rows, each with weight 1, for operators that start in this epoch."""

Output = tuple[str, Node, tuple[str, ...]]
"""An output of a level: its name, its node, and the names of the sinks it feeds."""


def outputs(plan: EpochPlan, level: int) -> list[Output]:
    """Return every output of a level.

    A name is `uid`, `uid.retract`, `uid.late`, `uid.bad`, `uid.whole`, `uid.fill`, the reader's `uid.marked`, or
    `sink.rejected`.
    """
    level_outputs, whole, fill = [], nodes_with_whole_output(plan), nodes_with_fill_output(plan)
    for node in plan.graph.nodes.values():
        if level in node.levels:
            filled = tuple(name for name in node.sinks if name in plan.filled)
            if has_rows(node):
                level_outputs.append((node.uid, node, tuple(name for name in node.sinks if name not in filled)))
            if node.retracts:
                level_outputs.append((node.read, node, ()))
            late = [plan.graph.sink_inputs[name] for name in node.late_sinks]
            for output in dict.fromkeys(sink.output for sink in late):
                level_outputs.append((output, node, tuple(sink.sink for sink in late if sink.output == output)))
            if node.bad_sinks:
                level_outputs.append((node.uid + BAD, node, node.bad_sinks))
            level_outputs += _rejected(plan.graph, node)
            if node.uid in whole:
                level_outputs.append((node.uid + WHOLE, node, filled))
            if node.uid in fill:
                level_outputs.append((node.uid + FILL, node, ()))
            marked = (conditions_output(uid) for uid in node.consumers if plan.graph.nodes[uid].has_conditions)
            level_outputs += ((output, node, ()) for output in marked)
    return level_outputs


def _rejected(graph: JobGraph, node: Node) -> Iterator[Output]:
    """Yield the outputs with quarantined rows of a node's sinks, which the output stage splits off."""
    readers = [sink for sink in graph.sink_inputs.values() if sink.part == REJECTED and sink.uid == node.uid]
    for output in dict.fromkeys(sink.output for sink in readers):
        yield output, node, tuple(sink.sink for sink in readers if sink.output == output)


@dataclass(frozen=True, slots=True)
class SqlOutput:
    """An output that SQL computes from other outputs of the same stage.

    Attributes:
        name: name of the output.
        node: the output's node; for `uid.marked` the operator that reads it.
        inputs: uid of each input -> name of the input's output that is read.
    """

    name: str
    node: Node
    inputs: Mapping[str, str]

    @property
    def is_weighted(self) -> bool:
        """Whether each row has a weight: +1 inserts it, -1 retracts it."""
        return self.name in (f"{self.node.uid}{RETRACT}", f"{self.node.uid}{FILL}")

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows, so that a row that WHERE filters out deletes nothing."""
        return self.name == f"{self.node.uid}{WHOLE}"


def has_rows(node: Node) -> bool:
    """Return whether a node has an output under its own name. SQL over updates that only operators read has none."""
    return not node.is_select or node.output_kind == APPEND or node.shown


def sql_outputs(
    graph: JobGraph, whole: Collection[str] = (), fill: Collection[str] = (), begin: Collection[str] = ()
) -> Iterator[SqlOutput]:
    """Yield every output that SQL computes, after the outputs that it reads.

    Args:
        whole: nodes that emit all their rows for sinks.
        fill: nodes that emit all their rows for operators.
        begin: the operators that start in this epoch.
    """
    for node in graph.nodes.values():
        if node.is_select and has_rows(node):
            yield SqlOutput(node.uid, node, {name: name for name in node.inputs})
        if node.is_select and node.retracts:
            yield SqlOutput(node.read, node, {name: graph.nodes[name].read for name in node.inputs})
        if node.is_select and node.uid in whole:
            yield SqlOutput(node.uid + WHOLE, node, {name: name + WHOLE for name in node.inputs})
        if node.is_select and node.uid in fill:
            read = {name: name + FILL if graph.nodes[name].retracts else name for name in node.inputs}
            yield SqlOutput(node.uid + FILL, node, read)
    for node in graph.nodes.values():
        if node.has_conditions:
            read = {name: output_read_by(node, graph.nodes[name], begin) for name in node.inputs}
            yield SqlOutput(conditions_output(node.uid), node, read)


def readers(plan: EpochPlan, name: str, node: Node) -> list[str]:
    """Return the uids of the stateful operators that read an output of a node."""
    consumers = [plan.graph.nodes[uid] for uid in node.consumers]
    return [
        consumer.uid
        for consumer in consumers
        if consumer.is_stateful
        and name
        == (conditions_output(consumer.uid) if consumer.has_conditions else output_read_by(consumer, node, plan.begin))
    ]


def row_wise_outputs(plan: EpochPlan, level: int) -> dict[str, str]:
    """Return the outputs that hold all rows of a stateless operator at a level: output -> uid.

    An output without a reader downstream of the level's stage is omitted.
    """
    return {
        name: node.uid
        for name, node, sinks in outputs(plan, level)
        if node.is_row_wise
        and name == (node.uid if has_rows(node) else node.read)
        and (sinks or readers(plan, name, node))
    }


def output_read_by(reader: Node, node: Node, begin: Collection[str]) -> str:
    """Return the output of a node that an operator reads: `.fill` if it starts now and the node retracts rows."""
    return node.uid + FILL if node.retracts and reader.uid in begin else node.read


def nodes_with_whole_output(plan: EpochPlan) -> set[str]:
    """Return the nodes that emit all their rows for new sinks: the sinks' nodes, and their inputs up to a stateful one.

    For a sink of ``c`` in ``clicks -> a (aggregate) -> b (sql) -> c (sql)`` these are c, b and a: the state of ``a``
    holds its rows, so nothing upstream of ``a`` is needed.
    """
    uids: set[str] = set()
    pending = [plan.graph.sink_inputs[name].uid for name in plan.filled]
    while pending:
        node = plan.graph.nodes[pending.pop()]
        uids.add(node.uid)
        pending += [] if node.is_stateful else node.inputs
    return uids


def nodes_with_fill_output(plan: EpochPlan) -> set[str]:
    """Return the retracting nodes upstream of the operators that start: they emit all their rows."""
    nodes, uids = plan.graph.nodes, set[str]()
    pending = [name for uid in plan.begin for name in nodes[uid].inputs]
    while pending:
        node = nodes[pending.pop()]
        if node.retracts:
            uids.add(node.uid)
            pending += [] if node.is_stateful else node.inputs
    return uids
