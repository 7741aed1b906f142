"""Input signatures tell what rows in flight depend on: they are stored as they crossed the exchange.

They can be continued only by a spec under which their producers would have made the same columns. A signature of an
operator's inputs is recorded with its channel state, and compared before anything is planned.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from milepost.spec.graph.edges import DELETED_COLUMN
from milepost.spec.graph.graph import JobGraph, Node
from milepost.spec.job.operators.join import PairedOperator
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.spec import AggregateOperator, JobSpec, RowWiseSpec, SqlOperator, WindowOperator, key_texts


def consumed_columns(spec: JobSpec, graph: JobGraph, uid: str) -> frozenset[str] | None:
    """Return the columns of its input that a stateful operator needs; None: all of them.

    All when its late rows are published, and when its output has its input's columns or a class sees them.
    """
    node, operator = graph.nodes[uid], spec.operator(uid)
    if isinstance(operator, LatestOperator):
        return None if node.late_sinks else _of_latest(graph, node, operator)
    if node.late_sinks or not isinstance(operator, AggregateOperator | WindowOperator):
        return None
    event_time = graph.nodes[node.inputs[0]].event_time
    calls = [call.timed(event_time) for call in operator.aggregates.values()]
    needed = {*operator.key, *(column for call in calls for column in call.columns)}
    if isinstance(operator, WindowOperator) and event_time is not None:
        needed.add(event_time)
    # Rows that are only counted have a column, too: without any there would be nothing to count.
    return frozenset(needed or list(graph.nodes[node.inputs[0]].columns)[:1]) or None


def _of_latest(graph: JobGraph, node: Node, operator: LatestOperator) -> frozenset[str] | None:
    """Return what a table of the newest rows needs; not what `delete_when` alone reads."""
    if operator.columns is None:
        return None
    event_time = graph.nodes[node.inputs[0]].event_time if operator.tombstone_ttl is not None else None
    return frozenset({*operator.key, *operator.sequence_by, *operator.columns, *filter(None, [event_time])})


def input_signatures(spec: JobSpec, graph: JobGraph) -> dict[str, str]:
    """Return per stateful operator a digest of its key, the columns and modes it consumes, and how they are made.

    How: the columns of each source, the texts of SQL and the options of lookups between, and of a stateful producer its
    kind and columns; what is behind that one matters only where it decides a type that the spec does not tell.
    """
    return {node.uid: _digest(_inputs(spec, graph, node)) for node in graph.stateful}


def _inputs(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    consumed = consumed_columns(spec, graph, node.uid)
    operator = spec.operator(node.uid)
    marked = {("delete_when" if name == DELETED_COLUMN else name): condition for name, condition in node.conditions}
    # Where a row with a null in its key waits: of a join where all of its columns send it.
    apart = {"nulls": "apart"} if isinstance(operator, PairedOperator) else {}
    return {
        **marked,
        **apart,
        "key": key_texts(operator),
        "columns": None if consumed is None else sorted(consumed),
        "modes": [graph.nodes[name].output_kind for name in node.inputs],
        "made": [_made(spec, graph, graph.nodes[name], consumed) for name in node.inputs],
    }


def _made(spec: JobSpec, graph: JobGraph, node: Node, needed: frozenset[str] | None = None) -> dict[str, Any]:
    columns = [
        [name, None if type_ is None else str(type_)]
        for name, type_ in node.columns.items()
        if needed is None or name in needed
    ]
    made: dict[str, Any] = {"uid": node.uid, "kind": node.kind, "columns": columns, "event_time": node.event_time}
    operator = None if node.uid in spec.sources else spec.operator(node.uid)
    if isinstance(operator, SqlOperator):
        made["sql"] = operator.sql
    if isinstance(operator, LookupOperator):
        made["lookup"] = operator.model_dump(mode="json", include={"key", "how", "order_by", "columns"})
    if isinstance(operator, RowWiseSpec) or any(type_ is None for _, type_ in columns):
        made["inputs"] = [_made(spec, graph, graph.nodes[name]) for name in node.inputs]
    return made


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
