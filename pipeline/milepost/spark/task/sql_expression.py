"""The Spark SQL expressions of SQL operators over the wide frame of their level (`sql_projection.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.spec.graph.graph import JobGraph
from milepost.spec.job.spec import JobSpec, SqlOperator
from milepost.spec.sql.sql import sql_plan
from milepost.spec.sql.union import Branch, branches


def column_of(node: str, part: int = 0) -> str:
    """Return the wide frame's column of a node, or of a part of one, such as `hourly.late`.

    Spark takes a name with a dot for a field of a struct in some places, however it is quoted; no name has `__`.

    Args:
        part: of a node behind UNION ALL, whose rows come on several paths: which one of them.
    """
    column = f"n_{node.replace('.', '__')}"
    return f"{column}__{part + 1}" if part else column


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """What makes one column of the wide frame.

    Attributes:
        uid: operator. column: that it makes. text: Spark SQL.
        common: schema to which the rows of each SELECT of a UNION ALL are cast; None for an operator of one.
    """

    uid: str
    column: str
    text: str
    common: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class LevelSql:
    """The SQL of one level.

    Attributes:
        expressions: in the order in which they are evaluated. columns: of each node that has rows there, by name.
    """

    expressions: tuple[SqlExpression, ...]
    columns: Mapping[str, tuple[str, ...]]


def level_sql(spec: JobSpec, graph: JobGraph, level: int, schemas: Mapping[str, pa.Schema]) -> LevelSql:
    """Return the SQL of one level: an expression for each path on which rows come to a SELECT of one of its operators.

    Args:
        schemas: of every node's rows.
    """
    columns: dict[str, tuple[str, ...]] = {}
    expressions = []
    for node in graph.nodes.values():
        if level not in node.levels:
            continue
        if node.kind != "sql":
            columns[node.uid] = (column_of(node.uid),)
            continue
        operator = spec.operator(node.uid)
        assert isinstance(operator, SqlOperator)
        selects = branches(operator.sql, node.inputs)
        paths = [(branch, source) for branch in selects for source in columns.get(branch.input, ())]
        columns[node.uid] = tuple(column_of(node.uid, part) for part in range(len(paths)))
        common = schemas[node.uid] if len(selects) > 1 else None
        for (branch, source), column in zip(paths, columns[node.uid], strict=True):
            text = projection(branch, schemas[branch.input].names, source)
            expressions.append(SqlExpression(node.uid, column, text, common))
    return LevelSql(tuple(expressions), columns)


def projection(branch: Branch, input_columns: list[str], source: str) -> str:
    """Return the Spark SQL expression of one SELECT over a column of the wide frame that has its input's rows."""
    plan = sql_plan(branch.sql, branch.input, input_columns, qualify=source)
    struct = ", ".join(f"{_literal(name)}, {expression}" for name, expression in plan.columns)
    condition = f"`{source}` IS NOT NULL"
    if plan.filter_sql is not None:
        condition += f" AND ({plan.filter_sql})"
    return f"CASE WHEN {condition} THEN named_struct({struct}) END"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
