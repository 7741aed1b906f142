"""Queries in expressions: through retractions, a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

VIEWS = {
    "spent": "SELECT customer AS who, sum(amount) AS spent, count(*) AS n FROM orders GROUP BY customer",
    "current_orders": (
        "SELECT id, customer, amount, quantity FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"
    ),
}
QUERIES = {
    "above_mean": "SELECT id, amount FROM current_orders WHERE amount > (SELECT avg(amount) FROM orders)",
    "dearest": (
        "SELECT id, amount FROM current_orders o WHERE amount >= "
        "(SELECT max(amount) FROM orders WHERE customer = o.customer) AND id > 3"
    ),
    "payments_of": (
        "SELECT id, (SELECT count(*) + 1 FROM payments WHERE order_id = o.id AND amount > 9) AS n FROM current_orders o"
    ),
    "unlike": (
        "SELECT who, (SELECT coalesce(max(quantity), -1) FROM orders WHERE customer = s.who AND amount > 25) AS most "
        "FROM spent s WHERE n <> (SELECT min(n) FROM spent)"
    ),
    "rich": (
        "SELECT customer, sum(amount) AS total FROM current_orders GROUP BY customer "
        "HAVING sum(amount) > (SELECT avg(spent) FROM spent)"
    ),
    "shares": (
        "SELECT customer, count(*) / (SELECT count(*) FROM current_orders) AS share, "
        "max(amount) - (SELECT min(spent) FROM spent) AS beyond FROM current_orders WHERE customer IS NOT NULL "
        "GROUP BY 1"
    ),
    "fewer": (
        "SELECT who FROM spent s WHERE coalesce((SELECT max(quantity) FROM orders WHERE customer = s.who AND "
        "amount > 28), 0) < n - 2"
    ),
    "most": "SELECT who, n FROM spent WHERE n = (SELECT max(n) FROM spent)",
    "either": (
        "SELECT id, (SELECT max(n) FROM spent) AS most FROM current_orders "
        "WHERE amount > (SELECT avg(p.amount) FROM payments p) OR quantity = 4"
    ),
    "unpaid": (
        "SELECT id FROM current_orders WHERE id IS NOT NULL AND id NOT IN "
        "(SELECT order_id FROM payments WHERE order_id IS NOT NULL AND amount < 20)"
    ),
    "modest": (
        "WITH buyers AS (SELECT customer, max(amount) AS m FROM orders WHERE customer IS NOT NULL GROUP BY customer) "
        "SELECT who, n FROM spent WHERE who IS NOT NULL AND NOT who IN (SELECT customer FROM buyers WHERE m > 29)"
    ),
    "usual": (
        "SELECT id FROM current_orders o WHERE quantity IN "
        "(SELECT quantity FROM orders p WHERE p.customer = o.customer AND p.amount > 20)"
    ),
    "same": "SELECT id FROM current_orders WHERE id IN (SELECT id FROM orders WHERE amount > 10)",
    "equal": (
        "SELECT o.id, s.who, t.who AS other FROM current_orders o JOIN spent s ON o.amount = s.n + 0.01 * s.n "
        "LEFT JOIN spent t ON CAST(o.amount AS DECIMAL(10, 0)) = t.n"
    ),
    "listed": (
        "SELECT o.id, s.who, s.n FROM current_orders o JOIN spent s ON CAST(o.amount AS DECIMAL(10, 0)) = s.n "
        "WHERE o.amount < s.n + 0.5"
    ),
}
"""Table -> its query. Each view that it reads is computed by DuckDB as well."""
MORE = {
    "in_case": (
        "SELECT o.id, CASE WHEN o.amount > (SELECT avg(p.amount) FROM payments p WHERE p.order_id = o.id) "
        "THEN 'x' ELSE 'y' END AS c FROM current_orders o"
    ),
    "under_or": (
        "SELECT o.id, s.n FROM current_orders o LEFT JOIN spent s ON o.customer = s.who WHERE o.amount < "
        "(SELECT max(amount) FROM payments p WHERE p.order_id = o.id) OR s.n IS NULL"
    ),
    "in_group": (
        "SELECT quantity > (SELECT avg(quantity) FROM orders) AS big, count(*) AS n FROM current_orders GROUP "
        "BY quantity > (SELECT avg(quantity) FROM orders)"
    ),
    "in_aggregate": (
        "SELECT customer, sum(quantity - (SELECT min(quantity) FROM orders)) AS s FROM current_orders GROUP BY customer"
    ),
    "negated": (
        "SELECT id FROM current_orders o WHERE NOT (amount > (SELECT avg(o.amount) FROM current_orders o "
        "WHERE o.quantity = 2))"
    ),
    "between": (
        "SELECT id FROM current_orders WHERE amount BETWEEN (SELECT min(amount) FROM payments) AND (SELECT "
        "avg(spent) / 8 FROM spent)"
    ),
    "in_order": "SELECT id, amount FROM current_orders ORDER BY amount - (SELECT min(n) FROM spent) DESC, id LIMIT 4",
    "nested": (
        "SELECT id FROM current_orders o WHERE 1 < (SELECT count(*) FROM orders i WHERE lower(i.customer) = "
        "lower(o.customer) AND i.id IN (SELECT order_id FROM payments WHERE amount > 10))"
    ),
    "is_null": "SELECT who FROM spent WHERE (SELECT max(quantity) FROM orders WHERE amount > 1000) IS NULL",
    "no_rows": (
        "SELECT who FROM spent s WHERE (SELECT count(*) FROM current_orders WHERE customer = s.who AND amount > 25) = 0"
    ),
    "of_a_join": (
        "SELECT s.who, t.n FROM spent s JOIN spent t ON s.who = t.who WHERE s.n >= (SELECT max(quantity) FROM orders)"
    ),
    "before_and_after": (
        "SELECT customer, count(*) AS n FROM current_orders WHERE amount > (SELECT avg(amount) FROM "
        "current_orders) GROUP BY customer HAVING count(*) > (SELECT min(n) / 3 FROM spent) AND max(quantity) "
        "IS NOT NULL ORDER BY n DESC, customer LIMIT 3"
    ),
    "over_a_query": (
        "SELECT who, n FROM spent s WHERE n < (SELECT sum(x.n) FROM (SELECT quantity AS q, count(*) AS n FROM "
        "orders GROUP BY quantity) AS x WHERE x.q = 2)"
    ),
    "not_in_self": (
        "SELECT id FROM current_orders WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM orders WHERE amount "
        "> 10 AND id IS NOT NULL)"
    ),
    "in_distinct": "SELECT DISTINCT customer, (SELECT max(n) FROM spent) AS m FROM current_orders",
    "with_exists": (
        "SELECT o.id FROM current_orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND "
        "p.amount > 20) AND amount > (SELECT avg(amount) FROM payments)"
    ),
    "of_two": (
        "SELECT id FROM current_orders o WHERE amount > 2 * (SELECT avg(p.amount) FROM payments p, orders i "
        "WHERE p.order_id = i.id AND i.customer = o.customer)"
    ),
    "equal_to": (
        "SELECT id, quantity FROM current_orders o WHERE quantity = (SELECT max(quantity) FROM orders WHERE "
        "customer = o.customer)"
    ),
    "null_safe": (
        "SELECT id FROM current_orders o WHERE quantity <=> (SELECT max(quantity) FROM orders WHERE customer "
        "= o.customer AND amount > 29)"
    ),
}
"""Places of a query in an expression."""
ANSWERS = {
    "null_safe": MORE["null_safe"].replace("<=>", "IS NOT DISTINCT FROM"),
    "in_aggregate": MORE["in_aggregate"].replace("sum(", "CAST(sum(").replace(" AS s", " AS BIGINT) AS s"),
    "spent": VIEWS["spent"].replace("sum(amount)", "CAST(sum(amount) AS DECIMAL(20, 2))"),
    "current_orders": "SELECT id, customer, amount, quantity FROM orders",
    "rich": QUERIES["rich"].replace("sum(amount) AS total", "CAST(sum(amount) AS DECIMAL(20, 2)) AS total"),
    "shares": QUERIES["shares"].replace("max(amount) - (", "CAST(max(amount) AS DECIMAL(10, 2)) - ("),
}
ALL = QUERIES | MORE
GROUPS = (
    ("above_mean", "dearest", "payments_of", "unlike", "rich"),
    ("shares", "most", "either", "fewer", "unpaid"),
    ("modest", "usual", "same", "equal", "listed"),
)


def statements(names: tuple[str, ...]) -> str:
    views = [f"CREATE TEMPORARY VIEW {name} AS {query}" for name, query in VIEWS.items()]
    return ";\n".join([*views, *(f"CREATE MATERIALIZED VIEW {name} AS {ALL[name]}" for name in names)])


def check(job: SqlJob, names: tuple[str, ...]) -> None:
    for view in VIEWS:
        job.database.execute(f"CREATE OR REPLACE VIEW {view} AS {ANSWERS[view]}")
    for name in names:
        rows = job.check(name, ANSWERS.get(name, ALL[name]))
        assert rows or name in ("equal", "null_safe"), name


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [GROUPS[0], *(pytest.param(names, marks=pytest.mark.deep) for names in GROUPS[1:])],
    ids=" ".join,
)
def test_a_query_in_an_expression_equals_duckdb_through_epochs_a_rollback_and_a_rescale(
    names: tuple[str, ...], tmp_path: Path, in_process: Plane
) -> None:
    job, runner = SqlJob(tmp_path, statements(names)), in_process()
    for _ in range(3):
        done = job.run(runner)
        check(job, names)
    roll_back(job.master, done.checkpoint_id - 1)
    job.rescale(3)
    job.run(runner)
    check(job, names)


@pytest.mark.deep
def test_a_query_may_be_anywhere_in_an_expression(tmp_path: Path, in_process: Plane) -> None:
    names = (*MORE,)
    job, runner = SqlJob(tmp_path, statements(names)), in_process()
    for _ in range(3):
        job.run(runner)
        check(job, names)
