"""A change feed of orders as a table of the current ones: rows arrive out of order, twice, and with deletes first.

Revenue per day follows it: an order's day is mostly the same; some move to days with few orders, which come and go.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from milepost_testkit.example_jobs.example_job import ExampleJob, Lot, Tables


def land(folder: Path, lot: Lot) -> None:
    """Write one object of changes: of an order about three, near each other; a tenth are deletes, some come twice."""
    rows = f"""SELECT i // 3 - (hash(i, 1) % 40)::BIGINT AS order_id,
            DATE '2026-02-01' + ((i // 3 - (hash(i, 1) % 40)::BIGINT) % CASE hash(i, 9) % 20 WHEN 0 THEN 900 ELSE 5 END
                )::INTEGER AS ordered_on,
            'customer-' || (hash(i, 2) % 50) AS customer,
            ((hash(i, 3) % 100_000)::DECIMAL(10, 2) / 100)::DECIMAL(10, 2) AS amount,
            CASE hash(i, 4) % 3 WHEN 0 THEN 'open' WHEN 1 THEN 'paid' ELSE 'sent' END AS status,
            CASE hash(i, 5) % 10 WHEN 0 THEN 'D' WHEN 1 THEN 'I' ELSE 'U' END AS op,
            i // 2 - (hash(i, 6) % 30)::BIGINT AS lsn,
            strftime(make_timestamp(({lot.time_us("i")})::BIGINT), '%Y-%m-%dT%H:%M:%S.%fZ') AS changed_at
        FROM (SELECT i, unnest(range(CASE hash(i, 7) % 50 WHEN 0 THEN 2 ELSE 1 END)) FROM {lot.numbers})
        ORDER BY hash(i, 8)"""
    duckdb.sql(f"COPY ({rows}) TO '{folder / 'changes' / f'{lot.name}.csv'}' (FORMAT csv, HEADER true)")


def tables(connection: duckdb.DuckDBPyConnection, folder: Path, lots: list[Lot]) -> Tables:
    """Answer from the files: the newest row of each order, of as new ones a delete, then the greatest one."""
    files = [str(folder / "changes" / f"{lot.name}.csv") for lot in lots]
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE orders AS
        SELECT order_id, ordered_on, customer, amount, status FROM (
            SELECT * FROM read_csv($files, header = true, types = {'amount': 'DECIMAL(10, 2)'})
            QUALIFY row_number() OVER (PARTITION BY order_id
                ORDER BY lsn DESC, op = 'D' DESC, ordered_on DESC, customer DESC, amount DESC, status DESC) = 1)
        WHERE op <> 'D'""",
        {"files": files},
    )
    still_open = """SELECT order_id, customer, amount, round(amount * 0.19, 2)::DECIMAL(14, 2) AS tax FROM orders
        WHERE status = 'open'"""
    return {
        "orders": "SELECT order_id, ordered_on, customer, amount, status FROM orders",
        "open_orders": still_open,
        "revenue": """SELECT ordered_on, count(*) AS orders, sum(amount)::DECIMAL(20, 2) AS revenue
            FROM orders GROUP BY ordered_on""",
    }


JOB = ExampleJob("orders", land, tables)
