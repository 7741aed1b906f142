"""Jobs in SQL: over several epochs, a rollback and edits, each table equals DuckDB's answer to its query."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import COMPATIBLE, compare_signatures
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

STATEMENTS: dict[str, tuple[str, str]] = {
    "large": (
        ("CREATE STREAMING TABLE large AS SELECT id, upper(customer) AS buyer, amount * 2 AS twice FROM orders "
        "WHERE amount > 10 AND (quantity IS NULL OR quantity < 4)"),
        ("SELECT id, upper(customer) AS buyer, amount * 2 AS twice FROM orders "
        "WHERE amount > 10 AND (quantity IS NULL OR quantity < 4)"),
    ),
    "paid": (
        ("CREATE STREAMING TABLE paid AS SELECT o.id, o.customer, p.amount AS paid, method FROM orders o "
        "JOIN payments p ON o.id = p.order_id "
        "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTES"),
        ("SELECT o.id, o.customer, p.amount AS paid, method FROM orders o "
        "JOIN payments p ON o.id = p.order_id "
        "AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTES"),
    ),
    "by_method": (
        ("CREATE MATERIALIZED VIEW by_method AS SELECT method, count(*) AS n, sum(paid) AS total, avg(paid) AS mean, "
        "count(DISTINCT customer) AS customers, max(paid) - min(paid) AS spread, "
        "count(*) FILTER (WHERE paid > 10) AS large FROM paid GROUP BY method HAVING count(*) > 2"),
        ("SELECT method, count(*) AS n, CAST(sum(paid) AS DECIMAL(20, 2)) AS total, "
        "CAST(sum(paid) / count(paid) AS DECIMAL(14, 6)) AS mean, count(DISTINCT customer) AS customers, "
        "max(paid) - min(paid) AS spread, count(*) FILTER (WHERE paid > 10) AS large FROM ({paid}) "
        "GROUP BY method HAVING count(*) > 2"),
    ),
    "sizes": (
        "CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS methods FROM by_method GROUP BY 1",
        "SELECT n, count(*) AS methods FROM ({by_method}) GROUP BY 1",
    ),
    "hourly": (
        ("CREATE MATERIALIZED VIEW hourly AS SELECT window.start AS begins, customer, count(*) AS n, "
        "sum(coalesce(quantity, 0) + 1) AS units FROM orders GROUP BY window(ordered_at, '20 minutes'), customer"),
        ("SELECT time_bucket(INTERVAL 20 MINUTES, ordered_at) AS begins, customer, count(*) AS n, "
        "CAST(sum(coalesce(quantity, 0) + 1) AS BIGINT) AS units FROM orders GROUP BY 1, 2 "
        "HAVING begins + INTERVAL 20 MINUTES <= (SELECT max(ordered_at) FROM orders)"),
    ),
    "newest": (
        ("CREATE MATERIALIZED VIEW newest AS SELECT customer, id, amount FROM orders WHERE customer IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY ordered_at DESC, id DESC) = 1"),
        ("SELECT customer, id, amount FROM orders WHERE customer IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY ordered_at DESC, id DESC) = 1"),
    ),
    "dearest": (
        ("CREATE MATERIALIZED VIEW dearest AS SELECT customer, id, rn FROM "
        "(SELECT *, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS rn FROM orders) AS ranked "
        "WHERE rn <= 3"),
        ("SELECT customer, id, CAST(rn AS INTEGER) AS rn FROM (SELECT *, row_number() OVER (PARTITION BY customer "
        "ORDER BY amount DESC, id) AS rn FROM orders) WHERE rn <= 3"),
    ),
    "located": (
        "CREATE STREAMING TABLE located AS SELECT o.id, c.country FROM orders o LEFT JOIN countries c USING (customer)",
        "SELECT o.id, c.country FROM orders o LEFT JOIN countries c USING (customer)",
    ),
    "seen": (
        ("CREATE STREAMING TABLE seen AS WITH orders AS (SELECT customer, quantity FROM orders WHERE amount > 5) "
        "SELECT DISTINCT * FROM orders UNION SELECT customer, 7 FROM orders"),
        "SELECT customer, quantity FROM orders WHERE amount > 5 UNION SELECT customer, 7 FROM orders WHERE amount > 5",
    ),
    "both": (
        "CREATE STREAMING TABLE both AS SELECT id, amount FROM orders UNION ALL SELECT order_id, amount FROM payments",
        "SELECT id, amount FROM orders UNION ALL SELECT order_id, amount FROM payments",
    ),
    "overall": (
        ("CREATE MATERIALIZED VIEW overall AS SELECT count(*) AS n, sum(quantity) AS units, max_by(id, amount) AS best "
        "FROM orders"),
        "SELECT count(*) AS n, CAST(sum(quantity) AS BIGINT) AS units, arg_max(id, amount) AS best FROM orders",
    ),
    "spent": (
        ("CREATE MATERIALIZED VIEW spent AS SELECT customer AS who, sum(amount) AS spent, count(*) AS n FROM orders "
        "GROUP BY customer"),
        "SELECT customer AS who, CAST(sum(amount) AS DECIMAL(20,2)) AS spent, count(*) AS n FROM orders GROUP BY 1",
    ),
    "current_orders": (
        ("CREATE MATERIALIZED VIEW current_orders AS SELECT id, customer, amount FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"),
        "SELECT id, customer, amount FROM orders",
    ),
    "rich": (
        ("CREATE MATERIALIZED VIEW rich AS SELECT o.id, s.spent FROM current_orders o "
        "JOIN spent s ON o.customer = s.who"),
        "SELECT o.id, s.spent FROM ({current_orders}) o JOIN ({spent}) s ON o.customer = s.who",
    ),
    "compared": (
        ("CREATE MATERIALIZED VIEW compared AS SELECT o.id, s.spent, s.who FROM current_orders o LEFT JOIN spent s "
        "ON o.customer = s.who AND o.amount < s.spent - 60"),
        ("SELECT o.id, s.spent, s.who FROM ({current_orders}) o LEFT JOIN ({spent}) s "
        "ON o.customer = s.who AND o.amount < s.spent - 60"),
    ),
    "chained": (
        ("CREATE MATERIALIZED VIEW chained AS SELECT o.id, s.spent, t.n, u.n AS m FROM current_orders o "
        "LEFT JOIN spent s ON lower(o.customer) = s.who AND s.n > 5 LEFT JOIN spent t ON lower(o.customer) = t.who "
        "LEFT JOIN spent u ON s.who = u.who AND t.n <= u.n"),
        ("SELECT o.id, s.spent, t.n, u.n AS m FROM ({current_orders}) o LEFT JOIN ({spent}) s "
        "ON lower(o.customer) = s.who AND s.n > 5 LEFT JOIN ({spent}) t ON lower(o.customer) = t.who "
        "LEFT JOIN ({spent}) u ON s.who = u.who AND t.n <= u.n"),
    ),
    "unpaid": (
        ("CREATE MATERIALIZED VIEW unpaid AS SELECT id, amount FROM current_orders o WHERE amount > 5 AND NOT EXISTS "
        "(SELECT 1 FROM payments WHERE order_id = o.id AND amount < 20)"),
        ("SELECT id, amount FROM ({current_orders}) o WHERE amount > 5 AND NOT EXISTS "
        "(SELECT 1 FROM payments p WHERE order_id = o.id AND p.amount < 20)"),
    ),
    "paying": (
        ("CREATE STREAMING TABLE paying AS SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments "
        "WHERE method = 'card') AND quantity > 1"),
        "SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments WHERE method = 'card') AND quantity > 1",
    ),
    "pairs": (
        ("CREATE STREAMING TABLE pairs AS SELECT o.id, p.amount FROM orders o, payments p "
        "WHERE o.id = p.order_id AND p.amount > o.amount"),
        "SELECT o.id, p.amount FROM orders o, payments p WHERE o.id = p.order_id AND p.amount > o.amount",
    ),
    "best": (
        "CREATE MATERIALIZED VIEW best AS SELECT who, spent FROM spent ORDER BY spent DESC, who LIMIT 3",
        "SELECT who, spent FROM ({spent}) ORDER BY spent DESC, who NULLS FIRST LIMIT 3",
    ),
    "places": (
        ("CREATE MATERIALIZED VIEW places AS SELECT customer, row_number() OVER (ORDER BY sum(amount) DESC) AS place "
        "FROM orders GROUP BY customer QUALIFY place <= 2"),
        ("SELECT customer, CAST(row_number() OVER (ORDER BY sum(amount) DESC) AS INTEGER) AS place FROM orders "
        "GROUP BY customer QUALIFY place <= 2"),
    ),
    "ranked": (
        ("CREATE MATERIALIZED VIEW ranked AS SELECT who, n, rank() OVER (ORDER BY n DESC) AS r FROM spent "
        "QUALIFY r <= 3"),
        "SELECT who, n, CAST(rank() OVER (ORDER BY n DESC) AS INTEGER) AS r FROM ({spent}) QUALIFY r <= 3",
    ),
    "share": (
        ("CREATE MATERIALIZED VIEW share AS WITH total AS (SELECT sum(n) AS total FROM spent) "
        "SELECT who, n, total FROM spent CROSS JOIN total WHERE who IS NOT NULL"),
        "SELECT who, n, CAST((SELECT sum(n) FROM ({spent})) AS BIGINT) AS total FROM ({spent}) WHERE who IS NOT NULL",
    ),
    "newest_order": (
        ("CREATE STREAMING TABLE newest_order; CREATE FLOW changes AS AUTO CDC INTO newest_order FROM STREAM orders "
        "KEYS (customer) APPLY AS DELETE WHEN quantity = 0 SEQUENCE BY ordered_at COLUMNS * EXCEPT (quantity)"),
        ("SELECT * EXCLUDE (quantity) FROM (SELECT * FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY ordered_at DESC) = 1) "
        "WHERE quantity IS DISTINCT FROM 0"),
    ),
    "versions": (
        ("CREATE STREAMING TABLE versions; CREATE FLOW each AS AUTO CDC INTO versions FROM orders KEYS (customer) "
        "APPLY AS DELETE WHEN quantity = 0 SEQUENCE BY ordered_at COLUMNS (customer, quantity) STORED AS SCD TYPE 2"),
        ("WITH kept AS (SELECT *, lag(quantity) OVER keys IS NOT DISTINCT FROM quantity "
        "AND row_number() OVER keys > 1 AS same FROM orders "
        "WINDOW keys AS (PARTITION BY customer ORDER BY ordered_at)) "
        "SELECT * FROM (SELECT customer, quantity, ordered_at AS valid_from, "
        "lead(ordered_at) OVER (PARTITION BY customer ORDER BY ordered_at) AS valid_to, valid_to IS NULL AS is_current "
        "FROM kept WHERE NOT same) "
        "WHERE quantity IS DISTINCT FROM 0"),
    ),
    "visits": (
        ("CREATE STREAMING TABLE visits AS SELECT customer, session_window.start AS began, "
        "session_window(ordered_at, '8 minutes').end AS ended, count(*) AS n FROM orders "
        "GROUP BY customer, session_window(ordered_at, '8 minutes')"),
        ("SELECT customer, min(ordered_at) AS began, max(ordered_at) + INTERVAL 8 MINUTES AS ended, count(*) AS n FROM "
        "(SELECT *, count(*) FILTER (ordered_at - before > INTERVAL 8 MINUTES) "
        "OVER (PARTITION BY customer ORDER BY ordered_at) AS session "
        "FROM (SELECT *, lag(ordered_at) OVER (PARTITION BY customer ORDER BY ordered_at) AS before FROM orders)) "
        "GROUP BY customer, session HAVING ended < (SELECT max(ordered_at) FROM orders)"),
    ),
}  # fmt: skip
"""Table -> (its statement, DuckDB's query, in which {name} is the query of another table)."""
QUERIES: dict[str, str] = {}
for name, (_, query) in STATEMENTS.items():
    QUERIES[name] = query.format(**QUERIES)
GROUPS = (
    ("large", "hourly", "newest", "both"),
    ("paid", "by_method", "sizes"),
    ("dearest", "located", "seen", "overall"),
    ("spent", "current_orders", "rich", "compared", "chained"),
    ("current_orders", "unpaid", "paying", "pairs"),
    ("spent", "best", "places", "ranked", "share"),
    ("newest_order", "versions", "visits"),
)


def sql_of(*names: str) -> str:
    return ";\n".join(STATEMENTS[name][0] for name in names or STATEMENTS)


def check(job: SqlJob, *names: str) -> None:
    for table in names or QUERIES:
        assert job.check(table, QUERIES[table]) or table in ("sizes", "by_method")


@pytest.mark.parametrize(
    "names",
    [names if number in (1, 3) else pytest.param(names, marks=pytest.mark.deep) for number, names in enumerate(GROUPS)],
    ids=" ".join,
)
def test_every_table_equals_its_query_after_every_epoch(
    names: tuple[str, ...], tmp_path: Path, in_process: Plane
) -> None:
    job, runner = SqlJob(tmp_path, sql_of(*names)), in_process()
    for _ in range(2):
        job.run(runner)
        check(job, *names)


@pytest.mark.deep
def test_every_table_equals_its_query_through_epochs_a_rollback_and_a_backfill(tmp_path: Path, plane: Plane) -> None:
    job, runner = SqlJob(tmp_path, sql_of()), plane()
    for _ in range(4):
        done = job.run(runner)
        check(job)
    roll_back(job.master, done.checkpoint_id - 2)
    job.run(runner)
    check(job)
    back_fill(job.master, runner, from_checkpoint=0)
    check(job)


EDITS = {
    "a comment and white space": (
        "CREATE MATERIALIZED VIEW overall AS",
        "-- all\nCREATE  MATERIALIZED VIEW overall\nAS",
    ),
    "HAVING": ("HAVING count(*) > 2", "HAVING count(*) > 3"),
    "an aggregate": ("max(paid) - min(paid) AS spread", "max(paid) AS spread"),
    "a filter before the state": ("WHERE amount > 5)", "WHERE amount > 6)"),
    "a filter before a table of appended rows": ("WHERE amount > 10 AND", "WHERE amount > 11 AND"),
    "the time bound of a join": ("INTERVAL 30 MINUTES", "INTERVAL 20 MINUTES"),
    "the size of windows": ("'20 minutes'", "'30 minutes'"),
    "the order of a ranking": ("ORDER BY amount DESC, id)", "ORDER BY amount, id)"),
    "a function of an output column": ("upper(customer)", "lower(customer)"),
    "a join with a static source": ("LEFT JOIN countries", "JOIN countries"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_continues_the_state_only_if_the_table_still_equals_the_query(edit: str, tmp_path: Path) -> None:
    before, after = EDITS[edit]
    assert before in sql_of()
    job = SqlJob(tmp_path, sql_of())
    signatures = job.signatures()
    job.write(sql_of().replace(before, after))
    changed = [one for one in compare_signatures(signatures, job.signatures()) if one["verdict"] != COMPATIBLE]
    assert bool(changed) == (edit != "a comment and white space")
    assert all("its query changed" in one["detail"] for one in changed)


@pytest.mark.deep
def test_a_backfill_makes_the_table_equal_to_the_edited_query(tmp_path: Path, in_process: Plane) -> None:
    sql = sql_of("paid", "by_method", "sizes")
    job, runner = SqlJob(tmp_path, sql), in_process()
    for _ in range(2):
        job.run(runner)
    before, after = "FROM paid GROUP BY", "FROM paid WHERE paid > 5 GROUP BY"
    job.write(sql.replace(before, after))
    with pytest.raises(InvalidRequest, match=r"sink by_method: needs a backfill .*its query changed") as refused:
        job.run(runner)
    assert "milepost backfill shop --from-checkpoint 0" in str(refused.value.hint)
    back_fill(job.master, runner, from_checkpoint=0)
    edited = QUERIES["by_method"].replace("GROUP BY method", "WHERE paid > 5 GROUP BY method")
    job.run(runner)
    job.check("by_method", edited)
    job.check("sizes", STATEMENTS["sizes"][1].format(by_method=edited))


def test_a_new_statement_is_refused_where_it_would_lack_rows_and_filled_where_it_would_not(
    tmp_path: Path, in_process: Plane
) -> None:
    sql = sql_of("paid", "by_method")
    job, runner = SqlJob(tmp_path, sql), in_process()
    job.run(runner)
    job.write(f"{sql};\nCREATE MATERIALIZED VIEW units AS SELECT sum(quantity) AS units FROM orders")
    with pytest.raises(InvalidRequest, match=r"units__agg: needs a backfill or --from-now-on .*would be missing"):
        job.run(runner)
    job.write(f"{sql};\nCREATE MATERIALIZED VIEW most AS SELECT method, n FROM by_method WHERE n > 3")
    job.run(runner)
    job.check("most", f"SELECT method, n FROM ({QUERIES['by_method']}) WHERE n > 3")
