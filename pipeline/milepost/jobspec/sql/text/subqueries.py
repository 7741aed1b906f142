"""Turn IN and EXISTS in WHERE into semi and anti joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from milepost.jobspec.sql.text.clauses import FromItem, Select, read_query
from milepost.jobspec.sql.text.expressions import aggregate_calls
from milepost.jobspec.sql.text.tokens import Tokens

_CONNECTING = ("OR", "AND", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NULLSAFE_EQ", "IS", "LIKE", "BETWEEN", "CASE")


def subqueries_joined(select: Select) -> Select:
    """Return a SELECT in which [NOT] EXISTS and IN, as terms of WHERE, are joins. Raises SqlProblem."""
    # SELECT id FROM orders o WHERE EXISTS (SELECT * FROM payments p WHERE p.order_id = o.id AND p.amount > 9)
    # SELECT id FROM orders o LEFT SEMI JOIN payments p ON p.order_id = o.id AND p.amount > 9
    relations, where = list(select.relations), []
    for run in select.where:
        item = _exists(run) or _in(run, relations)
        if item is None:
            where.append(run)
        else:
            relations.append(item)
    return replace(select, relations=relations, where=where)


def _exists(run: Tokens) -> FromItem | None:
    at = 1 if run.kind(0) == "NOT" else 0
    if run.word(at) != "EXISTS" or run.kind(at + 1) != "L_PAREN" or run.closing(at + 1) != len(run) - 1:
        return None
    query = read_query(run.part(at + 2, len(run) - 1))
    inner = query.selects[0]
    plain = inner.group or inner.having or inner.qualify or inner.limit or query.ctes
    if len(query.selects) > 1 or len(inner.relations) > 1 or plain or inner.relations[0].is_query:
        raise run.problem(
            "EXISTS takes SELECT … FROM one relation WHERE …; join relations in a common table expression"
        )
    for part in inner.items:
        if calls := aggregate_calls(part.tokens):
            message = "an aggregate without GROUP BY always has a row, so EXISTS of it is always true"
            raise calls[0].tokens.problem(f"{message}; write SELECT 1, or compare the aggregate in a joined query")
    join = "anti" if at else "semi"
    return replace(inner.relations[0], join=join, keyword=run, conditions=tuple(inner.where), is_exists=True)


def _in(run: Tokens, relations: Sequence[FromItem]) -> FromItem | None:
    cuts = [index for index in run.top() if run.kind(index) == "IN"]
    if (
        len(cuts) != 1
        or any(run.kind(index) in _CONNECTING for index in run.top())
        or run.kind(cuts[0] + 2) not in ("SELECT", "WITH")
    ):
        return None
    at = cuts[0]
    if run.closing(at + 1) != len(run) - 1 or not at:
        return None
    compared = run.part(0, at - 1) if run.kind(at - 1) == "NOT" else run.part(1, at) if run.kind(0) == "NOT" else None
    join = "semi" if compared is None else "anti"
    tokens = run.part(at + 2, len(run) - 1)
    query = read_query(tokens)
    name = query.selects[0].relations[0].reads
    alias = f"in_{name}"
    if any(one.alias == alias for one in relations):
        raise run.problem(f"two terms read {name}; put one of the queries into a common table expression")
    return FromItem(tokens, join, run, alias, is_query=True, equals=compared or run.part(0, at))
