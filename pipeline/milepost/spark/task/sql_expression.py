"""The Spark SQL expression of a SQL operator over the wide frame of its level (`sql_projection.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from milepost.spec.graph.graph import Node
from milepost.spec.job.spec import JobSpec, SqlOperator
from milepost.spec.sql.sql import sql_plan


def column_of(node: str) -> str:
    """Return the wide frame's column of a node, or of a part of one, such as `hourly.late`.

    Spark takes a name with a dot for a field of a struct in some places, however it is quoted; no name has `__`.
    """
    return f"n_{node.replace('.', '__')}"


def projection(spec: JobSpec, node: Node, input_columns: Iterable[str]) -> str:
    """Return the Spark SQL expression of one SQL operator over the wide frame."""
    operator = spec.operator(node.uid)
    assert isinstance(operator, SqlOperator)
    source = column_of(node.inputs[0])
    plan = sql_plan(operator.sql, node.inputs[0], list(input_columns), qualify=source)
    struct = ", ".join(f"{_literal(name)}, {expression}" for name, expression in plan.columns)
    condition = f"`{source}` IS NOT NULL"
    if plan.filter_sql is not None:
        condition += f" AND ({plan.filter_sql})"
    return f"CASE WHEN {condition} THEN named_struct({struct}) END AS `{column_of(node.uid)}`"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
