"""Columns read are those of a node's rows that anybody behind it needs: what is not among them need not be made."""

from __future__ import annotations

from milepost.spec.graph.graph import JobGraph, Node
from milepost.spec.graph.in_flight import consumed_columns
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.spec import JobSpec, SqlOperator
from milepost.spec.sql.union import branches


def columns_read(spec: JobSpec, graph: JobGraph, uid: str) -> frozenset[str]:
    """Return the columns of a node's rows that somebody reads: all where a sink has them, or where they are not known.

    All too where none is read by name, as behind `SELECT 1 AS one`: rows without a column have no number.
    """
    node = graph.nodes[uid]
    every = frozenset(node.columns)
    if node.sinks or not node.known or not node.consumers:
        return every
    read = frozenset().union(*(_read_by(spec, graph, node, consumer) for consumer in node.consumers))
    return every & read or every


def _read_by(spec: JobSpec, graph: JobGraph, node: Node, consumer: str) -> frozenset[str]:
    """Return the columns that one consumer reads, perhaps some among them that the node does not have."""
    operator = spec.operator(consumer)
    if isinstance(operator, SqlOperator):
        selects = [one for one in branches(operator.sql, operator.inputs) if one.input == node.uid]
        return frozenset().union(*(one.plan([*node.columns]).read for one in selects))
    if isinstance(operator, LookupOperator):
        return columns_read(spec, graph, consumer).union(left for left, _ in operator.key)
    consumed = None if graph.nodes[consumer].has_conditions else consumed_columns(spec, graph, consumer)
    return frozenset(node.columns) if consumed is None else consumed.union(filter(None, [node.event_time]))
