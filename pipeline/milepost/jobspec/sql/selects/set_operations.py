"""Compile INTERSECT and EXCEPT: count each row per SELECT, and compare the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.text import Fragment, Query
from milepost.language.sql import quote

Branch = tuple[str, list[Column], list[Fragment]]


def compared(emitter: Emitter, name: str, query: Query, branches: Sequence[Branch]) -> str:
    """Add the steps of an INTERSECT or EXCEPT; return the last, `name`. Nulls are equal, as in GROUP BY.

    Args:
        branches: (node, columns, conditions) of each SELECT.
    """
    # a EXCEPT b      rows_1 > 0 AND rows_2 = 0
    # a EXCEPT ALL b  rows_1 - rows_2 times
    at, columns = query.tokens, [column.name for column in branches[0][1]]

    def text(sql: str) -> Fragment:
        return Fragment(((sql, at.start),))

    select = _free("select_number", columns)
    numbered = [
        (node, [*own, Column(select, text(str(number)))], where)
        for number, (node, own, where) in enumerate(branches, 1)
    ]
    rows = emitter.select_all(f"{name}__rows", numbered, at)
    counts = [_free(f"rows_{number}", columns) for number in range(1, len(branches) + 1)]
    aggregates = {
        count: f"count(*) filter (where {quote(select)} = {number})" for number, count in enumerate(counts, 1)
    }
    operator = {"uid": f"{name}__distinct", "kind": "aggregate", "inputs": [rows], "key": columns}
    node = emitter.add(operator | {"aggregates": aggregates}, at)
    first, *others = map(quote, counts)
    plain = [Column.plain(column, at.start) for column in columns]
    if query.distinct:
        sign = ">" if query.operation == "INTERSECT" else "="
        return emitter.sql(name, node, plain, [text(f"{first} > 0"), *(text(f"{one} {sign} 0") for one in others)], at)
    times = f"least({first}, {', '.join(others)})" if query.operation == "INTERSECT" else " - ".join([first, *others])
    number = Column(_free("number", columns), text(f"explode(sequence(1, {times}))"))
    node = emitter.sql(f"{name}__times", node, [*plain, number], [text(f"{times} > 0")], at)
    return emitter.sql(name, node, plain, [], at)


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that no column has."""
    folded = {one.casefold() for one in taken}
    while name in folded:
        name += "_"
    return name
