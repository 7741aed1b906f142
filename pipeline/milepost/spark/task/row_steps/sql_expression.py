"""The Spark SQL expressions of SQL operators over the wide frame of their level (`sql_projection.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.jobspec.graph import DELETED_COLUMN, Node
from milepost.jobspec.job import JobSpec, SqlOperator
from milepost.jobspec.sql import Branch, branches, condition_sql, quote
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.spark.task.outputs import SqlOutput

POSITION = "__place"
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
    list_sql: str | None = None
    union_schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class LevelSql:
    """The SQL of one level.

    Attributes:
        expressions: in the order in which they are evaluated. columns: of each node that has rows there, by name.
    """

    expressions: tuple[SqlExpression, ...]
    columns: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SelectedBranch:
    """One SELECT of a SQL operator over one column of the wide frame.

    Attributes:
        input: the output that it reads. made: the expression over that alone. alone: no other one stands beside it.
    """

    input: str
    expression: SqlExpression
    is_only_branch: bool = True


def level_sql(
    spec: JobSpec,
    made: Iterable[SqlOutput],
    available: Mapping[str, tuple[str, ...]],
    schemas: Mapping[str, pa.Schema],
) -> LevelSql:
    """Return the SQL of one projection: an expression for each path on which rows come to a SELECT of an output.

    Args:
        made: its outputs, in order. there: columns of the wide frame that have rows before it, by output; one that is
            not there has no rows at this level. schemas: of every output's rows.
    """
    columns, expressions = dict(available), []
    for output in made:
        paths = selects(spec, output, schemas, columns)
        columns[output.name] = tuple(one.expression.column for one in paths)
        expressions += [
            one.expression if one.is_only_branch else replace(one.expression, union_schema=schemas[output.name])
            for one in paths
        ]
    return LevelSql(tuple(expressions), columns)


def selects(
    spec: JobSpec, output: SqlOutput, schemas: Mapping[str, pa.Schema], available: Mapping[str, tuple[str, ...]]
) -> list[SelectedBranch]:
    """Return the SELECTs that make an output, in order, each as often as there are columns of what it reads.

    Args:
        schemas: of what it reads; its own, where it is known, tells which columns a mark stands beside.
        there: columns of the wide frame, by output.
    """
    operator, columns = spec.operator(output.node.uid), (column_of(output.name, part) for part in itertools.count())
    if output.node.conditions:
        ((_, read),) = output.inputs.items()
        names = schemas[read].names
        both = [*names, *(mark for mark, _ in output.node.conditions)]
        shown = schemas[output.name].names if output.name in schemas else both
        return [
            SelectedBranch(read, mark_expression(output.node, names, shown, source, next(columns)))
            for source in available.get(read, ())
        ]
    assert isinstance(operator, SqlOperator)
    every = branches(operator.sql, operator.inputs)
    return [
        SelectedBranch(read, expression(output, one, schemas[read].names, source, next(columns)), len(every) == 1)
        for one in every
        for read in (output.inputs[one.input],)
        for source in available.get(read, ())
    ]


def expression(output: SqlOutput, branch: Branch, input_columns: list[str], source: str, column: str) -> SqlExpression:
    """Return the expression of one SELECT over a column of the wide frame that has its input's rows.

    Of rows that may be deletes one that is none, and that WHERE lets through, is made of the SELECT's expressions; any
    other is a delete of its key, and no expression of the SELECT sees it. Of rows with weights each is made for itself
    and keeps its own; one that stays came once.
    """
    node = output.node
    names = [name for name in input_columns if name not in (DELETED_COLUMN, WEIGHT_COLUMN)]
    plan = branch.plan(names, qualify=source)
    fields = [f"{_literal(name)}, {value}" for name, value in plan.columns]
    passes = f"`{source}` IS NOT NULL"
    if output.is_weighted:
        weight = f"`{source}`.{quote(WEIGHT_COLUMN)}" if WEIGHT_COLUMN in input_columns else "1L"
        fields.append(f"{_literal(WEIGHT_COLUMN)}, {weight}")
    struct = ", ".join(fields)
    if node.deletes and not output.is_weighted:
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
    return SqlExpression(node.uid, column, f"CASE WHEN `{POSITION}` IS NOT NULL THEN named_struct({struct}) END", lists)


def mark_expression(
    node: Node, input_columns: list[str], columns: list[str], source: str, column: str
) -> SqlExpression:
    """Return the expression that adds marks to the rows of an operator's input.

    Args:
        columns: that it makes: the marks, and those of the input that the operator needs.
    """
    conditions = {
        name: condition_sql(condition, node.inputs[0], input_columns, source) for name, condition in node.conditions
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
