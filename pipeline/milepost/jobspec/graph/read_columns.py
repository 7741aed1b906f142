"""Which columns of a node's rows are read downstream.

The other columns need not be computed.
"""

from __future__ import annotations

from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.graph.in_flight import consumed_columns
from milepost.jobspec.job.spec import JobSpec
from milepost.operators.base import RowWiseSpec


def columns_read(spec: JobSpec, graph: JobGraph, uid: str) -> frozenset[str]:
    """Return the columns of a node's rows that are read downstream.

    All columns count as read if a sink publishes the rows, if the columns are not known, or if no column is read by
    name: after `SELECT 1 AS n`, rows without any column could not be counted.
    """
    node = graph.nodes[uid]
    columns = frozenset(node.columns)
    if node.sinks or not node.columns_known or not node.consumers:
        return columns
    read = frozenset().union(*(_read_by(spec, graph, node, consumer) for consumer in node.consumers))
    return columns & read or columns


def _read_by(spec: JobSpec, graph: JobGraph, node: Node, consumer: str) -> frozenset[str]:
    """Return the columns that one consumer reads. They may include columns that the node does not have."""
    operator = spec.operator(consumer)
    if isinstance(operator, RowWiseSpec):
        return operator.columns_read(node.uid, [*node.columns], lambda: columns_read(spec, graph, consumer))
    consumed = None if graph.nodes[consumer].has_conditions else consumed_columns(spec, graph, consumer)
    return frozenset(node.columns) if consumed is None else consumed.union(filter(None, [node.event_time]))
