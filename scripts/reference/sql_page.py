"""The reference of the SQL of a job, from the compiler's own tables."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.jobspec.sql.flows import FLOW_CLAUSES, REFUSED_FLOW_CLAUSES
from milepost.jobspec.sql.statements import PROPERTIES, REFUSED_STATEMENTS, STATEMENTS
from milepost.jobspec.sql.text import AGGREGATES, OVER, REFUSED_CLAUSES, REFUSED_PHRASES
from scripts.reference.markdown import note

_INTRODUCTION = """
The SQL file of a job has CREATE statements, separated by semicolons, in any order. Each has one query of Spark SQL.
[Write a job in SQL](../how-to/sql.md) is the guide. `milepost lint JOB` shows the steps, the mode, the key and the
state of each statement, and `milepost lint JOB --as-yaml` the operators that it is compiled into.

A query reads sources, other statements, operators of the spec, and its own common table expressions. Names are
resolved as in Spark: without regard to case, GROUP BY prefers a column of the input to an alias, ORDER BY the alias.
"""
_OPERATORS = {
    "SELECT, WHERE, CASE, functions over one row, LATERAL VIEW explode, UNION ALL": "`sql`",
    "SELECT DISTINCT, UNION": "`deduplicate` over append rows, `aggregate` over updates",
    "INTERSECT [ALL], EXCEPT [ALL], MINUS": "`aggregate`, which counts each row per SELECT",
    "GROUP BY, aggregates, FILTER, HAVING, GROUP BY ALL": "`aggregate`",
    "GROUP BY window(time, …) or session_window(time, gap); window.start, window.end": "`window`",
    "[LEFT, RIGHT, FULL, SEMI, ANTI] JOIN with equalities and constant bounds on event times": "`join` with `within`",
    "the same with a time of the left row as upper bound: `b.at BETWEEN a.at AND a.expires`": "`join` with `within`",
    "other [LEFT, RIGHT, FULL, SEMI, ANTI, CROSS] JOIN": "`join`",
    "[NOT] EXISTS (SELECT …) and [NOT] IN (SELECT …) as terms of WHERE": "`join`",
    "a query in an expression, of one aggregate without GROUP BY: `(SELECT max(x) FROM …)`": "`aggregate`, `join`",
    "[LEFT] JOIN with a source that has `static: true`": "`lookup`",
    "[LEFT] ASOF JOIN … MATCH_CONDITION (left.time >= right.time)": "`asof`",
    "QUALIFY row_number() OVER (PARTITION BY … ORDER BY … DESC) = 1, over append rows": "`latest`",
    "QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n, or WHERE of the query around it": "`top`",
    "rank() or dense_rank() in place of row_number()": "`top` with `ties`",
    "ORDER BY … LIMIT n": "`top`",
    "functions with OVER (PARTITION BY … ORDER BY … [ROWS …]) in the SELECT list": "`over`",
    "CREATE FLOW … AS AUTO CDC INTO … STORED AS SCD TYPE 1, or TYPE 2": "`latest`, or `history`",
    "a view whose rows are inserted and retracted, such as those of a join over updates": "`materialize` by its key",
}
_RULES = """
## Modes and keys

* Rows of sources, filters, windows, time-bounded joins and `SELECT DISTINCT` are appended. Rows of GROUP BY and of
  rankings are updates by a key: the GROUP BY columns, or the PARTITION BY columns, with the rank for `<= n`. A ranking
  `<= n` that does not select its rank, and `rank()`, have the key of what they read.
* `CREATE STREAMING TABLE` takes appended rows only. `CREATE MATERIALIZED VIEW` upserts updates by their key, which the
  query must select, and appends appended rows.
* The key of a join is that of the side whose partner is unique per join key, otherwise both. Rows of a source have no
  key before a GROUP BY, a ranking or DISTINCT gives them one. A FULL JOIN has a key if a unique column of one side is
  never null: filter it by IS NOT NULL.
* A join compares numbers of different types as Spark does: both sides are cast to the type that holds them.
* A query in an expression may compare columns of its own with columns of the query around it by `=`. Over no rows its
  counts are 0 and its other aggregates null. One that WHERE only compares is compared inside the join, so that a new
  value changes only rows whose comparison has another result. Without an `=` the join runs in one task.
