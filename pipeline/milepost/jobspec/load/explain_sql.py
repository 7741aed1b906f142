"""Describe the SQL statements of a job: their steps, modes, keys, event times and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.jobspec.graph import JobGraph, statement_of
from milepost.jobspec.load.explain import explained_node, mode_of
from milepost.jobspec.load.load import LoadedJob
from milepost.jobspec.sql import shown_text


def explained_statements(job: LoadedJob, graph: JobGraph) -> list[dict[str, Any]]:
    """Return a JSON-compatible description of each SQL statement, in the order of the file; [] without any.

    Returns:
        ``name``. ``file``, ``line``, ``column``: its position; null for a spec without SQL. ``steps``: its operators as
        ``{"uid", "kind"}``. ``mode``, ``key``, ``event_time``: of its rows. ``state``: the bounds of its state, as in
        the description of a node. ``sink``: whether it has a table. ``warnings``: ``{"file", "line", "column",
        "message"}``.
    """
    return [_explained(job, graph, name) for name in job.spec.statements]


def _explained(job: LoadedJob, graph: JobGraph, name: str) -> dict[str, Any]:
    node = graph.nodes[name]
    steps = [one for one in graph.nodes.values() if one.inputs and statement_of(job.spec, one.uid) == name]
    origin = None if job.sql is None else job.sql.statements[name]
    warnings = () if origin is None else origin.warnings
    labels = {} if origin is None else origin.labels
    state = [bound for one in steps for bound in explained_node(job.spec, graph, one)["state"]]
    return {
        "name": name,
        **_position(job, *((0, 0) if origin is None else (origin.line, origin.column))),
        "steps": [{"uid": one.uid, "kind": one.kind} for one in steps],
        "mode": mode_of(node),
        "key": list(node.key),
        "event_time": node.event_time,
        "state": [
            {name: value if name in ("name", "table") else _shown(value, labels) for name, value in bound.items()}
            for bound in state
        ],
        "sink": any(sink.input == name for sink in job.spec.sinks),
        "warnings": [{**_position(job, line, column), "message": text} for line, column, text in warnings],
    }


def _position(job: LoadedJob, line: int, column: int) -> dict[str, Any]:
    """Return the file, line and column of a position of the SQL; nulls without SQL."""
    place = (None, None, None) if job.sql is None else job.sql.source.place(line, column)
    return dict(zip(("file", "line", "column"), place, strict=True))


def _shown(value: Any, labels: Mapping[str, str]) -> Any:
    """Return a text, or a list of texts, with the user's expressions for the columns that the compiler names."""
    if isinstance(value, list):
        return [_shown(one, labels) for one in value]
    return shown_text(value, labels) if isinstance(value, str) else value
