"""Signatures of operator inputs, which decide whether rows in flight are still valid.

Rows in flight are stored as they crossed the exchange. A changed spec can continue with them only if it would have
produced the same columns. The signature of an operator's inputs is recorded with its channel state, and compared before
an epoch is planned.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.job.spec import JobSpec
from milepost.operators.base import DELETED_COLUMN, RowWiseSpec, StatefulSpec


def consumed_columns(spec: JobSpec, graph: JobGraph, uid: str) -> frozenset[str] | None:
    """Return the columns of its input that a stateful operator needs, or None for all of them.

    It needs all if its late rows are published, if it outputs its input's columns, or if it runs a user's class.
    """
    # aggregate(key=[city], m=sum(minutes) filter (where paid)) needs city, minutes and paid; a window operator with
    # the same aggregate needs the event time as well.
    node, operator = graph.nodes[uid], spec.operator(uid)
    if node.late_sinks or not isinstance(operator, StatefulSpec):
        return None
    producer = graph.nodes[node.inputs[0]]
    return operator.needed_columns([*producer.columns], producer.event_time)


def input_signatures(spec: JobSpec, graph: JobGraph) -> dict[str, str]:
    """Return, per stateful operator, a digest of its key, the columns and modes it consumes, and their origin.

    The origin is: the columns of each source, the SQL and lookups in between, and the kind and columns of a stateful
    producer. What is upstream of a stateful producer counts only if it determines a type that the spec does not state.
    """
    return {node.uid: _digest(_inputs(spec, graph, node)) for node in graph.stateful}


def _inputs(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    consumed = consumed_columns(spec, graph, node.uid)
    operator = spec.operator(node.uid)
    marked = {("delete_when" if name == DELETED_COLUMN else name): condition for name, condition in node.conditions}
    # Joins route a row with a null in its key by all of its columns, so that such rows do not go to one subtask.
    apart = {"nulls": "apart"} if isinstance(operator, StatefulSpec) and operator.spreads_null_keys else {}
    return {
        **marked,
        **apart,
        "key": operator.key_texts,
        "columns": None if consumed is None else sorted(consumed),
        "modes": [graph.nodes[name].output_kind for name in node.inputs],
        "made": [_origin(spec, graph, graph.nodes[name], consumed) for name in node.inputs],
    }


def _origin(spec: JobSpec, graph: JobGraph, node: Node, needed: frozenset[str] | None = None) -> dict[str, Any]:
    columns = [
        [name, None if type_ is None else str(type_)]
        for name, type_ in node.columns.items()
        if needed is None or name in needed
    ]
    origin: dict[str, Any] = {"uid": node.uid, "kind": node.kind, "columns": columns, "event_time": node.event_time}
    operator = None if node.uid in spec.sources else spec.operator(node.uid)
    if isinstance(operator, RowWiseSpec):
        origin |= operator.definition
    if isinstance(operator, RowWiseSpec) or any(type_ is None for _, type_ in columns):
        origin["inputs"] = [_origin(spec, graph, graph.nodes[name]) for name in node.inputs]
    return origin


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
