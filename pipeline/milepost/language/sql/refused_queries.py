"""Refuse clauses that are not row-wise, and suggest the operator to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.language.sql.sql_parse import SqlProblem

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
    "having": "use `kind: aggregate`, then WHERE in a downstream `sql` operator",
    "qualify": "use `kind: top`",
    "windows": "use `kind: top` for the first rows, otherwise `kind: over`",
    "distinct": "use `kind: deduplicate`, or over updates `kind: aggregate` with these columns as key",
    "order": "a table has no order, so remove ORDER BY",
    "limit": "use `kind: top` with `order_by`",
    "laterals": "write explode(x) AS name in the SELECT list",
}
"""Clause -> what to write instead."""
_FIRST_ROWS = (
    "for ORDER BY … LIMIT n use `kind: top` with `order_by` and `n`, per key, or `key: []` for the first rows of all"
)
_RANKS = ("row_number", "rank", "dense_rank")
_ALLOWED = {"expressions", "from_", "where"}


def clause_name(clause: str) -> str:
    """Return the SQL name of a clause in the parser's tree."""
    return _CLAUSES.get(clause, clause.upper())


def check_clauses(select: exp.Select, input_name: str) -> None:
    """Check that a query has no clauses except SELECT, FROM and WHERE. Raises SqlProblem."""
    if select.args.get("order") and select.args.get("limit"):
        raise SqlProblem(_FIRST_ROWS)
    for clause, value in select.args.items():
        if value and clause not in _ALLOWED:
            instead = f"; {_INSTEAD[clause]}" if clause in _INSTEAD else ""
            row_wise = f"a sql operator is one row-wise SELECT … FROM {input_name} WHERE …"
            raise SqlProblem(f"{clause_name(clause)} is not allowed: {row_wise}{instead}")


def check_no_other_rows(select: exp.Select) -> None:
    """Check that a query does not read other rows: no subquery, no OVER. Raises SqlProblem."""
    from sqlglot import exp

    for node in select.walk():
        if isinstance(node, exp.Query) and node is not select:
            raise SqlProblem(_instead_of_subquery(node))
        if isinstance(node, exp.Window):
            raise SqlProblem(_instead_of_window(node))


def _instead_of_subquery(query: exp.Expression) -> str:
    """Return the message for a subquery, with the operator to use instead."""
    from sqlglot import exp

    test = query.find_ancestor(exp.In, exp.Exists)
    refused = "subqueries are not allowed: a sql operator is row-wise"
    if test is None:
        return f"{refused}; use `kind: lookup` for values of a static source, or `kind: join`"
    clause = "IN (SELECT …)" if isinstance(test, exp.In) else "EXISTS (SELECT …)"
    if isinstance(test.parent, exp.Not):
        return f"NOT {clause} is not allowed; use `kind: join` with `how: anti`: left rows without a match"
    return (
        f"{clause} is not allowed; use `kind: join` with `how: semi`: left rows with a match, or `kind: lookup` for a "
        "static source"
    )


def _instead_of_window(window: exp.Expression) -> str:
    """Return the message for a function with OVER, with the operator to use instead."""
    name = str(window.this.name or window.this.key).casefold()
    refused = f"`{name}` with OVER is not allowed: a sql operator is row-wise"
    if name in _RANKS:
        return (
            f"{refused}; use `kind: top` with PARTITION BY as `key`, ORDER BY as `order_by`, and the number as `rank`"
        )
    return f"{refused}; use `kind: over` with PARTITION BY as `key` and ORDER BY as `order_by`"
