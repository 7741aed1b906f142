"""Resolve the SELECT list: names of the output columns, stars, and references to them by name or position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.jobspec.sql.names.scope import Reference, Scope, shown_name
from milepost.jobspec.sql.text import Expression, Item, Select, Tokens, aggregate_calls, read_over
from milepost.language import check_column_name, did_you_mean
from milepost.operators.over import RANKS

_WINDOW_FIELDS = {"start": "window_start", "end": "window_end"}
TIME_WINDOWS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class Output:
    """One output column.

    Attributes:
        run: its expression, or the star that it comes from. reference: the column, if it is nothing but a column.
        is_rank: whether it is a call of `RANKS` with OVER. has_over: whether it contains a function with OVER.
        has_aggregate: whether it contains an aggregate.
        from_star: whether it comes from `*`.
    """

    name: str
    run: Tokens
    reference: Reference | None = None
    is_rank: bool = False
    has_over: bool = False
    has_aggregate: bool = False
    from_star: bool = False


def select_outputs(select: Select, scope: Scope, columns_of_first: Sequence[str] = ()) -> list[Output]:
    """Return the output columns of a SELECT. Raises SqlProblem: a name is missing or occurs twice.

    Args:
        columns_of_first: columns of the first SELECT of a UNION, which name the columns of the others.
    """
    outputs: list[Output] = []
    for item in select.items:
        first_name = columns_of_first[len(outputs)] if len(outputs) < len(columns_of_first) else None
        outputs += _star(item, scope) if item.is_star else [_output(item, scope, first_name)]
    seen: dict[str, Output] = {}
    for output in outputs:
        if output.name.casefold() in seen:
            raise output.run.problem(f"the output column {output.name} occurs twice; give one of them a name with AS")
        seen[output.name.casefold()] = output
        try:
            check_column_name(output.name)
        except ValueError as problem:
            raise output.run.problem(str(problem)) from None
    return outputs


def _star(item: Item, scope: Scope) -> Iterator[Output]:
    run = item.tokens
    qualifier = None if run.kind(0) == "STAR" else run.name().casefold()
    at, excluded = 1 if qualifier is None else 3, set()
    if run.kind(at) == "EXCEPT" and run.kind(at + 1) == "L_PAREN":
        closed = run.closing(at + 1)
        excluded = {name.name().casefold() for name in run.part(at + 2, closed).split("COMMA")}
        at = closed + 1
    if at != len(run) or item.alias is not None:
        raise run.problem("expected *, t.* or * EXCEPT (columns)")
    relations = [
        (index, relation)
        for index, relation in enumerate(scope.relations)
        if qualifier in (None, relation.alias) and scope.sees(index)
    ]
    if not relations:
        known = [relation.alias for relation in scope.relations]
        raise run.problem(f"there is no relation {qualifier}; {did_you_mean(str(qualifier), known)}")
    merged = scope.merged if qualifier is None else {}
    names = {column.casefold() for _, relation in relations for column in relation.columns}
    for name in sorted(excluded - names):
        raise run.problem(f"there is no column {name} to except")
    for name, reference in merged.items():
        if name not in excluded:
            scope.used.add(reference)
            yield Output(shown_name(reference), run, reference, from_star=True)
    for index, relation in relations:
        for column in relation.columns:
            if column.casefold() not in excluded and column.casefold() not in merged:
                scope.used.add((index, column))
                yield Output(column, run, (index, column), from_star=True)


def _output(item: Item, scope: Scope, first_name: str | None) -> Output:
    from sqlglot import exp

    run = item.tokens
    if calls := read_over(run):
        if item.alias is None:
            raise run.problem(f"give {calls[0].function}() a name with AS")
        is_rank = calls[0].function in RANKS and len(calls[0].tokens) == len(run)
        return Output(item.alias, run, is_rank=is_rank, has_over=True)
    has_aggregate = bool(aggregate_calls(run))
    if (field := window_field(run, scope)) is not None:
        return Output(item.alias or field.removeprefix("window_"), run)
    reference = None if has_aggregate else scope.column(run)
    name = item.alias
    if name is None and reference is not None:
        name = shown_name(reference)
    if name is None:
        tree = Expression(run).tree
        if isinstance(tree, exp.Column):
            name = str(tree.name)
        elif isinstance(tree, exp.Dot):
            name = str(tree.expression.name)
        elif run.word(0).lower() in TIME_WINDOWS and run.kind(1) == "L_PAREN":
            name = run.word(0).lower()
        elif first_name is not None:
            name = first_name
        else:
            raise run.problem(f"give {' '.join(run.text.split())[:60]} a name with AS")
    return Output(name, run, reference, has_aggregate=has_aggregate)


def window_field(run: Tokens, scope: Scope) -> str | None:
    """Return window_start or window_end for `window.start`, `window.end` and `window(…).start`; otherwise None."""
    if run.word(0).lower() not in TIME_WINDOWS or scope.has(run.word(0).lower()):
        return None
    at = run.closing(1) + 1 if run.kind(1) == "L_PAREN" else 1
    if run.kind(at) != "DOT" or at + 2 != len(run):
        return None
    return _WINDOW_FIELDS.get(str(run.items[at + 1].text).lower())


def by_name_or_position(run: Tokens, outputs: Sequence[Output], scope: Scope, *, prefers_input: bool) -> Output | None:
    """Return the output that an item of GROUP BY or ORDER BY names, or None for any other expression.

    Args:
        prefers_input: whether a column of the input wins over an alias, as in GROUP BY.
    """
    if len(run) != 1:
        return None
    if run.kind(0) == "NUMBER":
        position = int(run.items[0].text) if run.name().isdigit() else 0
        if not 1 <= position <= len(outputs):
            raise run.problem(f"position {run.name()} is not in the SELECT list, which has {len(outputs)} items")
        return outputs[position - 1]
    if run.kind(0) in ("STRING", "STAR"):
        return None
    name = run.name().casefold()
    named = next((output for output in outputs if output.name.casefold() == name), None)
    return None if named is None or (prefers_input and scope.has(name)) else named
