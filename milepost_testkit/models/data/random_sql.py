"""Random queries of the SQL of a job, in words that Spark and DuckDB understand alike."""

from __future__ import annotations

import random

_VALUES = ("quantity", "quantity + 1", "coalesce(quantity, 0) * 2", "id % 7", "abs(quantity - 2)")
_TEXTS = (
    "customer",
    "upper(customer)",
    "CASE WHEN id > 9 THEN 'many' ELSE customer END",
    "coalesce(customer, '')",
)
_CONDITIONS = (
    "quantity > 1",
    "customer IS NOT NULL",
    "amount BETWEEN 5 AND 20",
    "(quantity IS NULL OR id % 2 = 0)",
    "NOT (quantity = 3 AND amount > 10)",
    "customer IN ('c1', 'c2', 'c4')",
    "EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.amount > o.amount)",
    "id IN (SELECT order_id FROM payments WHERE method = 'card')",
    "NOT EXISTS (SELECT 1 FROM payments WHERE order_id = o.id)",
)
_AGGREGATES = ("count(*)", "count(quantity)", "sum(amount)", "min(id)", "max(amount)", "count(DISTINCT quantity)")
_MORE = ("sum(quantity * 2)", "count(*) FILTER (WHERE amount > 10)", "max(id) - min(id)", "sum(quantity) + count(*)")


def random_query(rng: random.Random) -> str:
    """Return a query over `orders` and `payments` whose rows have a key, or are appended."""
    return rng.choice((_projection, _grouped, _grouped, _ranked, _distinct, _joined, _nested))(rng)


def _where(rng: random.Random, most: int = 3) -> str:
    conditions = rng.sample(_CONDITIONS, rng.randrange(most))
    if any(one.startswith("NOT EXISTS") for one in conditions):
        conditions = [one for one in conditions if not one.startswith("NOT EXISTS")]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _projection(rng: random.Random) -> str:
    return f"SELECT id, {rng.choice(_VALUES)} AS a, {rng.choice(_TEXTS)} AS b FROM orders o{_where(rng)}"


def _grouped(rng: random.Random) -> str:
    keys = rng.sample([rng.choice(_VALUES), rng.choice(_TEXTS)], rng.randrange(1, 3))
    names = [f"k{number}" for number in range(len(keys))]
    calls = rng.sample((*_AGGREGATES, *_MORE), rng.randrange(1, 4))
    items = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    items += [f"{call} AS x{number}" for number, call in enumerate(calls)]
    rng.shuffle(items)
    by = rng.choice((", ".join(names), ", ".join(keys)))
    having = rng.choice(("", "", " HAVING count(*) > 2", " HAVING min(amount) < 5 AND count(*) > 1"))
    conditions = [one for one in _CONDITIONS if "SELECT" not in one or not one.startswith("NOT")]
    chosen = rng.sample(conditions, rng.randrange(3))
    where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
    return f"SELECT {', '.join(items)} FROM orders o{where} GROUP BY {by}{having}"


def _ranked(rng: random.Random) -> str:
    order = rng.choice(("amount DESC, id", "id DESC", "quantity DESC, id DESC", "amount, id DESC"))
    nulls = order.replace("quantity DESC", "quantity DESC NULLS LAST")
    over = f"row_number() OVER (PARTITION BY customer ORDER BY {nulls})"
    n = rng.randrange(1, 4)
    if n == 1:
        return f"SELECT customer, id, amount FROM orders o{_where(rng)} QUALIFY {over} = 1"
    return f"SELECT customer, id, {over} AS place FROM orders o{_where(rng)} QUALIFY place <= {n}"


def _distinct(rng: random.Random) -> str:
    first = f"SELECT DISTINCT {rng.choice(_TEXTS)} AS b, quantity AS a FROM orders o{_where(rng)}"
    return rng.choice((first, f"{first.replace('DISTINCT ', '')} UNION SELECT method, 1 FROM payments"))


def _joined(rng: random.Random) -> str:
    more = rng.choice(("", " AND p.amount > o.amount", " AND o.quantity > 1", " AND p.method IS NOT NULL"))
    where = rng.choice(("", " WHERE o.amount > 5", " WHERE p.amount < 20"))
    return f"SELECT o.id, p.amount, o.customer FROM orders o JOIN payments p ON o.id = p.order_id{more}{where}"


def _nested(rng: random.Random) -> str:
    inner = "SELECT customer AS who, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer"
    outer = rng.choice((
        "SELECT n, count(*) AS customers, max(total) AS most FROM sums GROUP BY n",
        "SELECT a.who, b.total FROM sums a JOIN sums b ON a.n = b.n AND a.who = b.who",
        "SELECT s.who, s.total, l.id FROM sums s JOIN newest l ON l.customer = s.who",
        "SELECT s.who, l.id FROM sums s LEFT JOIN newest l ON l.customer = s.who AND l.amount < s.total",
    ))  # fmt: skip
    over = "row_number() OVER (PARTITION BY customer ORDER BY id DESC)"
    newest = f"SELECT customer, id, amount FROM orders QUALIFY {over} = 1"
    ctes = [f"sums AS ({inner})", *([f"newest AS ({newest})"] if "newest" in outer else [])]
    return f"WITH {', '.join(ctes)} {outer}"
