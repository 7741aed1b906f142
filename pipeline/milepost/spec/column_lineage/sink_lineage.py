"""Column lineage: of each sink's columns the columns of sources that they come from, or that decide about them.

A pure function of the spec and its graph. It may name more than is so, as of a user's class, never less, but for ties
(`operator_lineage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.spec.column_lineage.operator_lineage import late_lineage, operator_lineage
from milepost.spec.column_lineage.origins import IDENTITY, Origins, RowsLineage, SourceColumn
from milepost.spec.graph.checks import late_outputs
from milepost.spec.graph.edges import BAD
from milepost.spec.graph.graph import JobGraph
from milepost.spec.job.spec import JobSpec


def sink_lineage(spec: JobSpec, graph: JobGraph) -> dict[str, RowsLineage]:
    """Return the lineage of the rows of every sink, by its name.

    Of records that cannot be read it is empty: they have no columns of their source.
    """
    nodes: dict[str, RowsLineage] = {}
    for node in graph.nodes.values():
        if node.uid in spec.sources:
            origins: dict[str, Origins] = {
                name: {SourceColumn(node.uid, name): frozenset((IDENTITY,))} for name in node.columns
            }
            nodes[node.uid] = RowsLineage(origins)
            continue
        times = [graph.nodes[name].event_time for name in node.inputs]
        nodes[node.uid] = operator_lineage(spec.operator(node.uid), [nodes[name] for name in node.inputs], times)
    return {sink.name: _of_output(spec, graph, nodes, sink.input) for sink in spec.sinks}


def _of_output(spec: JobSpec, graph: JobGraph, nodes: Mapping[str, RowsLineage], output: str) -> RowsLineage:
    late = late_outputs(spec).get(output)
    if late is not None:
        uid, position = late
        origin = graph.nodes[graph.nodes[uid].inputs[position]]
        return late_lineage(nodes[origin.uid], origin.event_time)
    return RowsLineage({}) if output.endswith(BAD) else nodes[output]


def lineage_document(spec: JobSpec, graph: JobGraph) -> dict[str, Any]:
    """Return the lineage of every sink, JSON-compatible.

    Returns:
        By sink ``{"columns": {name: [origin]}, "rows": [origin]}``, with an origin ``{"source", "column", "type",
        "subtype", "masking"}``; rows: what decides which rows there are. A column that only the class of a process
        operator names is not among them.
    """
    lineage = sink_lineage(spec, graph)
    return {
        name: {
            "columns": {
                column: _written(rows.of(column)) for column in graph.sink_inputs[name].columns or rows.columns
            },
            "rows": _written(rows.rows),
        }
        for name, rows in lineage.items()
    }


def _written(origins: Origins) -> list[dict[str, Any]]:
    return [
        {
            "source": one.source,
            "column": one.column,
            "type": way.type,
            "subtype": way.subtype,
            "masking": way.masking,
        }
        for one, ways in sorted(origins.items())
        for way in sorted(ways)
    ]
