"""Resolve the expressions of a SELECT, so that its steps know which columns they read."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.jobspec.sql.names import TIME_WINDOWS, Output, Reference, Scope, by_name_or_position, equality, shown_name
from milepost.jobspec.sql.selects.ranking import Ranking
from milepost.jobspec.sql.text import Expression, Select, Tokens, aggregate_calls, check_aggregates, conjuncts
from milepost.language.sql import SqlProblem


def resolve_all(
    select: Select, scope: Scope, outputs: Sequence[Output], ranking: Ranking | None, *, is_grouped: bool
) -> None:
    """Resolve all expressions but those of joins. Raises SqlProblem."""
    runs = [output.run for output in outputs if not output.from_star and (ranking is None or not output.is_rank)]
    runs += select.where
    renamed = [one for one in outputs if one.reference is None or shown_name(one.reference) != one.name]
    aliases = {output.name.casefold() for output in renamed}
    if select.having is not None:
        runs.append(select.having)
    for run in select.group:
        if by_name_or_position(run, outputs, scope, prefers_input=True) is None and run.word(0) != "ALL":
            runs.append(run)
    if ranking is not None:
        runs += ranking.expressions(outputs, scope)
    for run in runs:
        if is_grouped and run.word(0).lower() in TIME_WINDOWS and run.kind(1) != "L_PAREN":
            continue
        try:
            _references(run, scope)
        except SqlProblem as problem:
            named = [token for token in run.items if str(token.text).casefold() in aliases]
            if named and "there is no column" in problem.reason:
                hint = "; a name that SELECT gives is not visible here: repeat its expression, or use a common "
                raise SqlProblem(f"{problem.reason}{hint}table expression", problem.line, problem.column) from None
            raise
        check_aggregates(run)
        if not is_grouped:
            _check_windows(run)
    for run in select.where:
        if calls := aggregate_calls(run):
            raise calls[0].tokens.problem(f"{calls[0].tokens.text} in WHERE: a condition on an aggregate is HAVING")


def _check_windows(run: Tokens) -> None:
    """Raise SqlProblem for a window over time, which only GROUP BY takes."""
    for at in range(len(run)):
        name = run.word(at).lower()
        if name in TIME_WINDOWS and run.kind(at + 1) == "L_PAREN" and run.kind(at - 1) != "DOT":
            raise run.problem(f"{name} groups rows by time; write GROUP BY {name}(…)", at)


def _references(run: Tokens, scope: Scope) -> None:
    expression = Expression(run)
    for parts in expression.columns():
        first = parts[0].name.lower()
        if first in TIME_WINDOWS and len(parts) == 2 and not scope.has(first):
            continue
        scope.resolve(expression, parts)


def columns_outside(scope: Scope) -> set[Reference]:
    """Return the columns that are read elsewhere than in the equalities of their own join, after resolving joins."""
    outside = set(scope.used)
    for index, relation in enumerate(scope.relations):
        item = relation.item
        if item.join == "explode":
            outside |= scope.references(item.tokens)
            continue
        read: set[Reference] = set()
        for run, column in relation.pairs:
            read |= scope.references(run)
            scope.used.add((index, column))
        if item.equals is not None:
            read |= scope.references(item.equals)
            scope.used.add((index, relation.columns[0]))
            if len(relation.columns) > 1 + len({column for _, column in relation.pairs}):
                instead = "write EXISTS (SELECT 1 FROM … WHERE inner.a = outer.a AND inner.b = outer.b)"
                raise item.tokens.problem(f"IN takes one column, got {len(relation.columns)}; {instead}")
        if item.scalar is not None and not item.scalar.is_null_if_empty:
            scope.used |= {(index, column) for column in item.scalar.calls}
        scope.shown = index
        for run in (*conjuncts(item.on), *item.conditions, *([item.match] if item.match else [])):
            columns = scope.references(run)
            is_key = equality(scope, run, set(range(index)), index) is not None
            read |= {one for one in columns if one[0] != index} if is_key else columns
        scope.shown = None
        for name in item.using:
            folded = name.name().casefold()
            read.add(relation.using[folded])
            scope.used |= {relation.using[folded], (index, relation.folded[folded])}
        outside |= {one for one in read if item.join in ("inner", "comma") or one[0] != index}
    return outside
