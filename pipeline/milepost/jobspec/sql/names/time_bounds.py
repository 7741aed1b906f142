"""Recognize conditions on two times with constant bounds, as interval joins and as-of joins take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from milepost.jobspec.sql.names.scope import Reference
from milepost.jobspec.sql.text import Expression, Tokens, duration_ms

Resolve = Callable[[Expression, list[Any]], tuple[Reference, int]]


@dataclass(frozen=True, slots=True)
class Bound:
    """`right - left >= low` or `right - left <= high`, in milliseconds; a bound that is None does not exist."""

    left: Reference
    right: Reference
    low: int | None = None
    high: int | None = None
    is_strict: bool = False


def read_bounds(run: Tokens, right: int, resolve: Resolve) -> list[Bound]:
    """Return the bounds that a condition states on a column of relation `right` minus one of an earlier relation.

    Returns: [] for any other condition.
    """
    # p.at BETWEEN o.at AND o.at + INTERVAL 30 MINUTES, right = p   ->  low 0, high 1,800,000
    # o.at >= p.at - INTERVAL 5 MINUTES, right = p                  ->  high 300,000
    from sqlglot import exp

    expression = Expression(run.without_brackets())
    tree = expression.tree
    if isinstance(tree, exp.Between):
        pairs = [(tree.this, tree.args["low"], False), (tree.args["high"], tree.this, False)]
    elif isinstance(tree, exp.EQ):
        pairs = [(tree.this, tree.expression, False), (tree.expression, tree.this, False)]
    elif isinstance(tree, (exp.GTE, exp.GT)):
        pairs = [(tree.this, tree.expression, isinstance(tree, exp.GT))]
    elif isinstance(tree, (exp.LTE, exp.LT)):
        pairs = [(tree.expression, tree.this, isinstance(tree, exp.LT))]
    else:
        return []
    bounds = []
    for greater, less, is_strict in pairs:
        above, below = _term(expression, greater, resolve), _term(expression, less, resolve)
        if above is None or below is None or (above[0][0] == right) == (below[0][0] == right):
            return []
        if above[0][0] == right:  # right + a >= left + b
            bounds.append(Bound(below[0], above[0], low=below[1] - above[1], is_strict=is_strict))
        else:  # left + a >= right + b
            bounds.append(Bound(above[0], below[0], high=above[1] - below[1], is_strict=is_strict))
    return bounds


def _term(expression: Expression, node: Any, resolve: Resolve) -> tuple[Reference, int] | None:
    """Return (column, milliseconds) for a column plus or minus constant intervals."""
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _term(expression, node.this, resolve)
    if isinstance(node, exp.Column):
        reference, used = resolve(expression, list(node.parts))
        return (reference, 0) if used == len(node.parts) else None
    if isinstance(node, (exp.Add, exp.Sub)):
        term, amount = _term(expression, node.this, resolve), _interval(node.expression)
        if term is not None and amount is not None:
            return term[0], term[1] + (amount if isinstance(node, exp.Add) else -amount)
    return None


def _interval(node: Any) -> int | None:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _interval(node.this)
    if isinstance(node, exp.Add):
        parts = _interval(node.this), _interval(node.expression)
        return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = node.args.get("unit")
    return duration_ms(str(node.this.this) if unit is None else f"{node.this.this} {unit.name}")
