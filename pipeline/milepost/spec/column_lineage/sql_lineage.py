"""SQL origins: which columns of its input each column of a row-wise SELECT is made of, and which ones decide.

sqlglot's tree is read, by the reader's own rules of names (letters of any case, fields of structs, variables of
lambdas), which are Spark's: sqlglot's own lineage knows neither those nor what a CASE only decides by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from milepost.spec.column_lineage.origins import (
    CONDITIONAL,
    FILTERED,
    IDENTITY,
    MADE_OF,
    Origins,
    RowsLineage,
    Transformation,
    after,
    together,
)
from milepost.spec.sql.sql import quote, read_columns
from milepost.spec.sql.sql_parse import parse_select
from milepost.spec.sql.union import Branch, branches

if TYPE_CHECKING:
    from sqlglot import exp

_HASHES = frozenset({"crc32", "hash", "mask", "md5", "sha", "sha1", "sha2", "xxhash64"})
"""Functions of whose result nobody reads what they were given."""


def sql_lineage(sql: str, inputs: dict[str, RowsLineage]) -> RowsLineage:
    """Return the lineage of an operator's SQL: of a UNION ALL column by column, in their order."""
    parts = [_select_lineage(one, inputs[one.input]) for one in branches(sql, [*inputs])]
    rows = together(*(part.rows for part in parts))
    if any(not part.columns for part in parts):
        return RowsLineage({}, rows, together(*(part.whole for part in parts)))
    columns = {
        name: together(*(list(part.columns.values())[at] for part in parts)) for at, name in enumerate(parts[0].columns)
    }
    return RowsLineage(columns, rows)


def condition_origins(condition: str, input_name: str, rows: RowsLineage) -> Origins:
    """Return what a condition over a row reads."""
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
        return RowsLineage({}, together(rows.rows, after(FILTERED, rows.whole)), after(MADE_OF, rows.whole))
    plan = select.plan([*rows.columns])
    names = _Names(str(tree.args["from_"].this.alias or select.input), rows.columns)
    made = iter([name for name, _ in plan.columns])
    columns: dict[str, Origins] = {}
    for item in tree.expressions:
        star = item if isinstance(item, exp.Star) else item.this
        if isinstance(star, exp.Star):
            columns |= {next(made): rows.of(column) for column in rows.columns}
            continue
        name = next(made)
        body = item.this if isinstance(item, exp.Alias) else item
        kept = plan.passthrough.get(name)
        columns[name] = rows.of(kept) if kept is not None else together(*_made_of(body, names, rows))
    decide = [] if where is None else [names.of(column) for column in read_columns(where)]
    if plan.exploded is not None:  # as many rows as its list has values
        lists = [item for item in tree.expressions if item.alias_or_name == plan.exploded.name]
        decide += [names.of(column) for item in lists for column in read_columns(item)]
    return RowsLineage(columns, together(rows.rows, rows.by(FILTERED, decide)))


def _made_of(body: exp.Expression, names: _Names, rows: RowsLineage) -> Iterator[Origins]:
    for column in read_columns(body):
        yield after(_way(column, body), rows.of(names.of(column)))


def _way(column: exp.Expression, body: exp.Expression) -> Transformation:
    """Return how an expression depends on a column within it."""
    from sqlglot import exp

    if column is body and len(column.parts) == 1:
        return IDENTITY
    way, node = MADE_OF, column
    while node is not body and node.parent is not None:
        outer = node.parent
        decides = (isinstance(outer, exp.If) and node.arg_key == "this") or (
            isinstance(outer, exp.Case) and node.arg_key == "this"
        )
        if decides or _is_condition_of_call(outer, node):
            way = replace(CONDITIONAL, masking=way.masking)
        if _called(outer) in _HASHES:
            way = replace(way, masking=True)
        node = outer
    return way


def _called(node: exp.Expression) -> str:
    from sqlglot import exp

    return str(node.name).casefold() if isinstance(node, exp.Anonymous) else ""


def _is_condition_of_call(call: exp.Expression, argument: exp.Expression) -> bool:
    return _called(call) in ("if", "nvl2") and call.expressions[0] is argument


class _Names:
    """The columns that references in a SELECT mean."""

    def __init__(self, alias: str, columns: Iterable[str]) -> None:
        self._alias = alias.casefold()
        self._by_folded = {column.casefold(): column for column in columns}

    def of(self, reference: exp.Column) -> str | None:
        parts: Sequence[exp.Expression] = reference.parts
        qualified = len(parts) > 1 and parts[0].name.casefold() == self._alias
        return self._by_folded.get((parts[1] if qualified else parts[0]).name.casefold())