* `x NOT IN (SELECT y …)` needs `x IS NOT NULL` in the WHERE of the query, and `y IS NOT NULL` in that of the subquery.
* A join without time bounds is appended if both sides are, and it is INNER or SEMI. Its rows have no event time.
* The event time of a query is the event time column of its input, if it is selected under its name.
* A decimal has the type that Spark gives it: `sum` of `decimal(p,s)` is `decimal(p+10,s)`, `avg` is `decimal(p+4,s+4)`.
  This needs an argument of columns, numbers, arithmetic, CASE, coalesce and CAST. Of another function, such as
  `round(x, 2)`, write `CAST(round(x, 2) AS DECIMAL(12, 2))`; without it `sum` is `decimal(38,s)` and `avg` a double.
* A query in FROM may have no name. Its steps have that of what it reads first, `query_orders`, whatever its alias. Two
  of one relation need names of their own.
* ORDER BY without LIMIT has no effect: a table has no order.
* Functions with OVER need rows with a key, which becomes the key of their rows, with PARTITION BY. Rows that tie in
  ORDER BY are in the order of this key. Without ROWS a function reads the rows up to the last one that ties with the
  current row, or without ORDER BY the whole partition. An expression of PARTITION BY that the SELECT list also has is
  part of the key of a view. All functions with OVER of a SELECT have the same PARTITION BY
  and ORDER BY, and GROUP BY, QUALIFY and LIMIT are in another SELECT.
"""
_STATEMENT_NOTES = """\
`CREATE OR REFRESH …` means the same. `PARTITIONED BY (columns)` is `partition_by` of the table of a streaming table.
`STREAM name` and `STREAM(name)` mean `name`. A list `(a, b)` after the name of a statement or a common table
expression, or after the alias of a query in FROM, names the columns of the query.
"""
_ALSO_REFUSED = """\
Also refused, each at its line and column: NOT IN
where a null would decide, other queries in expressions, RANGE and GROUPS
frames, IGNORE NULLS, FILTER with OVER, OVER outside the SELECT list and
QUALIFY, lateral aliases, aliases in HAVING,
NATURAL, and an output column that occurs twice.
"""


def sql_page() -> str:
    """Return the page."""
    clauses = {one.replace("_", " "): two for one, two in REFUSED_CLAUSES.items()}
    phrases = {one.replace("#", "3"): two for one, two in REFUSED_PHRASES.items()}
    refused = {**REFUSED_STATEMENTS, **REFUSED_FLOW_CLAUSES, **clauses, **phrases}
    parts = [
        "# SQL of a job\n",
        note("the tables of the SQL compiler"),
        _INTRODUCTION,
        _table("Statements", "Statement", "Creates", _code(STATEMENTS)),
        _STATEMENT_NOTES,
        _table("Clauses of CREATE FLOW name AS AUTO CDC INTO table", "Clause", "Meaning", _code(FLOW_CLAUSES)),
        _table("Options in TBLPROPERTIES", "Option", "Meaning", _code(PROPERTIES)),
        _table("What SQL becomes", "SQL", "Operator", _OPERATORS),
        _RULES,
        _table("Aggregates", "Function", "In the operator", _functions(AGGREGATES)),
        _table("Functions with OVER", "Function", "In the operator", _functions(OVER)),
        _table("Refused", "SQL", "What to do", _code(refused)),
        _ALSO_REFUSED,
    ]
    return "\n".join(parts)


def _functions(functions: Mapping[str, str]) -> dict[str, str]:
    return _code({one: f"`{two}`" for one, two in functions.items()})


def _code(rows: Mapping[str, str]) -> dict[str, str]:
    return {f"`{one}`": two for one, two in rows.items()}


def _table(title: str, left: str, right: str, rows: Mapping[str, str]) -> str:
    lines = [f"## {title}\n", f"| {left} | {right} |", "|---|---|"]
    lines += [f"| {one} | {two.replace('|', chr(92) + '|')} |" for one, two in rows.items()]
    return "\n".join(lines) + "\n"
