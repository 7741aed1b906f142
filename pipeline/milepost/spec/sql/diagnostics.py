"""Mistakes of SQL are what Spark would refuse in the run, or take for something else than was surely meant.

A comparison with NULL, which is never true; a column in double quotes, which is a text in Spark; a text that is added
by `+`, which adds numbers alone; columns that no number is added to; a condition that is neither true nor false.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from milepost.spec.sql.sql_parse import SqlProblem, is_variable, parse_select, problem_from, shown
from milepost.spec.values.types import ColumnType

if TYPE_CHECKING:
    from sqlglot import exp

_NUMBERS = ("nan", "infinity", "inf")
"""Texts without a digit that are numbers."""


def check_mistakes(sql: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Refuse a SELECT with a mistake in it.

    Args:
        columns: the input's columns with their types; a type that is None, or a column that is not there, is not known.
    Raises:
        SqlProblem: says what Spark makes of it, and what to write.
    """
    parsed = parse_select(sql)
    types = {name.casefold(): type_ for name, type_ in columns.items()}
    _check_quotes(sql, parsed.tokens, columns)
    _check_condition(parsed.tree, types)
    for node in parsed.tree.walk():
        _check_null(node)
        _check_sum(node)
        _check_operands(node, types)


def _check_quotes(sql: str, tokens: list[Any], columns: Collection[str]) -> None:
    known = {name.casefold(): name for name in columns}
    for token in tokens:
        if token.token_type.name == "STRING" and sql[token.start] == '"' and token.text.casefold() in known:
            name = known[token.text.casefold()]
            raise problem_from(
                sql,
                token.start,
                f"\"{token.text}\" is a text in Spark; write {name} or `{name}` for the column, else '{name}'",
            )


def _check_null(node: exp.Expression) -> None:
    from sqlglot import exp

    compares = isinstance(node, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE))
    if compares and any(isinstance(side, exp.Null) for side in (node.left, node.right)):
        raise SqlProblem(f"{shown(node)} is never true; write IS NULL or IS NOT NULL")


def _check_sum(node: exp.Expression) -> None:
    from sqlglot import exp

    if not isinstance(node, exp.Add):
        return
    for side in (node.left.unnest(), node.right.unnest()):
        if not isinstance(side, exp.Literal) or not side.is_string:
            continue
        text = str(side.this)
        if not any(letter.isdigit() for letter in text) and text.strip(" +-").casefold() not in _NUMBERS:
            raise SqlProblem(
                f"{shown(node)}: + adds numbers, and '{text}' is none; texts are joined by || or concat(…)"
            )


def _check_condition(tree: exp.Select, types: Mapping[str, ColumnType | None]) -> None:
    where = tree.args.get("where")
    type_ = None if where is None else _type_of(where.this.unnest(), types)
    if type_ is not None and type_.kind not in ("bool", "string"):  # of a text Spark reads true or false
        raise SqlProblem(f"{shown(where)}: it is {type_}, and no condition; compare it with something")


def _check_operands(node: exp.Expression, types: Mapping[str, ColumnType | None]) -> None:
    from sqlglot import exp

    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)):
        return
    sides = node.left.unnest(), node.right.unnest()
    for side, other in (sides, sides[::-1]):
        type_ = _type_of(side, types)
        if type_ is None:
            continue
        if type_.is_nested or type_.kind in ("bool", "binary"):
            raise SqlProblem(f"{shown(node)}: {side.name} is {type_}, with which nothing is computed")
        if type_.kind == "timestamp" and isinstance(other, exp.Literal) and not other.is_string:
            raise SqlProblem(f"{shown(node)}: {side.name} is {type_}; write INTERVAL {other.this} DAY, HOUR or such")


def _type_of(node: exp.Expression, types: Mapping[str, ColumnType | None]) -> ColumnType | None:
    """Return the type of a column that stands alone; None: it is none, or not known."""
    from sqlglot import exp

    alone = isinstance(node, exp.Column) and len(node.parts) == 1 and not is_variable(node)
    return types.get(node.name.casefold()) if alone else None
