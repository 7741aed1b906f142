"""Recognize comparisons between a new relation and those that are joined so far."""

from __future__ import annotations

from milepost.jobspec.sql.names.scope import Scope
from milepost.jobspec.sql.text import Tokens

_SYMBOLS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NULLSAFE_EQ": "<=>"}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OTHERS = ("OR", "AND", "NOT", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "BETWEEN")


def equality(scope: Scope, run: Tokens, joined: set[int], index: int) -> tuple[Tokens, Tokens] | None:
    """Return (expression over joined relations, expression over relation `index`) if a condition equates them."""
    sides = comparison(scope, run, joined, index)
    return None if sides is None or sides[1] != "=" else (sides[0], sides[2])


def comparison(scope: Scope, run: Tokens, joined: set[int], index: int) -> tuple[Tokens, str, Tokens] | None:
    """Return (expression over joined relations, symbol, expression over relation `index`), or None."""
    # p.limit >= o.amount, index = p   ->   o.amount, "<=", p.limit
    sides = sides_of(run)
    if sides is None:
        return None
    left, symbol, right = sides
    owners = [{number for number, _ in scope.references(side)} for side in (left, right)]
    if owners[1] == {index} and owners[0] and owners[0] <= joined:
        return left, symbol, right
    if owners[0] == {index} and owners[1] and owners[1] <= joined:
        return right, _SWAPPED.get(symbol, symbol), left
    return None


def sides_of(run: Tokens) -> tuple[Tokens, str, Tokens] | None:
    """Return (left expression, symbol, right expression) of a comparison, or None."""
    run = run.without_brackets()
    kinds = [(at, run.kind(at)) for at in run.top()]
    cuts = [at for at, kind in kinds if kind in _SYMBOLS]
    if len(cuts) != 1 or any(kind in _OTHERS for _, kind in kinds):
        return None
    left, right = run.part(0, cuts[0]), run.part(cuts[0] + 1)
    return (left, _SYMBOLS[run.kind(cuts[0])], right) if len(left) and len(right) else None
