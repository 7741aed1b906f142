"""UNION, INTERSECT and EXCEPT: through retractions, a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

COUNTS = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
BEST = "SELECT quantity, count(*) AS n FROM orders WHERE amount > 15 GROUP BY quantity"
QUERIES = {
    "either": f"SELECT n FROM ({COUNTS}) AS c UNION SELECT n + 1 FROM ({BEST}) AS b",
    "both": f"SELECT n FROM ({COUNTS}) AS c INTERSECT SELECT n FROM ({BEST}) AS b INTERSECT SELECT id FROM orders",
    "rest": f"SELECT n FROM ({COUNTS}) AS c EXCEPT SELECT n FROM ({BEST}) AS b",
    "nulls": "SELECT customer, quantity FROM orders WHERE amount > 8 INTERSECT "
    "SELECT customer, quantity FROM orders WHERE amount < 22",
    "customers": "SELECT customer FROM orders WHERE amount < 18 EXCEPT SELECT customer FROM orders WHERE quantity = 3 "
    "AND amount > 20",
    "often": "SELECT customer, count(*) AS times FROM (SELECT customer FROM orders WHERE quantity < 3 EXCEPT ALL "
    "SELECT customer FROM orders WHERE amount > 20) AS rest GROUP BY customer",
    "shared": f"SELECT n, count(*) AS times FROM (SELECT n FROM ({COUNTS}) AS c INTERSECT ALL "
    f"SELECT n FROM ({BEST}) AS b) AS rest GROUP BY n",
}


@pytest.mark.long
def test_a_set_operation_equals_duckdb_through_epochs_a_rollback_and_a_rescale(
    tmp_path: Path, in_process: Plane
) -> None:
    views = [f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in QUERIES.items()]
    job, runner = SqlJob(tmp_path, ";\n".join(views)), in_process()
    found = dict.fromkeys(QUERIES, 0)
    for _ in range(4):
        done = job.run(runner)
        for name, query in QUERIES.items():
            found[name] += job.check(name, query)
    assert all(found.values()), found
    roll_back(job.master, done.checkpoint_id - 1)
    job.rescale(3)
    job.run(runner)
    for name, query in QUERIES.items():
        job.check(name, query)
