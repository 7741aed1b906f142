"""Find the columns and calls of expressions. The user's text is not changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from milepost.jobspec.sql.text.tokens import Fragment, Substitute, Tokens
from milepost.language.sql import (
    SPARK_AGGREGATES,
    WINDOW_FUNCTIONS,
    SqlProblem,
    parse_select,
    problem_from,
    read_columns,
)
from milepost.language.times import format_signed_duration
from milepost.protocol.records import cached_property

AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "variance": "var",
    "var_samp": "var",
    "first": "first",
    "last": "last",
    "min_by": "arg_min",
    "max_by": "arg_max",
    "bool_or": "any",
    "any": "any",
    "some": "any",
    "bool_and": "every",
    "every": "every",
    "count_if": "count",
}
"""Aggregate function of Spark SQL -> the function of an `aggregate` operator, for the compiler and the reference."""

_PREFIX = "SELECT "
_SUBQUERY = (
    "a query in an expression is not available in this version, except one value in SELECT, WHERE or HAVING, and [NOT] "
    "EXISTS and [NOT] IN as terms of WHERE; write a join with a common table expression"
)
_UNITS = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
"""Unit of an interval -> milliseconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an aggregate in an expression.

    Attributes:
        tokens: from its name to its closing bracket, or to that of FILTER. name: in lower case.
        arguments: [] for `count(*)`. where: condition of FILTER.
    """

    tokens: Tokens
    name: str
    arguments: list[Tokens]
    distinct: bool = False
    where: Tokens | None = None


class Expression:
    """One expression, parsed when its columns are needed."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    @cached_property
    def tree(self) -> Any:
        """sqlglot's tree. Raises SqlProblem, with the position in the file."""
        for index in range(len(self.tokens)):
            if self.tokens.kind(index) == "SELECT":
                raise self.tokens.problem(_SUBQUERY, index)
        text = str(self.fragment)
        try:
            parsed = _parsed(text)
        except SqlProblem as problem:
            if not problem.line:
                raise self.tokens.problem(problem.reason) from None
            line_start = sum(len(line) + 1 for line in (_PREFIX + text).split("\n")[: problem.line - 1])
            position = max(line_start + max(problem.column, 1) - 1 - len(_PREFIX), 0)
            raise problem_from(self.tokens.sql, self._place(position)[0], problem.reason) from None
        if len(parsed) != 1:
            raise self.tokens.problem("expected one expression")
        return parsed[0]

    @cached_property
    def fragment(self) -> Fragment:
        """The text that is parsed."""
        return self.tokens.fragment

    def offsets(self, identifier: Any) -> tuple[int, int]:
        """Return the first and last offset in the file of an identifier of the tree, or of what it stands for."""
        if "start" not in identifier.meta:
            raise self.tokens.problem(f"the column {identifier.name} cannot be located; write it in backticks")
        start, end = self._place(int(identifier.meta["start"]) - len(_PREFIX))
        return start, end or start + int(identifier.meta["end"]) - int(identifier.meta["start"])

    def _place(self, position: int) -> tuple[int, int]:
        """Return the offset in the file of a position in the text, and the last offset of a substitute there."""
        for text, offset in self.fragment.pieces:
            if position < len(text):
                end = self._ends.get(offset, 0)
                return (offset, end) if end else (offset + position, 0)
            position -= len(text)
        return self.tokens.start, 0

    @cached_property
    def _ends(self) -> dict[int, int]:
        return {token.start: token.end for token in self.tokens.items if isinstance(token, Substitute)}

    def columns(self) -> Iterator[list[Any]]:
        """Yield the parts of each column reference: `o.address.city` has three."""
        for column in read_columns(self.tree):
            yield list(column.parts)


def parsed_expression(text: str) -> Any:
    """Return the tree of an expression; None: it cannot be parsed alone."""
    try:
        return _parsed(text)[0]
    except SqlProblem:
        return None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    """Return the trees of the expressions in a text. Cached, because steps resolve the same expressions again."""
    return tuple(parse_select(_PREFIX + text).tree.expressions)


def aggregate_calls(run: Tokens) -> list[Call]:
    """Return the aggregate calls of an expression, outermost only. Raises SqlProblem: one is inside another."""
    calls: list[Call] = []
    at = 0
    while at < len(run):
        name = run.word(at).lower()
        before = run.kind(at - 1)
        is_call = run.kind(at + 1) == "L_PAREN" and before != "DOT"
        is_quantifier = name in ("any", "some") and before in ("LIKE", "ILIKE", "RLIKE", "EQ", "GT", "LT")
        if not is_call or name not in AGGREGATES or is_quantifier:
            at += 1
            continue
        closed = run.closing(at + 1)
        if run.kind(closed + 1) == "OVER":
            at += 1
            continue
        inside, end, where = run.part(at + 2, closed), closed + 1, None
        if run.kind(end) == "FILTER" and run.kind(end + 1) == "L_PAREN":
            bracket = run.closing(end + 1)
            if run.kind(end + 2) != "WHERE":
                raise run.problem("expected FILTER (WHERE condition)", end)
            where, end = run.part(end + 3, bracket), bracket + 1
        distinct = inside.kind(0) == "DISTINCT"
        inside = inside.part(1) if distinct else inside
        if aggregate_calls(inside):
            raise inside.problem("an aggregate cannot be inside another; use a common table expression")
        arguments = [] if inside.kind(0) == "STAR" or not len(inside) else inside.split("COMMA")
        calls.append(Call(run.part(at, end), name, arguments, distinct, where))
        at = end
    return calls


