"""Joins with times that each left row has: through a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

DUE = """SELECT *, CASE WHEN quantity > 2 THEN ordered_at + INTERVAL 40 MINUTES
        WHEN quantity IS NOT NULL THEN ordered_at + INTERVAL 10 MINUTES END AS due, CASE id % 4
        WHEN 0 THEN ordered_at + INTERVAL 9 MINUTES WHEN 1 THEN ordered_at - INTERVAL 9 MINUTES
        WHEN 2 THEN ordered_at + INTERVAL 50 MINUTES END AS opens FROM orders"""
INNER = {
    "paid": """SELECT o.id, o.due, p.amount FROM o JOIN payments p ON o.id = p.order_id
        WHERE p.paid_at BETWEEN o.ordered_at AND o.due AND p.amount > o.amount""",
    "before": """SELECT o.id, p.amount FROM o, payments p
        WHERE o.id = p.order_id AND p.paid_at >= o.ordered_at + INTERVAL 2 MINUTES AND p.paid_at < o.due""",
    "later": """SELECT o.id, p.paid_at FROM o JOIN payments p ON o.id = p.order_id
        AND o.ordered_at <= p.paid_at AND o.due + INTERVAL 10 MINUTES >= p.paid_at""",
    "capped": """SELECT o.id, p.paid_at FROM o JOIN payments p ON o.id = p.order_id
        AND p.paid_at BETWEEN o.ordered_at AND o.due AND p.paid_at <= o.ordered_at + INTERVAL 30 MINUTES""",
    "opened": """SELECT o.id, p.paid_at FROM o JOIN payments p ON o.id = p.order_id
        AND p.paid_at >= o.ordered_at AND p.paid_at BETWEEN o.opens AND o.ordered_at + INTERVAL 40 MINUTES""",
    "open": """SELECT o.id, o.due FROM o WHERE EXISTS (SELECT 1 FROM payments p WHERE o.id = p.order_id
        AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 1 HOUR AND p.paid_at > o.opens)""",
    "known": """SELECT o.id, o.due FROM o WHERE EXISTS (
        SELECT 1 FROM payments p WHERE o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.due)""",
}
OUTER = (
    {
        how: f"""SELECT o.id, o.ordered_at, p.order_id, p.paid_at FROM o {how} JOIN payments p ON o.id = p.order_id
        AND p.paid_at BETWEEN o.ordered_at AND o.due"""
        for how in ("left", "right", "full")
    }
    | {
        f"{how}_opened": f"""SELECT o.id, o.ordered_at, p.order_id, p.paid_at FROM o {how} JOIN payments p
        ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 40 MINUTES
        AND p.paid_at BETWEEN o.opens AND o.due"""
        for how in ("left", "right", "full")
    }
    | {
        "anti": """SELECT o.id, o.ordered_at, o.id AS order_id, o.ordered_at AS paid_at FROM o WHERE NOT EXISTS (
        SELECT 1 FROM payments p WHERE o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.due)""",
    }
)


def created(folder: Path, queries: dict[str, str]) -> SqlJob:
    tables = [f"CREATE STREAMING TABLE {name}_orders AS {query}" for name, query in queries.items()]
    job = SqlJob(folder, ";\n".join([f"CREATE TEMPORARY VIEW o AS {DUE}", *tables]))
    job.database.execute(f"CREATE VIEW o AS {DUE}")
    return job


@pytest.mark.long
def test_pairs_until_a_rows_own_time_equal_duckdb_through_a_rollback_and_a_rescale(
    tmp_path: Path, in_process: Plane
) -> None:
    job, runner = created(tmp_path, INNER), in_process()
    found = dict.fromkeys(INNER, 0)
    for _ in range(3):
        done = job.run(runner)
        for name, query in INNER.items():
            found[name] += job.check(f"{name}_orders", query)
    assert all(found.values()), found
    roll_back(job.master, done.checkpoint_id - 1)
    job.rescale(3)
    job.run(runner)
    for name, query in INNER.items():
        job.check(f"{name}_orders", query)


@pytest.mark.long
def test_unmatched_rows_equal_duckdb_once_their_own_time_has_passed(tmp_path: Path, in_process: Plane) -> None:
    job, runner = created(tmp_path, OUTER), in_process()
    for _ in range(4):
        job.run(runner)
    final = "coalesce(ordered_at, paid_at) < (SELECT max(ordered_at) FROM orders) - INTERVAL 2 HOURS"
    for name, query in OUTER.items():
        job.database.register("shown", job.master.reports.read(f"{name}_orders"))
        sides = f"SELECT * FROM shown WHERE {final}", f"SELECT * FROM ({query}) WHERE {final}"
        for one, other in (sides, sides[::-1]):
            assert not job.database.sql(f"({one}) EXCEPT ALL ({other})").fetchall(), name
        ((unmatched,),) = job.database.sql(
            f"SELECT count(*) FROM ({sides[0]}) WHERE id IS NULL OR paid_at IS NULL OR '{name}' = 'anti'"
        ).fetchall()
        assert unmatched > 5, name
