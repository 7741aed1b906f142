"""Refuse SQL that Spark rejects at run time or reads differently than intended.

x = NULL            never true
"city"              a string in Spark, not the column city
'a' + 'b'           + adds only numbers
items + 1           no arithmetic on lists
WHERE city_id       a condition that is not boolean
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from milepost.language.sql.sql_parse import SqlProblem, excerpt, is_variable, parse_select, problem_from
from milepost.language.types import ColumnType

if TYPE_CHECKING:
    from sqlglot import exp

_NUMBERS = ("nan", "infinity", "inf")
"""Strings without a digit that Spark reads as numbers."""


def check_mistakes(sql: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Refuse a SELECT that contains one of these mistakes.

    Args:
        columns: input column -> type; None if the type is not known. Unknown columns may be missing.
    Raises:
        SqlProblem: with what Spark would do, and what to write instead.
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
    names = {name.casefold(): name for name in columns}
    for token in tokens:
        if token.token_type.name == "STRING" and sql[token.start] == '"' and token.text.casefold() in names:
            name = names[token.text.casefold()]
            raise problem_from(
                sql,
                token.start,
                f'"{token.text}" is a string in Spark; write {name} or `{name}` for the column, '
                f"or '{name}' for the string",
            )


def _check_null(node: exp.Expression) -> None:
    from sqlglot import exp

    compares = isinstance(node, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE))
    if compares and any(isinstance(side, exp.Null) for side in (node.left, node.right)):
        raise SqlProblem(f"{excerpt(node)} is never true; write IS NULL or IS NOT NULL")


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
                f"{excerpt(node)}: + adds numbers, but '{text}' is a string; join strings with || or concat(…)"
            )


def _check_condition(tree: exp.Select, types: Mapping[str, ColumnType | None]) -> None:
    where = tree.args.get("where")
    type_ = None if where is None else _type_of(where.this.unnest(), types)
    if type_ is not None and type_.kind not in ("bool", "string"):  # Spark casts a string to a boolean
        raise SqlProblem(f"{excerpt(where)}: the condition is {type_}, not boolean; compare it with a value")


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
            raise SqlProblem(f"{excerpt(node)}: {side.name} is {type_}, which has no arithmetic")
        if type_.kind == "timestamp" and isinstance(other, exp.Literal) and not other.is_string:
            raise SqlProblem(f"{excerpt(node)}: {side.name} is {type_}; write an interval: INTERVAL {other.this} DAY")


def _type_of(node: exp.Expression, types: Mapping[str, ColumnType | None]) -> ColumnType | None:
    """Return the type of a plain column reference. None: another expression, or an unknown type."""
    from sqlglot import exp

    is_plain = isinstance(node, exp.Column) and len(node.parts) == 1 and not is_variable(node)
    return types.get(node.name.casefold()) if is_plain else None