def is_null_with(tree: Any, is_null: Callable[[Any], bool]) -> bool:
    """Return whether an expression is null because a part of it is. False: it may have a value.

    Args:
        is_null: returns whether a column or a call is null.
    """
    # 0.2 * avg(x), if avg(x) is null: True. coalesce(avg(x), 0): False
    from sqlglot import exp

    if isinstance(tree, (exp.Paren, exp.Neg, exp.Cast, exp.Filter)):
        return is_null_with(tree.this, is_null)
    if isinstance(tree, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return is_null_with(tree.this, is_null) or is_null_with(tree.expression, is_null)
    return is_null(tree)


_INSTEAD = {
    "approx_count_distinct": "count(DISTINCT …)",
    "first_value": "first(…)",
    "last_value": "last(…)",
    "any_value": "max(…)",
}
"""Aggregate of Spark -> what to write in its place."""


def check_aggregates(run: Tokens) -> None:
    """Raise SqlProblem for an aggregate that an `aggregate` operator does not have, or a function without its OVER."""
    for at in range(len(run)):
        name = run.word(at).lower()
        is_call = run.kind(at + 1) == "L_PAREN" and run.kind(at - 1) != "DOT"
        if not is_call or name in AGGREGATES or run.kind(run.closing(at + 1) + 1) == "OVER":
            continue
        if name in WINDOW_FUNCTIONS:
            raise run.problem(f"{name} needs OVER (PARTITION BY … ORDER BY …)", at)
        if name in SPARK_AGGREGATES:
            instead = f"write {_INSTEAD[name]}" if name in _INSTEAD else f"aggregates: {', '.join(AGGREGATES)}"
            raise run.problem(f"{name} is not available in this version; {instead}", at)


def window_calls(run: Tokens) -> list[tuple[int, int, int]]:
    """Return (index of the name, index of OVER, index after its bracket) of each call with OVER."""
    found = []
    for at in range(len(run)):
        if run.kind(at) != "OVER" or run.kind(at - 1) != "R_PAREN":
            continue
        depth, start = 0, at - 1
        while start >= 0:
            depth += run.kind(start) == "R_PAREN"
            depth -= run.kind(start) == "L_PAREN"
            if depth == 0:
                break
            start -= 1
        end = run.closing(at + 1) + 1 if run.kind(at + 1) == "L_PAREN" else at + 2
        found.append((start - 1, at, end))
    return found


def conjuncts(run: Tokens | None) -> list[Tokens]:
    """Return the conditions that AND combines. A condition with OR outside brackets stays whole."""
    if run is None:
        return []
    run = run.without_brackets()
    if any(run.kind(index) == "OR" for index in run.top()):
        return [run]
    cuts, between = [], 0
    for index in run.top():
        kind = run.kind(index)
        between += kind == "BETWEEN"
        if kind == "AND" and between:
            between -= 1
        elif kind == "AND":
            cuts.append(index)
    parts = [run.part(a, b) for a, b in zip([0, *(c + 1 for c in cuts)], [*cuts, None], strict=True)]
    if len(parts) == 1:
        return parts
    return [inner for part in parts for inner in conjuncts(part)]


def shared_conjuncts(run: Tokens) -> list[Tokens]:
    """Return the conditions that every branch of an OR has, which hold where it does. None of them without OR.

    Example: of `(a = b AND c = 1) OR (c = 2 AND a = b)`, it is `a = b`.
    """
    first, *others = [conjuncts(branch) for branch in run.without_brackets().split("OR")]
    texts = [{part.normalized for part in branch} for branch in others]
    return [part for part in first if texts and all(part.normalized in branch for branch in texts)]


def duration_ms(text: str) -> int | None:
    """Return a text such as `10 minutes` or `1 hour 30 minutes` in milliseconds; None: another text."""
    words = text.replace("interval", "").lower().split()
    if not words or len(words) % 2:
        return None
    total = 0
    for number, unit in zip(words[::2], words[1::2], strict=True):
        length = _UNITS.get(unit.removesuffix("s"))
        if not number.isdigit() or length is None:
            return None
        total += int(number) * length
    return total


def duration_text(milliseconds: int) -> str:
    """Return a duration as a spec writes it: `90s`, `2h`, `-5m`."""
    return format_signed_duration(timedelta(milliseconds=milliseconds))
