"""Random statements of each kind that a job's SQL has, with DuckDB's query for the table of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost_testkit.models.data.random_flows import flow, partial_flow
from milepost_testkit.models.data.random_sql import Draws, random_query


@dataclass(frozen=True)
class RandomTable:
    """A table over `orders`, `payments` and `countries`.

    Attributes:
        kind: of the statement, for a summary. statement: the text that creates it. answer: DuckDB's query.
    """

    kind: str
    name: str
    statement: str
    answer: str


_WHERE = ("", "", " WHERE amount > 9", " WHERE quantity IS NOT NULL", " WHERE id % 3 > 0 AND customer <> 'c2'")
_FILTERS = ("amount > 9", "quantity > 1", "customer IS NOT NULL", "id % 4 < 3", "amount BETWEEN 4 AND 25")
_CURRENT = (
    "current AS (SELECT id, customer, amount, quantity FROM orders "
    "QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1)"
)
_MEAN = "CAST(sum({0}) / count({0}) AS DECIMAL(14, 6))"
"""The mean of decimals in DuckDB, whose own one is a double."""
_CALLS = (
    ("count(*)", "count(*)"),
    ("sum(quantity)", "sum(quantity)"),
    ("max(amount)", "max(amount)"),
    ("min(customer)", "min(customer)"),
    ("count(DISTINCT quantity)", "count(DISTINCT quantity)"),
    ("count_if(amount > 9)", "count(*) FILTER (WHERE amount > 9)"),
    ("min_by(amount, id)", "arg_min(amount, id)"),
    ("max_by(amount, id)", "arg_max(amount, id)"),
    ("bool_or(quantity > 3)", "bool_or(quantity > 3)"),
    ("some(amount > 29)", "bool_or(amount > 29)"),
    ("every(amount > 1)", "bool_and(amount > 1)"),
    ("bool_and(quantity < 4)", "bool_and(quantity < 4)"),
    ("round(stddev(quantity), 6)", "round(stddev_samp(quantity), 6)"),
    ("round(variance(id), 6)", "round(var_samp(id), 6)"),  # a variance of few integers is never half of a seventh digit
    ("avg(quantity)", "avg(quantity)"),
    ("mean(id)", "avg(id)"),
    ("avg(amount)", _MEAN.format("amount")),
    ("first(id)", "arg_min(id, ordered_at)"),
    ("last(amount)", "arg_max(amount, ordered_at)"),
    ("sum(id) FILTER (WHERE quantity > 2)", "sum(id) FILTER (WHERE quantity > 2)"),
)
"""Aggregate in Spark's words, in DuckDB's."""
_VALUES = (
    ("customer LIKE 'c%'", "customer LIKE 'c%'"),
    ("substring(customer, 2, 1)", "substring(customer, 2, 1)"),
    ("CAST(amount AS DOUBLE)", "CAST(amount AS DOUBLE)"),
    ("CAST(quantity AS STRING)", "CAST(quantity AS VARCHAR)"),
    ("extract(MINUTE FROM ordered_at)", "extract(MINUTE FROM ordered_at)"),
    ("date_trunc('HOUR', ordered_at)", "date_trunc('hour', ordered_at)"),
    ("ordered_at + INTERVAL 5 MINUTES", "ordered_at + INTERVAL 5 MINUTES"),
    ("quantity <=> 2", "quantity IS NOT DISTINCT FROM 2"),
    ("if(quantity > 2, 'large', customer)", "CASE WHEN quantity > 2 THEN 'large' ELSE customer END"),
    ("nvl(quantity, -1)", "coalesce(quantity, -1)"),
    ("id BETWEEN 3 AND 40", "id BETWEEN 3 AND 40"),
    ("NOT quantity IN (1, 3)", "quantity NOT IN (1, 3)"),
    ("-quantity", "-quantity"),
    ("round(amount * 1.5, 1)", "round(amount * 1.5, 1)"),
    ("lower(concat(customer, '!'))", "lower(customer || '!')"),
)


def random_table(rng: Draws, name: str) -> RandomTable:
    """Return a table of a random kind."""
    kind = rng.choice((*KINDS, "query", "query", "query"))
    if kind == "query":
        query = random_query(rng)
        return RandomTable(kind, name, f"CREATE MATERIALIZED VIEW {name} AS {query}", query)
    statement, answer = KINDS[kind](rng, name)
    return RandomTable(kind, name, statement, answer)


def _created(name: str, query: str, kind: str = "MATERIALIZED VIEW") -> str:
    return f"CREATE {kind} {name} AS {query}"


def _appended(rng: Draws, name: str, query: str) -> str:
    return _created(name, query, rng.choice(("STREAMING TABLE", "MATERIALIZED VIEW")))


def _sums(rng: Draws, name: str = "sums") -> str:
    """Return a common table expression with one row per customer."""
    return (
        f"{name} AS (SELECT customer AS who, count(*) AS n, max(amount) AS most, max(id) AS latest "
        f"FROM orders{rng.choice(_WHERE)} GROUP BY customer)"
    )


def _values(rng: Draws, name: str) -> tuple[str, str]:
    chosen = rng.sample(_VALUES, rng.randrange(1, 5))
    where = rng.choice(_WHERE)
    sides = [", ".join(f"{pair[side]} AS v{number}" for number, pair in enumerate(chosen)) for side in (0, 1)]
    query, answer = (f"SELECT id, {shown} FROM orders{where}" for shown in sides)
    return _appended(rng, name, query), answer


def _aggregates(rng: Draws, name: str) -> tuple[str, str]:
    keys = rng.choice((["customer"], ["quantity"], ["id % 4"], ["customer", "quantity > 2"], []))
    calls = rng.sample(_CALLS, rng.randrange(1, 5))
    where = rng.choice(_WHERE)
    items = [f"{key} AS k{number}" for number, key in enumerate(keys)]
    sides = [
        ", ".join([*items, *(f"{pair[side]} AS x{number}" for number, pair in enumerate(calls))]) for side in (0, 1)
    ]
    ordinals = ", ".join(str(number + 1) for number in range(len(keys)))
    by = f" GROUP BY {rng.choice(('ALL', ordinals, ', '.join(keys)))}" if keys else ""
    having = rng.choice(("", "", " HAVING count(*) > 2", " HAVING max(amount) > 20")) if keys else ""
    order = rng.choice(("", " ORDER BY x0"))
    query, answer = (f"SELECT {shown} FROM orders{where}{by}{having}" for shown in sides)
    return _created(name, query + order), answer


def _windows(rng: Draws, name: str) -> tuple[str, str]:
    where, minutes = rng.choice(_WHERE), rng.choice((7, 20, 60))
    pairs = [pair for pair in _CALLS if "DISTINCT" not in pair[0]]
    calls = rng.sample(pairs, rng.randrange(1, 3))
    key = rng.choice(("customer", "quantity", ""))
    sides = [", ".join(f"{pair[side]} AS x{number}" for number, pair in enumerate(calls)) for side in (0, 1)]
    by = f"{key}, " if key else ""
    bucket = "time_bucket(INTERVAL {0} MINUTES, ordered_at, TIMESTAMPTZ '1970-01-01')"
    if rng.choice((True, True, False)):
        window, begins = f"window(ordered_at, '{minutes} minutes')", f"[{bucket.format(minutes)}]"
    else:
        window = f"window(ordered_at, '{2 * minutes} minutes', '{minutes} minutes')"
        start = bucket.format(minutes)
        begins, minutes = f"[{start}, {start} - INTERVAL {minutes} MINUTES]", 2 * minutes
    query = (
        f"SELECT {by}window.start AS begins, window.end AS ends, {sides[0]} FROM orders{where} GROUP BY {by}{window}"
    )
    answer = (
        f"SELECT {by}begins, begins + INTERVAL {minutes} MINUTES AS ends, {sides[1]} "
        f"FROM (SELECT *, unnest({begins}) AS begins FROM orders{where}) GROUP BY {by}begins "
        "HAVING ends <= (SELECT max(ordered_at) FROM orders)"
    )
    return _appended(rng, name, query), answer


def _sessions(rng: Draws, name: str) -> tuple[str, str]:
    where, gap = rng.choice(_WHERE), rng.choice((3, 8, 15))
    query = (
        f"SELECT customer, session_window.start AS began, session_window.end AS ended, count(*) AS n, max(id) AS m "
        f"FROM orders{where} GROUP BY customer, session_window(ordered_at, '{gap} minutes')"
    )
    before = "lag(ordered_at) OVER (PARTITION BY customer ORDER BY ordered_at) AS before"
    answer = (
        f"SELECT customer, min(ordered_at) AS began, max(ordered_at) + INTERVAL {gap} MINUTES AS ended, count(*) AS n, "
        f"max(id) AS m FROM (SELECT *, count(*) FILTER (ordered_at - before > INTERVAL {gap} MINUTES) "
        f"OVER (PARTITION BY customer ORDER BY ordered_at) AS session FROM (SELECT *, {before} FROM orders{where})) "
        "GROUP BY customer, session HAVING ended < (SELECT max(ordered_at) FROM orders)"
    )
    return _appended(rng, name, query), answer


def _outer(rng: Draws, name: str) -> tuple[str, str]:
    how = rng.choice(("RIGHT", "FULL", "FULL OUTER", "LEFT OUTER"))
    sides = (
        f"l0 AS (SELECT customer AS who, count(*) AS n FROM orders{rng.choice(_WHERE)} GROUP BY customer), "
        f"r0 AS (SELECT 'c' || quantity AS who, count(*) AS m FROM orders WHERE {rng.choice(_FILTERS)} "
        "GROUP BY 'c' || quantity), l AS (SELECT who, n FROM l0 WHERE who IS NOT NULL), "
        "r AS (SELECT who, m FROM r0 WHERE who IS NOT NULL)"
    )
    on = rng.choice(("USING (who)", "ON l.who = r.who", "ON l.who = r.who AND n <= m", "ON l.who = r.who AND m <> n"))
    columns = "who, n, m" if "USING" in on else "l.who, r.who AS other, n, m"
    where = rng.choice(("", "", " WHERE m IS NULL OR n > 2", " WHERE coalesce(n, 0) < 9"))
    query = f"WITH {sides} SELECT {columns} FROM l {how} JOIN r {on}{where}"
    return _created(name, query), query


def _joins(rng: Draws, name: str) -> tuple[str, str]:
    sums, other = _sums(rng), _sums(rng, "others")
    query = rng.choice((
        f"WITH {sums} SELECT a.who, b.who AS other, a.n FROM sums a JOIN sums b ON a.n = b.n AND a.who <> b.who",
        f"WITH {sums}, {other} SELECT who, s.n, o.n AS m FROM sums s JOIN others o USING (who)",
        f"WITH {sums}, {other} SELECT s.who, s.n FROM sums s LEFT SEMI JOIN others o ON s.who = o.who AND o.n < s.n",
        f"WITH {sums}, {other} SELECT s.who, s.n FROM sums s LEFT ANTI JOIN others o ON s.n = o.n AND s.who <> o.who",
        f"WITH {sums}, total AS (SELECT count(*) AS total FROM orders) SELECT who, n, total FROM sums CROSS JOIN total",
        ("SELECT o.id, c.country, p.amount FROM orders o JOIN countries c ON c.customer = o.customer "
            "JOIN payments p ON p.order_id = o.id"),
        (f"WITH {sums}, {_CURRENT} SELECT c.id, s.who, s.n FROM current c LEFT JOIN sums s ON c.customer = s.who "
        "AND c.amount < s.most"),
    ))  # fmt: skip
    return _created(name, query), query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")


def _within(rng: Draws, name: str) -> tuple[str, str]:
    begin = rng.choice(("o.ordered_at", "o.ordered_at + INTERVAL 5 MINUTES", "o.ordered_at - INTERVAL 9 MINUTES"))
    bounds = f"p.paid_at BETWEEN {begin} AND o.ordered_at + INTERVAL {rng.choice((20, 45, 60))} MINUTES"
    more = rng.choice(("", " AND p.amount > o.amount", " AND quantity > 1"))
    if rng.choice((True, True, False)):
        columns = "o.id, o.customer, p.amount, p.paid_at"
        query = f"SELECT {columns} FROM orders o JOIN payments p ON o.id = p.order_id AND {bounds}{more}"
        return _appended(rng, name, query), query
    query = f"SELECT o.id, o.customer FROM orders o LEFT SEMI JOIN payments p ON o.id = p.order_id AND {bounds}"
    return _appended(rng, name, query), query.replace("LEFT SEMI", "SEMI")


def _lookups(rng: Draws, name: str) -> tuple[str, str]:
    how = rng.choice(("JOIN", "LEFT JOIN"))
    on = rng.choice(("USING (customer)", "ON o.customer = c.customer"))
    where = rng.choice(("", " WHERE c.country = 'k1'", " WHERE o.amount > 9"))
    query = f"SELECT o.id, c.country FROM orders o {how} countries c {on}{where}"
    return _appended(rng, name, query), query


def _asof(rng: Draws, name: str) -> tuple[str, str]:
    left = rng.choice((True, False))
    column = rng.choice(("quantity", "customer"))
    key = f"o.{column} = b.{column}"
    final = f"o.ordered_at < (SELECT max(ordered_at) FROM orders) OR o.{column} IS NULL"  # a null never finds a row
    side = f"b AS (SELECT id, customer, quantity, ordered_at FROM orders WHERE {rng.choice(_FILTERS)})"
    columns = "o.id, b.id AS other, b.quantity"
    query = (
        f"WITH {side} SELECT {columns} FROM orders o {'LEFT ' * left}ASOF JOIN b "
        f"MATCH_CONDITION (o.ordered_at >= b.ordered_at) ON {key}"
    )
    answer = (
        f"WITH {side} SELECT {columns} FROM orders o ASOF {'LEFT ' * left}JOIN b ON {key} "
        f"AND o.ordered_at >= b.ordered_at WHERE {final}"
    )
    return _appended(rng, name, query), answer


def _compared(rng: Draws, name: str) -> tuple[str, str]:
    columns = rng.choice(("customer, quantity", "customer", "quantity, id % 5 AS part"))
    operation = rng.choice(("INTERSECT", "EXCEPT", "MINUS", "INTERSECT ALL", "EXCEPT ALL", "UNION"))
    branches = [f"SELECT {columns} FROM orders WHERE {rng.choice(_FILTERS)}" for _ in range(rng.choice((2, 2, 3)))]
    query = f" {operation} ".join(branches)
    if "ALL" in operation:
        first = columns.split(", ", maxsplit=1)[0]
        query = f"SELECT {first}, count(*) AS n FROM ({query}) AS rest GROUP BY {first}"
    return _created(name, query), query.replace("MINUS", "EXCEPT")


def _queries_in_expressions(rng: Draws, name: str) -> tuple[str, str]:
    call = rng.choice(("max", "min", "avg"))
    of_order = rng.choice(("", " WHERE p.order_id = c.id", " WHERE p.order_id = c.id AND p.amount > 9"))
    sign = rng.choice((">", "<", "<=", "<>"))
    method = rng.choice(("'card'", "'cash'"))
    query = rng.choice((
        (f"WITH {_CURRENT} SELECT id, amount FROM current c WHERE amount {sign} (SELECT {call}(p.amount) "
        f"FROM payments p{of_order})"),
        f"WITH {_CURRENT} SELECT id, (SELECT count(*) FROM payments p{of_order}) AS x FROM current c",
        (f"WITH {_CURRENT} SELECT id, coalesce((SELECT {call}(p.amount) FROM payments p{of_order}), 0) AS x "
        "FROM current c WHERE quantity > 1"),
        (f"WITH {_CURRENT} SELECT id FROM current WHERE id IS NOT NULL AND id NOT IN (SELECT order_id FROM payments "
        f"WHERE order_id IS NOT NULL AND method = {method})"),
        (f"WITH {_CURRENT} SELECT id FROM current c WHERE quantity IN (SELECT quantity FROM orders o "
        f"WHERE o.customer = c.customer AND o.amount {sign} 15)"),
        (f"WITH {_CURRENT} SELECT customer, count(*) AS n FROM current GROUP BY customer HAVING max(amount) {sign} "
        f"(SELECT {call}(amount) FROM payments)"),
        (f"WITH {_CURRENT} SELECT id FROM current c WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = c.id "
        f"AND p.amount {sign} c.amount)"),
        f"WITH {_sums(rng)} SELECT who, n FROM sums WHERE n = (SELECT max(n) FROM sums)",
    ))  # fmt: skip
    answer = query
    for amount in ("p.amount", "amount"):
        answer = answer.replace(f"avg({amount})", _MEAN.format(amount))
    return _created(name, query), answer


def _ranks(rng: Draws, name: str) -> tuple[str, str]:
    call = rng.choice(("rank()", "dense_rank()", "row_number()"))
    partition = rng.choice(("", "PARTITION BY n % 2 "))
    order = rng.choice(("n DESC", "most", "n, most DESC")) + (", who" if call == "row_number()" else "")
    computed, part = ("n % 2 AS part, ", "part, ") if partition else ("", "")
    count = rng.randrange(2, 5)
    over = f"{call} OVER ({partition}ORDER BY {order})"
    query = rng.choice((
        f"WITH {_sums(rng)} SELECT {computed}who, n, {over} AS place FROM sums QUALIFY place <= {count}",
        (f"WITH {_sums(rng)} SELECT {part}who, n, place FROM (SELECT *, {computed}{over} AS place FROM sums) AS ranked "
        f"WHERE place <= {count}"),
        f"WITH {_sums(rng)} SELECT who, n FROM sums ORDER BY n DESC, who LIMIT {count}",
    ))  # fmt: skip
    return _created(name, query), query


def _exploded(rng: Draws, name: str) -> tuple[str, str]:
    items = rng.choice(("id, quantity", "quantity, 7, id % 3", "quantity"))
    where = rng.choice(_WHERE)
    answer = f"SELECT id, unnest([{items}]) AS item FROM orders{where}"
    query = rng.choice((
        f"SELECT id, item FROM orders LATERAL VIEW explode(array({items})) e AS item{where}",
        f"SELECT id, explode(array({items})) AS item FROM orders{where}",
    ))  # fmt: skip
    if rng.choice((True, False)):
        grouped = "SELECT item, count(*) AS n FROM ({}) AS e GROUP BY item"
        return _created(name, grouped.format(query)), grouped.format(answer)
    return _appended(rng, name, query), answer


def _row_bounds(rng: Draws, name: str) -> tuple[str, str]:
    """Return a join whose upper bound is a time of the left row, perhaps next to a constant one."""
    how = rng.choice(("LEFT", "FULL", "RIGHT", "INNER", "LEFT SEMI", "LEFT ANTI"))
    minutes, other = rng.choice((10, 35)), rng.choice((20, 50))
    due = (
        f"CASE WHEN quantity > 2 THEN ordered_at + INTERVAL {minutes} MINUTES "
        f"WHEN quantity IS NOT NULL THEN ordered_at + INTERVAL {other} MINUTES END"
    )
    side = f"o AS (SELECT id, customer, ordered_at, {due} AS due FROM orders{rng.choice(_WHERE)})"
    constant = rng.choice((None, None, 15, 40))
    lower = rng.choice((0, 0, 4))
    on = f"o.id = p.order_id AND p.paid_at >= o.ordered_at + INTERVAL {lower} MINUTES AND p.paid_at <= o.due"
    ends = "o.due"
    if constant is not None:
        on += f" AND p.paid_at <= o.ordered_at + INTERVAL {constant} MINUTES"
        ends = f"least(o.due, o.ordered_at + INTERVAL {constant} MINUTES)"
    mark = "least((SELECT max(ordered_at) FROM orders), (SELECT max(paid_at) FROM payments))"
    left_is_final = f"o.due IS NULL OR {ends} < {mark}"
    right_is_final = f"p.paid_at - INTERVAL {lower} MINUTES < {mark}"
    left = "o.id, o.customer, o.due"
    columns = left if how in ("LEFT SEMI", "LEFT ANTI") else f"{left}, p.order_id, p.amount, p.paid_at"
    query = f"WITH {side} SELECT {columns} FROM o {how} JOIN payments p ON {on}"
    answer = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    if how == "LEFT ANTI":
        answer += f" WHERE {left_is_final}"
    elif how in ("LEFT", "FULL", "RIGHT"):
        answer += (
            f" WHERE (o.id IS NOT NULL AND p.order_id IS NOT NULL) OR (p.order_id IS NULL AND ({left_is_final})) "
            f"OR (o.id IS NULL AND {right_is_final})"
        )
    return _appended(rng, name, query), answer


KINDS: dict[str, Callable[[Draws, str], tuple[str, str]]] = {
    "values": _values,
    "aggregates": _aggregates,
    "windows": _windows,
    "sessions": _sessions,
    "outer joins": _outer,
    "joins": _joins,
    "joins with bounds": _within,
    "lookups": _lookups,
    "as-of joins": _asof,
    "set operations": _compared,
    "queries in expressions": _queries_in_expressions,
    "rankings": _ranks,
    "explode": _exploded,
    "flows": flow,
    "flows of some columns": partial_flow,
    "joins with bounds of rows": _row_bounds,
}
"""Kind of a statement -> makes the statement, and DuckDB's query."""
