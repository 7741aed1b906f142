"""Random specs and SQL at the borders of what a parser expects.

A spec is one of the shipped examples with a few values replaced. SQL is drawn from a small grammar, then damaged.
Everything is drawn from one `random.Random`, so that hypothesis can repeat and shrink it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any

from milepost.jobspec.load.document import read_document
from milepost.language.sql.spark_functions import ROW_WISE
from milepost_testkit.processes.processes import REPOSITORY

_NAMES = ("city", "minutes", "at", "tags", "spot", "visits", "x", "`a b`", "CITY", "visits.city", "spot.lat", "tags[0]")
_LITERALS = (
    *("1", "0", "1L", "1BD", "1.5BD", "1e400", "1E-5D", "1Y", ".5", "99999999999999999999999999999999999999999"),
    *("'a'", "'now'", "''", '"city"', "r'\\d'", "X'1F'", "X'G'", "'\ud83d'", "'\U0001f600'", "'${env:A}'", "'a' 'b'"),
    *("NULL", "TRUE", "DATE '2020-01-01'", "DATE 'today'", "TIMESTAMP '12:30'", "INTERVAL 1 DAY", "INTERVAL '1' DAY"),
    *("INTERVAL '1-2' YEAR TO MONTH", "current_date", ":p", "?", "@v", "*", "visits.*"),
)
_BINARY = (
    *("+", "-", "*", "/", "%", "||", "=", "==", "<=>", "<>", "<", "AND", "OR", "DIV", "LIKE", "RLIKE", "IN", "IS", "^"),
    *("&", "|>", "->", "=>", "::", ".", ":", "BETWEEN", "NOT IN", "IS DISTINCT FROM", "COLLATE"),
)
_TYPES = (
    "INT",
    "string",
    "timestamp",
    "decimal(10, 2)",
    "ARRAY<INT>",
    "MAP<STRING, INT>",
    "STRUCT<a: INT>",
    "DECIMAL(99",
)
_FUNCTIONS = (*sorted(ROW_WISE), "explode", "sum", "now", "row_number", "nonsense", "transform", "CAST", "count")
_CLAUSES = (
    *("WHERE {}", "GROUP BY {}", "ORDER BY {}", "HAVING {}", "LIMIT {}", "LATERAL VIEW explode({}) AS y", "QUALIFY {}"),
    *("UNION ALL SELECT {} FROM visits", "JOIN b ON {}", "WINDOW w AS ({})", "TABLESAMPLE ({} ROWS)", "-- {}", "/* {}"),
)
_DAMAGE = (
    "(",
    ")",
    ",",
    "'",
    '"',
    "`",
    ";",
    "SELECT",
    "FROM",
    "AS",
    "CASE",
    "END",
    "<",
    ">",
    "[",
    "\0",
    "\ud800",
    "/*",
)

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 1 << 63, 10**30, 1.5, float("inf"), float("nan"), [], {}, [[]], {"a": 1}, [None]),
    *("", " ", "a", "a" * 300, "a/" * 200 + "a", "\ud83d\ude00", "\udcff", "\0", "\n", "é", "*", "**", "../..", "/"),
    *("${env:A}", "${env:A:-b}", "${env:", "a/" * 2000 + "a", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *("${env:A:-${env:B}}", "s3://", "s3://[", "http://[", "file://", "a://b:c@d"),
    *("9999999999h", "0s", "1d", "1mo", "UTC", "Europe/Nowhere", "* * * * *", "99 * * * *", "@daily", "1GB", "0.0.0.0"),
    *("list<", "struct<a: int32>", "decimal(99, 1)", "timestamp[us, UTC]", "count(", "sum(x)", "a.b:C", "SELECT", "("),
)


def hostile_expression(rng: Random, depth: int = 4) -> str:
    """Return an expression that is often valid Spark SQL."""
    kind = rng.randrange(9) if depth else rng.randrange(2)
    inner: Callable[[], str] = partial(hostile_expression, rng, depth - 1)
    if kind == 0:
        return rng.choice(_NAMES)
    if kind == 1:
        return rng.choice(_LITERALS)
    if kind == 2:
        return f"{inner()} {rng.choice(_BINARY)} {inner()}"
    if kind == 3:
        return f"({inner()})"
    if kind == 4:
        return f"CAST({inner()} AS {rng.choice(_TYPES)})"
    if kind == 5:
        return f"CASE {rng.choice(('', inner()))} WHEN {inner()} THEN {inner()} {rng.choice(('ELSE 1', ''))} END"
    if kind == 6:
        return f"{rng.choice(('NOT', '-', '~', 'DISTINCT', 'EXISTS'))} {inner()}"
    if kind == 7:
        return f"{rng.choice(('x', '(x, y)'))} -> {inner()}"
    arguments = ", ".join(inner() for _ in range(rng.randrange(5)))
    return f"{rng.choice(_FUNCTIONS)}({arguments})"


def hostile_sql(rng: Random) -> str:
    """Return what may be a SELECT over `visits`."""
    items = ", ".join(
        hostile_expression(rng) + rng.choice((f" AS c{index}", f" AS c{index}", "", " AS `a b`", " c"))
        for index in range(rng.randrange(1, 4))
    )
    sql = f"SELECT {items} FROM visits"
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        sql += " " + rng.choice(_CLAUSES[:1] * 4 + _CLAUSES).format(hostile_expression(rng))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        at = rng.randrange(len(sql) + 1)
        sql = sql[:at] + rng.choice(("", rng.choice(_DAMAGE))) + sql[at + rng.randrange(6) :]
    return deep_sql(rng) if rng.random() < 0.02 else sql


def deep_sql(rng: Random) -> str:
    """Return a SELECT that is nested, chained or repeated many times."""
    count = rng.choice((40, 200, 900, 1200))
    part = rng.choice(("city", "minutes", "1", "'a'"))
    expression = rng.choice(
        (
            "(" * count + part + ")" * count,
            "coalesce(" * count + part + ")" * count,
            "CASE WHEN TRUE THEN " * count + part + " END" * count,
            "NOT " * count + part,
            "- " * count + part,
            "x -> " * count + part,
            part + "::string" * count,
            part + "[0]" * count,
            part + ".a" * count,
            f" {rng.choice(_BINARY[:14])} ".join([part] * count),
            "CAST(NULL AS " + "ARRAY<" * count + "INT" + ">" * count + ")",
            "'a' " * count,
            f"{part} AS x FROM visits UNION ALL SELECT " * count + part,
        )
    )
    return f"SELECT {expression} AS x FROM visits" + rng.choice(("", f" WHERE {expression}"))


@cache
def _examples() -> tuple[dict[str, Any], ...]:
    folders = ("config", "config/examples", "pipeline/milepost/cli/workspace/examples")
    files = [file for folder in folders for file in sorted((REPOSITORY / folder).glob("*.yaml"))]
    return tuple(read_document(file.read_text(encoding="utf-8")).value for file in files)


def hostile_spec(rng: Random) -> str:
    """Return the text of a spec: an example in which some values, keys or items were replaced, or text was damaged."""
    spec = copy.deepcopy(rng.choice(_examples()))
    for _ in range(rng.choice((1, 1, 2, 3))):
        _replace_one(rng, spec)
    text = json.dumps(spec)
    if rng.random() < 0.15:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(
            ("\t", "&a ", "*a ", "!!x ", "\\U99999999", "\ufffe", "[" * 2000, "%", "---\n", "0x" + "f" * 9999)
        )
        text += json.dumps(spec)[at + rng.randrange(3) :]
    return text


def _replace_one(rng: Random, spec: dict[str, Any]) -> None:
    """Replace one value, or the name of one key, anywhere in a spec."""
    places = list(_places(spec))
    holder, key = rng.choice(places)
    if isinstance(holder, dict) and rng.random() < 0.1:
        holder[rng.choice([value for value in _VALUES if isinstance(value, str)])] = holder.pop(key)
    elif key == "sql" or (isinstance(holder[key], str) and rng.random() < 0.1):
        holder[key] = hostile_sql(rng) if rng.random() < 0.5 else hostile_expression(rng)
    else:
        holder[key] = copy.deepcopy(rng.choice(_VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield value, key
        yield from _places(held)
