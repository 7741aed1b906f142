"""Random queries of the SQL of a job, in words that Spark and DuckDB understand alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

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

_ONCE = "SELECT DISTINCT customer, id, amount, quantity FROM orders"
_METHODS = "SELECT order_id, method, max(amount) AS most FROM payments GROUP BY order_id, method"
_ROWS = "SELECT customer, id, amount, quantity FROM orders QUALIFY row_number() OVER (PARTITION BY"
_UNIQUE = (
    ("id", f"{_ROWS} id ORDER BY ordered_at DESC) = 1"),
    ("customer", f"{_ROWS} customer ORDER BY id DESC) = 1"),
    (
        "customer",
        "SELECT customer, max(id) AS id, max(amount) AS amount, sum(quantity) AS quantity FROM orders GROUP BY ALL",
    ),
    ("customer, id, amount, quantity", _ONCE),
    (
        "customer, id, amount, quantity, method",
        f"SELECT o.*, p.method, p.most FROM ({_ONCE}) AS o JOIN ({_METHODS}) AS p ON o.id = p.order_id",
    ),
)
"""Key -> a query whose rows it identifies."""
FRAMES = (
    "",
    " ROWS 2 PRECEDING",
    " ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 2 FOLLOWING AND 4 FOLLOWING",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
)
_PLACED = ("row_number()", "lag(id)", "lag(quantity, 2)", "lead(amount)", "lead(id, 3)", "lag(id + quantity)", "rank()")
_TIED = ("count(*)", "sum(quantity)", "max(amount)", "min(id)", "count(quantity)", "avg(quantity)", "sum(amount * 2)")
_FRAMED = (*_TIED, "first_value(id)", "last_value(quantity)", "max(id % 5)")


class Draws:
    """Random draws of which single ones can be changed: draw 3 does not depend on the result of draw 2.

    So a query that is drawn again with one edit differs in one part.

    Args:
        edits: number of a draw -> another seed for it.
    """

    def __init__(self, seed: int, edits: dict[int, int] | None = None) -> None:
        self.count = 0
        self._seed, self._edits = seed, edits or {}

    def edited(self, seed: int) -> Draws:
        """Return the draws with another result of one of those made so far, by a seed."""
        rng = random.Random(f"edit {seed}")
        number = rng.randrange(self.count)
        return Draws(self._seed, self._edits | {number: rng.randrange(1, 1_000)})

    def again(self) -> Draws:
        """Return the same draws, from the first on."""
        return Draws(self._seed, self._edits)

    def choice(self, options: Sequence[_T]) -> _T:
        return self._next().choice(options)

    def sample(self, options: Sequence[_T], count: int) -> list[_T]:
        return self._next().sample(options, count)

    def randrange(self, *bounds: int) -> int:
        return self._next().randrange(*bounds)

    def shuffle(self, items: list[_T]) -> None:
        self._next().shuffle(items)

    def _next(self) -> random.Random:
        self.count += 1
        return random.Random(f"{self._seed} {self.count} {self._edits.get(self.count - 1, 0)}")


def random_query(rng: Draws) -> str:
    """Return a query over `orders` and `payments` whose rows have a key, or are appended."""
    kinds = (_projection, _grouped, _grouped, _ranked, _distinct, _joined, _nested, _expressions, _derived, _valued)
    return rng.choice(kinds)(rng)


def _expressions(rng: Draws) -> str:
    items = rng.sample(
        (
            "id * 2 + quantity AS e0",
            "CASE quantity WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'more' END AS e1",
            "customer || '-' || method AS e2",
            "o.amount - p.amount AS e3",
            "quantity IS NULL AS e4",
            "nullif(quantity, 2) AS e5",
            "greatest(id, quantity) AS e6",
            "length(coalesce(customer, 'nobody')) AS e7",
        ),
        rng.randrange(1, 4),
    )
    where = rng.choice(("", " WHERE NOT (method = 'card' AND quantity > 1)", " WHERE method IN ('card') OR id < 9"))
    bound = rng.choice((" AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTES", ""))
    comma = bound == "" and rng.choice((True, False))
    if comma:
        extra = f" AND ({where.removeprefix(' WHERE ')})" if where else ""
        return f"SELECT id, {', '.join(items)} FROM orders o, payments p WHERE o.id = p.order_id{extra}"
    return f"SELECT id, {', '.join(items)} FROM orders o JOIN payments p ON p.order_id = o.id{bound}{where}"


def _derived(rng: Draws) -> str:
    inner = f"SELECT customer, id % 3 AS part, quantity AS q FROM orders o{_where(rng)}"
    both = rng.choice((inner, f"{inner} UNION ALL SELECT method, 4, 1 FROM payments"))
    by = rng.choice(("part", "customer, part", "customer"))
    call = rng.choice(("count(q)", "max(q)", "count(DISTINCT q)", "min(q) FILTER (WHERE part > 0)"))
    having = rng.choice(("", " HAVING count(*) > 1"))
    return f"SELECT {by}, {call} AS x FROM ({both}) {rng.choice(('AS d', 'part_of', ''))} GROUP BY {by}{having}"


def _where(rng: Draws, most: int = 3) -> str:
    conditions = rng.sample(_CONDITIONS, rng.randrange(most))
    if any(one.startswith("NOT EXISTS") for one in conditions):
        conditions = [one for one in conditions if not one.startswith("NOT EXISTS")]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _valued(rng: Draws) -> str:
    """Return a query with functions with OVER, of rows that are unique by a key and have a unique `id`."""
    key, read = rng.choice(_UNIQUE)
    partition = rng.choice(("", "customer", "quantity", "id % 3, upper(customer)"))
    begin = f"PARTITION BY {partition} " if partition else ""
    if rng.choice((True, True, False)):
        order = rng.choice(("id", "amount DESC, id", "quantity, id DESC", "coalesce(quantity, 2), id")) + f", {key}"
        calls = [f"{call} OVER ({begin}ORDER BY {order})" for call in rng.sample(_PLACED, rng.randrange(3))]
        framed = rng.sample(_FRAMED, rng.randrange(1, 3))
        calls += [f"{call} OVER ({begin}ORDER BY {order}{rng.choice(FRAMES)})" for call in framed]
    else:  # ties: values that do not depend on the order of equal rows
        order = rng.choice(("", "ORDER BY quantity", "ORDER BY id % 4 DESC", "ORDER BY amount > 9, quantity DESC"))
        ranks = ("rank()", "dense_rank()") if order else ()
        calls = [f"{call} OVER ({begin}{order})" for call in rng.sample((*ranks, *_TIED), rng.randrange(1, 4))]
    values = [rng.choice((call, call, f"{call} + 1", f"coalesce({call}, 0)")) for call in calls]
    shown = [*rng.choice((("customer",), ("quantity",), ())), *key.split(", ")]
    columns = [*dict.fromkeys(shown), *(f"{value} AS x{number}" for number, value in enumerate(values))]
    where = rng.choice(("", "", " WHERE amount > 5", " WHERE quantity > 0"))
    return f"SELECT {', '.join(columns)} FROM ({read}) AS r{where}"


def _projection(rng: Draws) -> str:
    return f"SELECT id, {rng.choice(_VALUES)} AS a, {rng.choice(_TEXTS)} AS b FROM orders o{_where(rng)}"


def _grouped(rng: Draws) -> str:
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


def _ranked(rng: Draws) -> str:
    order = rng.choice(("amount DESC, id", "id DESC", "quantity DESC, id DESC", "amount, id DESC"))
    nulls = order.replace("quantity DESC", "quantity DESC NULLS LAST")
    over = f"row_number() OVER (PARTITION BY customer ORDER BY {nulls})"
    n = rng.randrange(1, 4)
    if n == 1:
        return f"SELECT customer, id, amount FROM orders o{_where(rng)} QUALIFY {over} = 1"
    return f"SELECT customer, id, {over} AS place FROM orders o{_where(rng)} QUALIFY place <= {n}"


def _distinct(rng: Draws) -> str:
    first = f"SELECT DISTINCT {rng.choice(_TEXTS)} AS b, quantity AS a FROM orders o{_where(rng)}"
    return rng.choice((first, f"{first.replace('DISTINCT ', '')} UNION SELECT method, 1 FROM payments"))


def _joined(rng: Draws) -> str:
    more = rng.choice(("", " AND p.amount > o.amount", " AND o.quantity > 1", " AND p.method IS NOT NULL"))
    where = rng.choice(("", " WHERE o.amount > 5", " WHERE p.amount < 20"))
    return f"SELECT o.id, p.amount, o.customer FROM orders o JOIN payments p ON o.id = p.order_id{more}{where}"


def _nested(rng: Draws) -> str:
    inner = "SELECT customer AS who, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer"
    outer = rng.choice((
        "SELECT n, count(*) AS customers, max(total) AS most FROM sums GROUP BY n",
        "SELECT a.who, b.total FROM sums a JOIN sums b ON a.n = b.n AND a.who = b.who",
        "SELECT s.who, s.total, l.id FROM sums s JOIN newest l ON l.customer = s.who",
        "SELECT s.who, l.id FROM sums s LEFT JOIN newest l ON l.customer = s.who AND l.amount < s.total",
        "SELECT who, n, row_number() OVER (ORDER BY n, who) AS place FROM sums WHERE n < 4 QUALIFY place <= 3",
    ))  # fmt: skip
    over = "row_number() OVER (PARTITION BY customer ORDER BY id DESC)"
    newest = f"SELECT customer, id, amount FROM orders QUALIFY {over} = 1"
    ctes = [f"sums AS ({inner})", *([f"newest AS ({newest})"] if "newest" in outer else [])]
    return f"WITH {', '.join(ctes)} {outer}"
