"""Functions with OVER: through retractions, a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

NEWEST = """SELECT customer, id, amount, quantity, ordered_at FROM orders
    QUALIFY row_number() OVER (PARTITION BY customer ORDER BY ordered_at DESC) = 1"""
SPENT = "SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer HAVING count(*) > 3"
ALL = """SELECT id, customer, amount, quantity, ordered_at FROM orders
    QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"""
QUERIES = {
    "by_quantity": """SELECT customer, quantity, amount,
            CAST(row_number() OVER (PARTITION BY quantity ORDER BY amount DESC, id) AS INT) AS place,
            amount - lag(amount) OVER (PARTITION BY quantity ORDER BY amount DESC, id) AS gap,
            count(*) OVER (PARTITION BY quantity ORDER BY amount DESC, id
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) - 1 AS less
        FROM ({newest}) AS n WHERE amount > 6""",
    "running": """SELECT id, customer,
            CAST(sum(amount) OVER (PARTITION BY customer ORDER BY ordered_at, id
                ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS DECIMAL(20, 2)) AS total,
            max(quantity) OVER (PARTITION BY customer ORDER BY ordered_at, id ROWS 5 PRECEDING) AS most,
            min(amount) OVER (PARTITION BY customer ORDER BY ordered_at, id) AS least,
            avg(quantity) OVER (PARTITION BY customer ORDER BY ordered_at, id
                ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS mean
        FROM ({all})""",
    "shared": """SELECT customer, quantity % 2 AS half, amount * 2 AS twice,
            count(*) OVER (PARTITION BY quantity % 2 ORDER BY amount * 2, id) AS place
        FROM ({newest}) WHERE amount > 3""",
    "standing": "SELECT customer, n, n - max(n) OVER () AS behind, count(*) OVER () AS customers FROM ({spent}) AS s",
    "tied": """SELECT customer, quantity, CAST(dense_rank() OVER (ORDER BY quantity DESC) AS INT) AS place,
            CAST(sum(id) OVER (ORDER BY quantity DESC) AS BIGINT) AS ids
        FROM ({newest}) AS n""",
    "moved": """SELECT customer,
            lead(id, 2) OVER (PARTITION BY quantity IS NULL, id % 2 ORDER BY amount * -1, id) + 1 AS later
        FROM ({newest}) AS n""",
    "chained": """SELECT place, count(*) AS n, CAST(sum(earlier) AS BIGINT) AS ids
        FROM (SELECT customer, CAST(rank() OVER (PARTITION BY quantity ORDER BY amount, id) AS INT) AS place,
                lag(id) OVER (PARTITION BY quantity ORDER BY amount, id) AS earlier
            FROM ({newest}) AS n) AS r
        GROUP BY place""",
    "joined": """SELECT a.id, s.customer, s.n,
            CAST(row_number() OVER (PARTITION BY s.customer ORDER BY a.amount, a.id) AS INT) AS place
        FROM ({all}) AS a JOIN ({spent}) AS s ON a.customer = s.customer""",
}


def filled(query: str) -> str:
    return query.replace("{newest}", NEWEST).replace("{spent}", SPENT).replace("{all}", ALL)


def test_functions_over_rows_equal_duckdb_through_epochs_a_rollback_and_a_rescale(
    tmp_path: Path, in_process: Plane
) -> None:
    views = [f"CREATE MATERIALIZED VIEW {name} AS {filled(query)}" for name, query in QUERIES.items()]
    job, runner = SqlJob(tmp_path, ";\n".join(views)), in_process()
    found = dict.fromkeys(QUERIES, 0)
    for _ in range(4):
        done = job.run(runner)
        for name, query in QUERIES.items():
            found[name] += job.check(name, filled(query))
    assert all(found.values()), found
    roll_back(job.master, done.checkpoint_id - 1)
    job.rescale(3)
    job.run(runner)
    for name, query in QUERIES.items():
        job.check(name, filled(query))
