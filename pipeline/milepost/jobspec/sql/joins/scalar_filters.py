"""Find the conditions of WHERE that a join with the value of a query can compare itself."""

from __future__ import annotations

from milepost.jobspec.sql.emit import Emitter
from milepost.jobspec.sql.joins.sides import Frame, both_sides
from milepost.jobspec.sql.names import Scope, comparison
from milepost.jobspec.sql.text import Expression, Tokens, is_null_with


def scalar_filters(emitter: Emitter, scope: Scope, frame: Frame, joined: set[int], index: int) -> list[Tokens]:
    """Return the conditions that compare a query's value, if nothing else reads it; otherwise [].

    A semi join then emits only rows whose comparison has another result, whenever the value changes.
    """
    scalar = scope.relations[index].item.scalar
    if scalar is None or not (scalar.only_filters and scalar.is_null_if_empty):
        return []
    runs = [run for run in frame.where if index in {owner for owner, _ in scope.references(run)}]
    compared = [comparison(scope, run, joined, index) for run in runs]
    pairs = [(one[0], one[2]) for one in compared if one is not None and _is_false_without_row(scope, one, index)]
    sides = [both_sides(emitter, scope, frame, index, pair) for pair in pairs]
    return runs if len(pairs) == len(runs) and all(one.is_comparable for one in sides) else []


def _is_false_without_row(scope: Scope, compared: tuple[Tokens, str, Tokens], index: int) -> bool:
    """Return whether a comparison never holds where a correlated query has no row."""
    _, symbol, side = compared
    scalar = scope.relations[index].item.scalar
    is_strict = is_null_with(Expression(side).tree, lambda node: scalar is not None and node.name == scalar.name)
    return not scope.relations[index].pairs or (symbol != "<=>" and is_strict)
