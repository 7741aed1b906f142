"""Random jobs of statements and operators that read each other, and their edits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from milepost_testkit.models.data.random_sql import FRAMES, Draws
from milepost_testkit.models.data.random_tables import KINDS


@dataclass(frozen=True)
class RandomJob:
    """A job of statements and operators of the spec that read each other.

    Attributes:
        queries: table or view -> its query, in an order in which each reads earlier ones. DuckDB answers all of them.
        statements: those of `queries` that the SQL file has. views: the temporary ones of these.
        operators: operators of the spec; each of those that a sink shows has its name in `queries`.
        hidden: entries of `queries` without a table. draws: those that the job was made of.
        created: statement -> its text, of those that DuckDB's query does not state.
        renamed: statement, or statement.name of a common table expression -> its former name.
    """

    draws: Draws = field(compare=False)
    queries: dict[str, str]
    operators: tuple[dict[str, Any], ...] = ()
    views: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    created: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        return ";\n".join(
            self.created.get(name)
            or f"CREATE {'TEMPORARY' if name in self.views else 'MATERIALIZED'} VIEW {name} AS {query}"
            for name, query in self.queries.items()
            if name not in self.own
        )

    @property
    def keys(self) -> dict[str, Any]:
        """The operators and sinks of the spec itself, and its former names."""
        shown = [one["uid"] for one in self.operators if one["uid"] not in self.hidden]
        sinks = [{"name": name, "input": name, "format": "parquet", "path": f"lake/{name}", "mode": "upsert"}
                 for name in shown]  # fmt: skip
        return {"operators": list(self.operators), "sinks": sinks, "renamed": self.renamed}

    @property
    def tables(self) -> dict[str, str]:
        """Entry of `queries` -> its table, which keeps the first name of a renamed statement."""
        return {name: self._first_name(name) for name in self.queries if name not in self.views | self.hidden}

    @property
    def own(self) -> frozenset[str]:
        """The operators of the spec itself."""
        return frozenset(operator["uid"] for operator in self.operators)

    def _first_name(self, name: str) -> str:
        return self._first_name(self.renamed[name]) if name in self.renamed else name


def random_job(rng: Draws) -> RandomJob:
    """Return a job: `sums` and `newest` hold current rows. Statements and operators of the spec read these."""
    having = rng.choice(
        ("", " HAVING count(*) > 2", " HAVING max(amount) > 20", " HAVING count(*) > 1 AND max(id) > 9")
    )
    key = rng.choice(("customer", "customer", "coalesce(customer, 'none')"))
    total = rng.choice(("count(*) + 1", "max(id) - count(*)", "count(*)"))
    where = rng.choice(("", "", "", " WHERE amount > 5", " WHERE quantity IS NOT NULL"))
    call = rng.choice(("max(amount)", "max(amount)", "min(amount)"))
    grouped = f"count(*) AS n, {call} AS most, {total} AS total, max(id) AS last FROM orders{where}"
    order = rng.choice(("id DESC", "id DESC", "amount DESC, id"))
    shown = rng.choice(("amount", "amount + 1", "CASE WHEN amount > 10 THEN amount ELSE 0 END"))
    queries = {
        "sums": f"SELECT {key} AS who, {grouped} GROUP BY {key}{having}",
        "newest": f"SELECT customer, id, {shown} AS amount FROM orders "
        f"QUALIFY row_number() OVER (PARTITION BY customer ORDER BY {order}) = 1",
    }
    readers = rng.sample(_READERS, 2)
    for number, reader in enumerate(readers):
        queries[f"reader{number}"] = reader(rng)
    queries["again"] = _again(rng, f"reader{rng.randrange(2)}" if readers[0] in (_counts, _valued_sums) else "sums")
    views = rng.choice(({"sums"}, {"newest"}, set(), set()))
    own, operators = rng.choice((_over_updates, _over_appended, _over_a_source))(rng, queries)
    hidden = set() if own else {operator["uid"] for operator in operators}
    views |= {"large"} & queries.keys()
    hidden |= {"cut"} & queries.keys()
    created = {}
    if rng.choice((True, False)):
        created["alone"], queries["alone"] = KINDS[rng.choice(ALONE)](rng, "alone")
    return RandomJob(rng, queries, tuple(operators), frozenset(views), frozenset(hidden), created)


def _over_updates(rng: Draws, queries: dict[str, str]) -> tuple[bool, list[dict[str, Any]]]:
    """Add SQL of the spec over `sums`, an aggregate over it, and a statement over that."""
    value = rng.choice(("n", "n % 3", "n + last", "total"))
    queries["y"] = f"SELECT who, n, {value} AS x FROM sums{_filter(rng)}"
    least = rng.choice(("max(n)", "min(n)"))
    queries["yc"] = f"SELECT x, count(*) AS c, {least} AS m FROM y GROUP BY x"
    queries["over_yc"] = f"SELECT c, count(*) AS k FROM yc{_filter(rng, 'c')} GROUP BY c"
    y = {"uid": "y", "kind": "sql", "inputs": ["sums"], "sql": queries["y"]}
    calls = {"c": "count(*)", "m": least}
    return True, [y, {"uid": "yc", "kind": "aggregate", "inputs": ["y"], "key": ["x"], "aggregates": calls}]


def _over_appended(rng: Draws, queries: dict[str, str]) -> tuple[bool, list[dict[str, Any]]]:
    """Add a view of appended rows, an aggregate of the spec over it, and a statement over that."""
    return True, [_counted(rng, queries, "large")]


def _over_a_source(rng: Draws, queries: dict[str, str]) -> tuple[bool, list[dict[str, Any]]]:
    """Add SQL of the spec over a source, an aggregate over it, and a statement over that, which alone has a verdict."""
    per = _counted(rng, queries, "cut")
    return False, [{"uid": "cut", "kind": "sql", "inputs": ["orders"], "sql": queries["cut"]}, per]


def _counted(rng: Draws, queries: dict[str, str], rows: str) -> dict[str, Any]:
    """Add a query of large orders, and one over the aggregate that is returned, an operator of the spec over it."""
    least = rng.choice(("5", "5", "10"))
    queries[rows] = f"SELECT id, customer, amount FROM orders WHERE amount > {least}"
    queries["per"] = f"SELECT customer, count(*) AS n, max(amount) AS most FROM {rows} GROUP BY customer"
    queries["over_per"] = f"SELECT n, count(*) AS k, max(most) AS m FROM per{_filter(rng)} GROUP BY n"
    calls = {"n": "count(*)", "most": "max(amount)"}
    return {"uid": "per", "kind": "aggregate", "inputs": [rows], "key": ["customer"], "aggregates": calls}


def _filter(rng: Draws, column: str = "n") -> str:
    return rng.choice(("", f" WHERE {column} > 2", f" WHERE {column} <> 4", f" WHERE {column} % 2 = 0"))


def _shown_sums(rng: Draws) -> str:
    value = rng.choice(("n", "n * 2", "n + last", "CASE WHEN n > 3 THEN 'many' ELSE who END"))
    return f"SELECT who, {value} AS x FROM sums{_filter(rng)}"


def _counts(rng: Draws) -> str:
    by = rng.choice(("n", "n % 3", "n > 4"))
    having = rng.choice(("", " HAVING count(*) > 1", " HAVING max(last) > 12"))
    return f"SELECT {by} AS x, count(*) AS c, max(last) AS m FROM sums{_filter(rng)} GROUP BY {by}{having}"


def _best(rng: Draws) -> str:
    order = rng.choice(("n DESC, last", "last DESC", "n, last"))
    return f"SELECT who, n FROM sums{_filter(rng)} ORDER BY {order} LIMIT {rng.randrange(1, 5)}"


def _both(rng: Draws) -> str:
    kind, value = rng.choice(("JOIN", "LEFT JOIN")), rng.choice(("l.amount", "l.id", "l.id + s.n"))
    more = rng.choice(("", " AND l.id < s.last + 1", " AND l.id > 5"))
    where = rng.choice(("", " WHERE s.n > 2", " WHERE s.who <> 'c1'"))
    query = f"SELECT s.who, s.n, {value} AS x FROM sums s {kind} newest l ON l.customer = s.who{more}{where}"
    return _with_aliases(rng, query)


def _with_aliases(rng: Draws, query: str) -> str:
    """Give relation `s`, `sums`, and relation `l`, `newest`, other aliases or none, which changes no operator."""
    first, second = rng.choice((("s", "l"), ("s", "l"), ("a", "b"), ("sums", "newest"), ("sums", "l")))
    for alias, name in (("s", first), ("l", second)):
        query = re.sub(rf"\b{alias}\.", f"{name}.", query)
    return query.replace("FROM sums s ", f"FROM sums {first} ").replace("JOIN newest l ", f"JOIN newest {second} ")


def _missing(rng: Draws) -> str:
    word = rng.choice(("EXISTS", "NOT EXISTS"))
    more = rng.choice(("", " AND l.amount > 10", " AND l.id > 3"))
    where = f" WHERE {word} (SELECT 1 FROM newest l WHERE l.customer = s.who{more})"
    return f"SELECT who, most FROM sums s{where}{rng.choice(('', ' AND n > 2'))}"


def _first_of_both(rng: Draws) -> str:
    where = rng.choice(("", " WHERE l.amount > 5"))
    joined = _with_aliases(rng, f"SELECT s.who, s.n, l.id FROM sums s JOIN newest l ON l.customer = s.who{where}")
    by = rng.choice(("n", "n % 2"))
    return f"WITH j AS ({joined}) SELECT {by} AS x, count(*) AS c, min(id) AS least FROM j GROUP BY {by}"


def _valued_sums(rng: Draws) -> str:
    """Return a query with a function over the sums of other customers. `last` is unique, so it orders them."""
    partition = rng.choice(("", "PARTITION BY n % 2 ", "PARTITION BY total "))
    over = f"({partition}ORDER BY {rng.choice(('last', 'last DESC', 'n, last'))}{{}})"
    value = rng.choice((f"last - lag(last) OVER {over.format('')}", f"row_number() OVER {over.format('')}",
                        f"max(n) OVER {over.format(rng.choice(FRAMES))}",
                        f"count(*) OVER {over.format(rng.choice(FRAMES))}"))  # fmt: skip
    return f"SELECT who, {rng.choice(('n', 'total'))} AS own, {value} AS x FROM sums{_filter(rng)}"


def _again(rng: Draws, read: str) -> str:
    if read == "sums":
        return f"SELECT total, count(*) AS c FROM sums{_filter(rng)} GROUP BY total"
    return f"SELECT x, count(*) AS c FROM {read} GROUP BY x"


def _outer_sums(rng: Draws) -> str:
    how = rng.choice(("RIGHT", "FULL"))
    on = rng.choice(("USING (who)", "ON s.who = l.who", "ON s.who = l.who AND l.id <= s.last"))
    columns = "who, n, id" if "USING" in on else "s.who, l.who AS other, n, id"
    sides = (
        f"s AS (SELECT who, n, last FROM sums WHERE who IS NOT NULL{rng.choice(('', ' AND n > 2'))}), "
        "l AS (SELECT customer AS who, id FROM newest WHERE customer IS NOT NULL)"
    )
    return f"WITH {sides} SELECT {columns} FROM s {how} JOIN l {on}"


def _compared_sums(rng: Draws) -> str:
    first, second = rng.choice(("n", "total", "n % 3")), rng.choice(("n", "n + 1", "last % 7"))
    word = rng.choice(("INTERSECT", "EXCEPT", "UNION"))
    return f"SELECT {first} AS x FROM sums{_filter(rng)} {word} SELECT {second} FROM sums{_filter(rng)}"


def _far_sums(rng: Draws) -> str:
    call, sign = rng.choice(("avg", "max", "min")), rng.choice((">", "<=", "<>"))
    read = rng.choice(("sums", "newest"))
    value = "n" if read == "sums" else "id"
    if rng.choice((True, False)):
        return f"SELECT who, n FROM sums WHERE n {sign} (SELECT {call}({value}) FROM {read})"
    return f"SELECT who, (SELECT {call}(l.id) FROM newest l WHERE l.customer = s.who) AS x, n FROM sums s{_filter(rng)}"


def _ranked_sums(rng: Draws) -> str:
    call, partition = rng.choice(("rank()", "dense_rank()")), rng.choice(("", "PARTITION BY n % 2 "))
    shown = "n % 2 AS part, " if partition else ""
    over = f"{call} OVER ({partition}ORDER BY {rng.choice(('n DESC', 'total', 'most DESC'))})"
    return f"SELECT {shown}who, {over} AS x FROM sums{_filter(rng)} QUALIFY x <= {rng.randrange(1, 4)}"


def _distinct_sums(rng: Draws) -> str:
    return f"SELECT DISTINCT {rng.choice(('n', 'n % 3', 'total'))} AS x FROM sums{_filter(rng)}"


def _all_sums(rng: Draws) -> str:
    return f"SELECT {rng.choice(('count(*)', 'max(n)', 'sum(total)'))} AS x, min(last) AS m FROM sums{_filter(rng)}"


def random_reader(rng: Draws) -> str:
    """Return a query over `sums`, and perhaps `newest`."""
    return rng.choice(_READERS)(rng)


_READERS = (
    _shown_sums,
    _counts,
    _best,
    _both,
    _missing,
    _first_of_both,
    _valued_sums,
    _outer_sums,
    _compared_sums,
    _far_sums,
    _ranked_sums,
    _distinct_sums,
    _all_sums,
)
ALONE = (
    "windows",
    "sessions",
    "joins with bounds",
    "lookups",
    "as-of joins",
    "flows",
    "flows of some columns",
    "joins with bounds of rows",
    "explode",
    "set operations",
    "aggregates",
)
"""Kinds of the statement that reads sources alone. An edit of most of them is a backfill."""
