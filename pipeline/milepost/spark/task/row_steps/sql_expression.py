"""Generate the Spark SQL of SQL operators on the wide frame (`sql_projection.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.jobspec.graph import Node
from milepost.jobspec.job import JobSpec
from milepost.language.sql import Branch, branches, condition_sql, quote
from milepost.operators.base import DELETED_COLUMN
from milepost.operators.sql import SelectSpec
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.spark.task.outputs import SqlOutput

POSITION = "__place"
"""Column of the wide frame between the two steps of an `explode`: index of a row's value in its list."""


def column_of(node: str, part: int = 0) -> str:
    """Return the wide frame's column of an output: `n_hourly-late` for `hourly.late`, `n_both+2` for its part 1.

    Spark sometimes parses a name with a dot as a struct field, even if it is quoted. No name contains `-` or `+`.

    Args:
        part: index of the path, for an output that a UNION ALL produces on several paths.
    """
    column = f"n_{node.replace('.', '-')}"
    return f"{column}+{part + 1}" if part else column


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """The expression of one column of the wide frame.

    Attributes:
        uid: operator.
        column: name of the column.
        text: Spark SQL of the column.
        list_sql: Spark SQL of the list that an `explode` turns into rows, one value in `ITEM` each; None: no `explode`.
        union_schema: schema to which each SELECT of a UNION ALL is cast; None for a single SELECT.
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
        expressions: expressions in order of evaluation.
        columns: output -> columns of the wide frame that hold its rows.
    """

    expressions: tuple[SqlExpression, ...]
    columns: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SelectedBranch:
    """One SELECT of a SQL operator on one column of the wide frame.

    Attributes:
        input: the output that it reads.
        expression: its expression.
        is_only_branch: whether the operator has no other SELECT.
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
    """Return the SQL of one projection, with one expression per SELECT and per column that it reads.

    Args:
        made: outputs of the projection, in order.
        available: output -> columns of the wide frame before the projection. Other outputs have no rows at this level.
        schemas: output -> schema of its rows.
    """
    columns, expressions = dict(available), []
    for output in made:
        paths = selects(spec, output, schemas, columns)
        columns[output.name] = tuple(path.expression.column for path in paths)
        expressions += [
            path.expression if path.is_only_branch else replace(path.expression, union_schema=schemas[output.name])
            for path in paths
        ]
    return LevelSql(tuple(expressions), columns)


def selects(
    spec: JobSpec, output: SqlOutput, schemas: Mapping[str, pa.Schema], available: Mapping[str, tuple[str, ...]]
) -> list[SelectedBranch]:
    """Return the SELECTs of an output in order, each once per column of the output that it reads.

    Args:
        schemas: schemas of the outputs that it reads. Its own schema, if present, limits the columns of marked rows.
        available: output -> columns of the wide frame.
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
    assert isinstance(operator, SelectSpec)
    every = branches(operator.query, operator.inputs)
    return [
        SelectedBranch(read, expression(output, branch, schemas[read].names, source, next(columns)), len(every) == 1)
        for branch in every
        for read in (output.inputs[branch.input],)
        for source in available.get(read, ())
    ]


def expression(output: SqlOutput, branch: Branch, input_columns: list[str], source: str, column: str) -> SqlExpression:
    """Return the expression of one SELECT on a column of the wide frame with its input's rows.

    If the input may contain deletes, a row that is not a delete and passes WHERE gets the SELECT's expressions. Any
    other row becomes a delete of its key, and the SELECT's other expressions are not evaluated. In an output with all
    rows it is left out. A row of a weighted output keeps its weight, or gets weight 1 if its input has none. For
    `SELECT k, v + 1 AS w ... WHERE v > 0`, key k::

        k  v   deleted        k  w     deleted
        a  1   false          a  2     false
        b  -1  false          b  null  true       WHERE drops the row, so its key is deleted
        c  5   true           c  null  true
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
        delete = "NULL" if output.is_whole else f"named_struct({keys}, {_literal(DELETED_COLUMN)}, true)"
        is_delete = f" WHEN `{source}`.{quote(DELETED_COLUMN)} THEN {delete}" if len(names) < len(input_columns) else ""
        stays = f" WHEN {plan.filter_sql} THEN {live} ELSE {delete}" if plan.filter_sql is not None else f" ELSE {live}"
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
    """Return the expression that adds a boolean mark per condition to the rows of an operator's input.

    Args:
        columns: columns of the result: the marks, and the input columns that the operator needs.
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
