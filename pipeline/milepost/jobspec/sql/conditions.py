"""Recognize comparisons between a new relation and those that are joined so far."""

from __future__ import annotations

from milepost.jobspec.sql.scope import Scope
from milepost.jobspec.sql.tokens import Tokens

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
    run = run.without_brackets()
    kinds = [(at, run.kind(at)) for at in run.top()]
    cuts = [at for at, kind in kinds if kind in _SYMBOLS]
    if len(cuts) != 1 or any(kind in _OTHERS for _, kind in kinds):
        return None
    symbol, sides = _SYMBOLS[run.kind(cuts[0])], (run.part(0, cuts[0]), run.part(cuts[0] + 1))
    if not all(map(len, sides)):
        return None
    owners = [{number for number, _ in scope.references(side)} for side in sides]
    if owners[1] == {index} and owners[0] and owners[0] <= joined:
        return sides[0], symbol, sides[1]
    if owners[0] == {index} and owners[1] and owners[1] <= joined:
        return sides[1], _SWAPPED.get(symbol, symbol), sides[0]
    return None
