"""Column lineage of sinks: the source columns that each sink column depends on.

It is a pure function of the spec and its graph. It may name too many origins, for example of a user's class, but never
too few, except for columns that only break ties (`OperatorSpec.lineage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.jobspec.graph.checks import late_outputs
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.graph.row_rule_checks import rejected_outputs
from milepost.jobspec.job.spec import JobSpec
from milepost.operators.base import BAD, FILTERED, IDENTITY, Origins, RowsLineage, SourceColumn


def sink_lineage(spec: JobSpec, graph: JobGraph) -> dict[str, RowsLineage]:
    """Return sink name -> lineage of its rows. It is empty for bad records, which have no source columns."""
    nodes: dict[str, RowsLineage] = {}
    for node in graph.nodes.values():
        if node.uid in spec.sources:
            origins: dict[str, Origins] = {
                name: {SourceColumn(node.uid, name): frozenset((IDENTITY,))} for name in node.columns
            }
            nodes[node.uid] = RowsLineage(origins)
            continue
        times = [graph.nodes[name].event_time for name in node.inputs]
        nodes[node.uid] = spec.operator(node.uid).lineage([nodes[name] for name in node.inputs], times)
    inputs, rejected = {sink.name: sink.input for sink in spec.sinks}, rejected_outputs(spec)
    late = late_outputs(spec)
    lineage = {}
    for sink in spec.sinks:
        judged = rejected.get(sink.input, sink.name)  # the sink whose row rules decide which rows it has
        rows = _output_lineage(graph, nodes, inputs[judged], late)
        rules = [rule for suite in spec.quality if suite.sink == judged for rule in suite.row_rules.values()]
        columns = {str(rule.arguments["column"]) for rule in rules}
        lineage[sink.name] = rows.decided_by(rows.by(FILTERED, sorted(columns))) if columns else rows
    return lineage


def _output_lineage(
    graph: JobGraph, nodes: Mapping[str, RowsLineage], output: str, late: Mapping[str, tuple[str, int]]
) -> RowsLineage:
    if output in late:
        uid, position = late[output]
        origin = graph.nodes[graph.nodes[uid].inputs[position]]
        rows = nodes[origin.uid]
        return rows.decided_by(rows.by(FILTERED, (origin.event_time,)))
    return RowsLineage({}) if output.endswith(BAD) else nodes[output]


def lineage_document(spec: JobSpec, graph: JobGraph) -> dict[str, Any]:
    """Return the lineage of every sink, JSON-compatible.

    Returns:
        Sink name -> ``{"columns": {name: [origin]}, "rows": [origin]}``, where an origin is ``{"source", "column",
        "type", "subtype", "masking"}`` and ``rows`` are the origins that decide which rows exist. Columns that only the
        class of a process operator declares are missing.
    """
    lineage = sink_lineage(spec, graph)
    return {
        name: {
            "columns": {
                column: _to_json(rows.of(column)) for column in graph.sink_inputs[name].columns or rows.columns
            },
            "rows": _to_json(rows.rows),
        }
        for name, rows in lineage.items()
    }


def _to_json(origins: Origins) -> list[dict[str, Any]]:
    return [
        {
            "source": origin.source,
            "column": origin.column,
            "type": transformation.type,
            "subtype": transformation.subtype,
            "masking": transformation.masking,
        }
        for origin, transformations in sorted(origins.items())
        for transformation in sorted(transformations)
    ]
