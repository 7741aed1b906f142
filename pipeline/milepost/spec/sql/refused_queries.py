"""Parts of a query that a row-wise SELECT cannot have, and the operator that does what each is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.spec.sql.sql_parse import SqlProblem

if TYPE_CHECKING:
    from sqlglot import exp

_CLAUSES = {
    "distinct": "DISTINCT",
    "joins": "JOIN",
    "laterals": "LATERAL VIEW",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "hint": "a hint",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "into": "INTO",
}
_INSTEAD = {
    "joins": "use `kind: join`, `asof` or `lookup`",
    "group": "use `kind: aggregate` or `window`",
    "having": "use `kind: aggregate`, and WHERE in a `sql` operator that reads it",
    "qualify": "use `kind: top`",
    "windows": "use `kind: top` for ranks",
    "distinct": "use `kind: deduplicate`, or over updates `kind: aggregate` with these columns as its key",
    "order": "a table has no order, so leave ORDER BY out",
    "limit": "use `kind: top` with an order",
    "laterals": "write explode(x) AS name in the SELECT list",
}
"""Clause -> what to write instead."""
_FIRST_ROWS = (
    "ORDER BY … LIMIT n is `kind: top` with `order_by` and `n`, for each key; to take the first rows of all, give all "
    "rows the same key, 1 AS all_rows, in a `sql` operator before it"
)
_RANKS = ("row_number", "rank", "dense_rank")
_ALLOWED = {"expressions", "from_", "where"}


def clause_name(clause: str) -> str:
    """Return what SQL calls a clause of the parser's tree."""
    return _CLAUSES.get(clause, clause.upper())


def check_clauses(select: exp.Select, input_name: str) -> None:
    """Check that a query is SELECT … FROM … WHERE … alone. Raises SqlProblem."""
    if select.args.get("order") and select.args.get("limit"):
        raise SqlProblem(_FIRST_ROWS)
    for clause, value in select.args.items():
        if value and clause not in _ALLOWED:
            instead = f"; {_INSTEAD[clause]}" if clause in _INSTEAD else ""
            row_wise = f"a sql operator is one row-wise SELECT … FROM {input_name} WHERE …"
            raise SqlProblem(f"{clause_name(clause)} is not allowed: {row_wise}{instead}")


def check_one_row(select: exp.Select) -> None:
    """Check that a query reads no other rows than its own: no subquery, no OVER. Raises SqlProblem."""
    from sqlglot import exp

    for node in select.walk():
        if isinstance(node, exp.Query) and node is not select:
            raise SqlProblem(_instead_of_subquery(node))
        if isinstance(node, exp.Window):
            raise SqlProblem(_instead_of_window(node))


def _instead_of_subquery(query: exp.Expression) -> str:
    """Return the problem of a subquery: which operator does what it is for."""
    from sqlglot import exp

    test = query.find_ancestor(exp.In, exp.Exists)
    refused = "subqueries are not allowed: a sql operator is row-wise"
    if test is None:
        return f"{refused}; use `kind: lookup` for the values of a static source, or `kind: join`"
    written = "IN (SELECT …)" if isinstance(test, exp.In) else "EXISTS (SELECT …)"
    if isinstance(test.parent, exp.Not):
        return f"NOT {written} is not allowed; use `kind: join` with `how: anti`: left rows that pair with no right one"
    return (
        f"{written} is not allowed; use `kind: join` with `how: semi`: left rows that pair with a right one, or "
        "`kind: lookup` for a static source"
    )


def _instead_of_window(window: exp.Expression) -> str:
    """Return the problem of a function with OVER: which operator does what it is for."""
    name = str(window.this.name or window.this.key).casefold()
    refused = f"`{name}` with OVER is not allowed: a sql operator is row-wise"
    if name in _RANKS:
        return f"{refused}; use `kind: top`: PARTITION BY is its `key`, ORDER BY its `order_by`, and `rank` the number"
    return f"{refused}; use `kind: process` for values that depend on the order of rows, such as running sums"
