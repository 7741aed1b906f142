"""Derive the types of columns from the text of SQL, where the graph leaves them to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from milepost.jobspec.graph import JobGraph
from milepost.jobspec.job import JobSpec
from milepost.jobspec.sql import parsed_expression, shown_type
from milepost.language import ColumnType
from milepost.language.sql import Branch, branches
from milepost.operators.base import Columns
from milepost.operators.sql import SelectSpec

DerivedTypes = Mapping[str, Columns]
"""Node -> its columns with their types. None: only Spark knows the type."""


def derived_types(spec: JobSpec, graph: JobGraph) -> DerivedTypes:
    """Return the columns of all nodes, with the types that the SQL states: `CAST(most AS DOUBLE)`, `most + 1`."""
    types: dict[str, Columns] = {}
    for uid, node in graph.nodes.items():
        operator = None if uid in spec.sources else spec.operator(uid)
        if operator is None or None not in node.columns.values():
            types[uid] = node.columns
        elif isinstance(operator, SelectSpec):
            selected = [_selected(one, types[one.input]) for one in branches(operator.query, operator.inputs)]
            of_all = zip(*(columns.values() for columns in selected), strict=True)
            types[uid] = {
                name: stated or (each[0] if len({*each}) == 1 else None)
                for (name, stated), each in zip(node.columns.items(), of_all, strict=True)
            }
        else:
            inputs = [replace(graph.nodes[name].rows, columns=types[name]) for name in operator.inputs]
            rows = operator.output_rows(inputs, (), None)
            types[uid] = node.columns if isinstance(rows, list) else rows.columns
    return types


def _selected(select: Branch, read: Mapping[str, ColumnType | None]) -> Columns:
    """Return the columns of one SELECT."""
    trees = {name: parsed_expression(text) for name, text in select.plan([*read]).columns}
    return {name: None if tree is None else shown_type(tree, read.get) for name, tree in trees.items()}
