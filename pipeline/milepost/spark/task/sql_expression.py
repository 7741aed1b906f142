"""The Spark SQL expressions of SQL operators over the wide frame of their level (`sql_projection.py`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.spec.graph.edges import DELETED_COLUMN, marked_output
from milepost.spec.graph.graph import JobGraph, Node
from milepost.spec.job.spec import JobSpec, SqlOperator
from milepost.spec.sql.condition import condition_sql
from milepost.spec.sql.sql import quote, sql_plan
from milepost.spec.sql.union import Branch, branches

PLACE = "__place"
"""Column of the wide frame between the two steps of an `explode`: where in its list a row's value stands."""


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
        lists: Spark SQL of the list of which an `explode` makes rows, each with one value in `ITEM`; None: none does.
        common: schema to which the rows of each SELECT of a UNION ALL are cast; None for an operator of one.
    """

    uid: str
    column: str
    text: str
    lists: str | None = None
    common: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class LevelSql:
    """The SQL of one level.

    Attributes:
        expressions: in the order in which they are evaluated. columns: of each node that has rows there, by name.
    """

    expressions: tuple[SqlExpression, ...]
    columns: Mapping[str, tuple[str, ...]]


def level_sql(
    spec: JobSpec,
    graph: JobGraph,
    level: int,
    schemas: Mapping[str, pa.Schema],
    own: Collection[str] | None = None,
) -> LevelSql:
    """Return the SQL of one level: an expression for each path on which rows come to a SELECT of one of its operators.

    Args:
        schemas: of every node's rows.
        own: its operators of one projection: the rows of any other are there already; None: all of the level's.
    """
    columns: dict[str, tuple[str, ...]] = {}
    expressions = []
    for node in graph.nodes.values():
        if level not in node.levels:
            continue
        if node.kind != "sql" or (own is not None and node.uid not in own):
            columns[node.uid] = (column_of(node.uid),)
            continue
        operator = spec.operator(node.uid)
        assert isinstance(operator, SqlOperator)
        selects = branches(operator.sql, node.inputs)
        paths = [(branch, source) for branch in selects for source in columns.get(branch.input, ())]
        columns[node.uid] = tuple(column_of(node.uid, part) for part in range(len(paths)))
        common = schemas[node.uid] if len(selects) > 1 else None
        for (branch, source), column in zip(paths, columns[node.uid], strict=True):
            made = expression(node, branch, schemas[branch.input].names, source, column)
            expressions.append(replace(made, common=common))
    for node in graph.nodes.values():
        if not node.reads_marked or node.inputs[0] not in columns:
            continue
        marked, (name,) = marked_output(node.uid), node.inputs
        if own is not None and marked not in own:
            columns[marked] = (column_of(marked),)
            continue
        columns[marked] = tuple(column_of(marked, part) for part in range(len(columns[name])))
        for source, column in zip(columns[name], columns[marked], strict=True):
            expressions.append(mark_expression(node, schemas[name].names, schemas[marked].names, source, column))
    return LevelSql(tuple(expressions), columns)


def expression(node: Node, branch: Branch, input_columns: list[str], source: str, column: str) -> SqlExpression:
    """Return the expression of one SELECT over a column of the wide frame that has its input's rows.

    Of rows that may be deletes one that is none, and that WHERE lets through, is made of the SELECT's expressions; any
    other is a delete of its key, and no expression of the SELECT sees it.
    """
    names = [name for name in input_columns if name != DELETED_COLUMN]
    plan = sql_plan(branch.sql, branch.input, names, qualify=source)
    struct = ", ".join(f"{_literal(name)}, {value}" for name, value in plan.columns)
    passes = f"`{source}` IS NOT NULL"
    if node.deletes:
        live = f"named_struct({struct}, {_literal(DELETED_COLUMN)}, false)"
        keys = ", ".join(f"{_literal(name)}, {value if name in node.key else 'NULL'}" for name, value in plan.columns)
        gone = f"named_struct({keys}, {_literal(DELETED_COLUMN)}, true)"
        is_delete = f" WHEN `{source}`.{quote(DELETED_COLUMN)} THEN {gone}" if len(names) < len(input_columns) else ""
        stays = f" WHEN {plan.filter_sql} THEN {live} ELSE {gone}" if plan.filter_sql is not None else f" ELSE {live}"
        return SqlExpression(node.uid, column, f"CASE WHEN `{source}` IS NULL THEN NULL{is_delete}{stays} END")
    if plan.filter_sql is not None:
        passes += f" AND ({plan.filter_sql})"
    if plan.exploded is None:
        return SqlExpression(node.uid, column, f"CASE WHEN {passes} THEN named_struct({struct}) END")
    lists = f"CASE WHEN {passes} THEN {plan.exploded.lists} END"
    return SqlExpression(node.uid, column, f"CASE WHEN `{PLACE}` IS NOT NULL THEN named_struct({struct}) END", lists)


def mark_expression(
    node: Node, input_columns: list[str], columns: list[str], source: str, column: str
) -> SqlExpression:
    """Return the expression that adds marks to the rows of an operator's input.

    Args:
        columns: that it makes: the marks, and those of the input that the operator needs.
    """
    conditions = {
        name: condition_sql(condition, node.inputs[0], input_columns, source) for name, condition in node.marks
    }
    values = [
        f"{_literal(name)}, CASE WHEN {conditions[name]} THEN true ELSE false END"
        if name in conditions
        else f"{_literal(name)}, `{source}`.{quote(name)}"
        for name in columns
    ]
    text = f"CASE WHEN `{source}` IS NOT NULL THEN named_struct({', '.join(values)}) END"
    return SqlExpression(node.uid, column, text)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
