"""RIGHT and FULL JOIN: through retractions, a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

VIEWS = {
    "l": "SELECT customer AS who, count(*) AS n FROM orders WHERE amount > 26 GROUP BY customer",
    "r": "SELECT customer AS who, count(*) AS m, max(quantity) AS most FROM orders WHERE quantity > 3 GROUP BY 1",
    "l_named": "SELECT who, n FROM l WHERE who IS NOT NULL",
    "r_named": "SELECT who, m FROM r WHERE who IS NOT NULL",
    "k": "SELECT concat('c', quantity) AS who, count(*) AS o FROM orders WHERE quantity IS NOT NULL GROUP BY 1",
}
QUERIES = {
    "right_side": "SELECT l.who, l.n, r.who AS other, r.m FROM l RIGHT JOIN r ON l.who = r.who AND l.n > 1",
    "both_sides": "SELECT l.who, r.who AS other, n, m FROM l_named l FULL JOIN r ON l.who = r.who AND n <= m",
    "merged": "SELECT who, n, m FROM l_named FULL JOIN r_named USING (who)",
    "three": (
        "SELECT who, n, m, o FROM l_named FULL JOIN r_named USING (who) FULL JOIN "
        "(SELECT who, o FROM k WHERE who IS NOT NULL) AS named USING (who) WHERE m IS NULL OR n IS NULL OR o < 9"
    ),
    "by_right": "SELECT who, n, m FROM l RIGHT JOIN r USING (who)",
    "unlike_types": "SELECT l.who, l.n, r.who AS other, r.most FROM l RIGHT JOIN r ON l.n = r.most",
    "totals": "SELECT count(*) AS o, count(l.who) AS lefts, count(r.who) AS rights FROM l FULL OUTER JOIN r ON n = m",
    "filtered": "SELECT l.who, r.who AS other, l.n, r.m FROM l FULL JOIN r_named r ON l.who = r.who "
    "WHERE l.n > 1 AND m IS NULL",
}


@pytest.mark.long
@pytest.mark.parametrize("names", [[*QUERIES][:4], [*QUERIES][4:]], ids=" ".join)
def test_an_outer_join_equals_duckdb_through_epochs_a_rollback_and_a_rescale(
    names: list[str], tmp_path: Path, in_process: Plane
) -> None:
    views = [f"CREATE TEMPORARY VIEW {name} AS {query}" for name, query in VIEWS.items()]
    tables = [f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}" for name in names]
    job, runner = SqlJob(tmp_path, ";\n".join(views + tables)), in_process()
    for name, query in VIEWS.items():
        job.database.execute(f"CREATE VIEW {name} AS {query}")
    counts = dict.fromkeys(names, 0)
    for _ in range(3):
        done = job.run(runner)
        for name in names:
            counts[name] += job.check(name, QUERIES[name])
    assert all(counts.values()), counts
    roll_back(job.master, done.checkpoint_id - 1)
    job.rescale(3)
    job.run(runner)
    for name in names:
        job.check(name, QUERIES[name])


@pytest.mark.deep
def test_an_outer_join_with_time_bounds_equals_duckdb_once_no_match_can_arrive(
    tmp_path: Path, in_process: Plane
) -> None:
    query = (
        "SELECT o.id, o.ordered_at, p.order_id, p.paid_at FROM orders o {} JOIN payments p ON o.id = p.order_id "
        "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTES"
    )
    tables = [f"CREATE STREAMING TABLE {how}_side AS {query.format(how)}" for how in ("right", "full")]
    job, runner = SqlJob(tmp_path, ";\n".join(tables)), in_process()
    for _ in range(4):
        job.run(runner)
    final = "coalesce(ordered_at, paid_at) < (SELECT max(ordered_at) FROM orders) - INTERVAL 2 HOURS"
    for how in ("right", "full"):
        job.database.register("shown", job.master.reports.read(f"{how}_side"))
        sides = f"SELECT * FROM shown WHERE {final}", f"SELECT * FROM ({query.format(how)}) WHERE {final}"
        for one, other in (sides, sides[::-1]):
            assert not job.database.sql(f"({one}) EXCEPT ALL ({other})").fetchall()
        ((unmatched,),) = job.database.sql(
            f"SELECT count(*) FROM ({sides[0]}) WHERE id IS NULL OR paid_at IS NULL"
        ).fetchall()
        assert unmatched > 5
