"""Lineage of row-wise SQL: the input columns that each output column depends on.

It walks sqlglot's tree with Spark's rules for names (case, struct fields, lambda variables). sqlglot's own lineage has
neither these rules nor INDIRECT dependencies, such as the condition of a CASE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from milepost.language.sql import Branch, branches, parse_select, quote, read_columns
from milepost.operators.base.origins import (
    CONDITIONAL,
    FILTERED,
    IDENTITY,
    MADE_OF,
    Origins,
    RowsLineage,
    Transformation,
    after_step,
    union,
)

if TYPE_CHECKING:
    from sqlglot import exp

_HASHES = frozenset({"crc32", "hash", "mask", "md5", "sha", "sha1", "sha2", "xxhash64"})
"""Functions with an argument that cannot be recovered from the result."""


def sql_lineage(sql: str, inputs: dict[str, RowsLineage]) -> RowsLineage:
    """Return the lineage of an operator's SQL. In a UNION ALL, columns are matched by position."""
    parts = [_select_lineage(select, inputs[select.input]) for select in branches(sql, [*inputs])]
    rows = union(*(part.rows for part in parts))
    if any(not part.columns for part in parts):
        return RowsLineage({}, rows, union(*(part.whole for part in parts)))
    columns = {
        name: union(*(list(part.columns.values())[index] for part in parts))
        for index, name in enumerate(parts[0].columns)
    }
    return RowsLineage(columns, rows)


def condition_origins(condition: str, input_name: str, rows: RowsLineage) -> Origins:
    """Return the origins of the columns that a condition reads."""
    if not rows.columns:
        return rows.whole
    tree = parse_select(f"SELECT\n{condition}\nAS is_true FROM {quote(input_name)}").tree
    names = _Names(input_name, rows.columns)
    return rows.by(MADE_OF, (names.of(column) for column in read_columns(tree)))


def _select_lineage(select: Branch, rows: RowsLineage) -> RowsLineage:
    from sqlglot import exp

    tree = parse_select(select.sql).tree
    where = tree.args.get("where")
    if not rows.columns:
        return RowsLineage({}, union(rows.rows, after_step(FILTERED, rows.whole)), after_step(MADE_OF, rows.whole))
    plan = select.plan([*rows.columns])
    names = _Names(str(tree.args["from_"].this.alias or select.input), rows.columns)
    output_names = iter([name for name, _ in plan.columns])
    columns: dict[str, Origins] = {}
    for item in tree.expressions:
        star = item if isinstance(item, exp.Star) else item.this
        if isinstance(star, exp.Star):
            columns |= {next(output_names): rows.of(column) for column in rows.columns}
            continue
        name = next(output_names)
        body = item.this if isinstance(item, exp.Alias) else item
        unchanged = plan.passthrough.get(name)
        columns[name] = rows.of(unchanged) if unchanged is not None else union(*_origins(body, names, rows))
    deciding = [] if where is None else [names.of(column) for column in read_columns(where)]
    if plan.exploded is not None:  # the length of the list decides how many rows there are
        lists = [item for item in tree.expressions if item.alias_or_name == plan.exploded.name]
        deciding += [names.of(column) for item in lists for column in read_columns(item)]
    return RowsLineage(columns, union(rows.rows, rows.by(FILTERED, deciding)))


def _origins(body: exp.Expression, names: _Names, rows: RowsLineage) -> Iterator[Origins]:
    for column in read_columns(body):
        yield after_step(_transformation(column, body), rows.of(names.of(column)))


def _transformation(column: exp.Expression, body: exp.Expression) -> Transformation:
    """Return how an expression depends on a column within it."""
    # CASE WHEN paid THEN minutes END depends on paid CONDITIONAL and on minutes TRANSFORMATION.
    # sha2(name, 256) depends on name TRANSFORMATION with masking.
    from sqlglot import exp

    if column is body and len(column.parts) == 1:
        return IDENTITY
    transformation, node = MADE_OF, column
    while node is not body and node.parent is not None:
        outer = node.parent
        is_condition = (isinstance(outer, exp.If) and node.arg_key == "this") or (
            isinstance(outer, exp.Case) and node.arg_key == "this"
        )
        if is_condition or _is_condition_of_call(outer, node):
            transformation = replace(CONDITIONAL, masking=transformation.masking)
        if _function_name(outer) in _HASHES:
            transformation = replace(transformation, masking=True)
        node = outer
    return transformation


def _function_name(node: exp.Expression) -> str:
    from sqlglot import exp

    return str(node.name).casefold() if isinstance(node, exp.Anonymous) else ""


def _is_condition_of_call(call: exp.Expression, argument: exp.Expression) -> bool:
    return _function_name(call) in ("if", "nvl2") and call.expressions[0] is argument


class _Names:
    """Resolves column references in a SELECT to input columns."""

    def __init__(self, alias: str, columns: Iterable[str]) -> None:
        self._alias = alias.casefold()
        self._by_folded = {column.casefold(): column for column in columns}

    def of(self, reference: exp.Column) -> str | None:
        parts: Sequence[exp.Expression] = reference.parts
        qualified = len(parts) > 1 and parts[0].name.casefold() == self._alias
        return self._by_folded.get((parts[1] if qualified else parts[0]).name.casefold())
