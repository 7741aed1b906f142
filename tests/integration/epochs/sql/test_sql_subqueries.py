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
ANSWERS = {
    "spent": VIEWS["spent"].replace("sum(amount)", "CAST(sum(amount) AS DECIMAL(20, 2))"),
    "current_orders": "SELECT id, customer, amount, quantity FROM orders",
    "rich": QUERIES["rich"].replace("sum(amount) AS total", "CAST(sum(amount) AS DECIMAL(20, 2)) AS total"),
    "shares": QUERIES["shares"].replace("max(amount) - (", "CAST(max(amount) AS DECIMAL(10, 2)) - ("),
}
GROUPS = (
    ("above_mean", "dearest", "payments_of", "unlike", "rich"),
    ("shares", "most", "either", "fewer", "unpaid"),
    ("modest", "usual", "same", "equal", "listed"),
)


def statements(names: tuple[str, ...]) -> str:
    views = [f"CREATE TEMPORARY VIEW {name} AS {query}" for name, query in VIEWS.items()]
    return ";\n".join([*views, *(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}" for name in names)])


def check(job: SqlJob, names: tuple[str, ...]) -> None:
    for view in VIEWS:
        job.database.execute(f"CREATE OR REPLACE VIEW {view} AS {ANSWERS[view]}")
    for name in names:
        rows = job.check(name, ANSWERS.get(name, QUERIES[name]))
        assert rows or name in ("equal",), name


@pytest.mark.long
@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
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
