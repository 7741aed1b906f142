"""Clicks of visitors who come and go: sessions, hours of pages with distinct visitors, and the most viewed pages."""

from __future__ import annotations

from pathlib import Path

import duckdb

from milepost_testkit.example_jobs.example_job import ExampleJob, Lot, Tables

PAGES = 200


def land(folder: Path, lot: Lot) -> None:
    """Write one object of clicks; one may come up to five minutes out of order, and is not late."""
    time = f"make_timestamp(({lot.time_us('i')} - hash(i, 1) % 300_000_000)::BIGINT)"
    rows = f"""SELECT 'v' || (hash(i, 2) % {max(10, lot.rows // 5)}) AS visitor,
            '/page-' || (hash(i, 3) % {PAGES} * (hash(i, 4) % {PAGES}) // {PAGES}) AS page,
            strftime({time}, '%Y-%m-%dT%H:%M:%S.%fZ') AS clicked_at
        FROM {lot.numbers}"""
    duckdb.sql(f"COPY ({rows}) TO '{folder / 'clicks' / lot.name}.csv' (FORMAT csv)")


def tables(connection: duckdb.DuckDBPyConnection, folder: Path, lots: list[Lot]) -> Tables:
    """Answer from the clicks: what of them the watermark is past."""
    files = [str(folder / "clicks" / f"{lot.name}.csv") for lot in lots]
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE clicks AS
        SELECT * FROM read_csv($files, types = {'clicked_at': 'TIMESTAMPTZ'})""",
        {"files": files},
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE mark AS
        SELECT max(clicked_at) - INTERVAL 10 MINUTE AS watermark FROM clicks"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE pages AS
        SELECT page, window_start, window_start + INTERVAL 1 HOUR AS window_end, count(*) AS views,
            count(DISTINCT visitor) AS visitors
        FROM (SELECT *, time_bucket(INTERVAL 1 HOUR, clicked_at) AS window_start FROM clicks), mark
        WHERE window_start + INTERVAL 1 HOUR <= watermark GROUP BY page, window_start"""
    )
    return {
        "visits": """SELECT visitor, min(clicked_at) AS window_start,
                max(clicked_at) + INTERVAL 10 MINUTE AS window_end, count(*) AS views, min(page) AS first_page
            FROM (SELECT *, sum(begins) OVER (PARTITION BY visitor ORDER BY clicked_at) AS visit
                  FROM (SELECT *, (clicked_at - lag(clicked_at) OVER (PARTITION BY visitor ORDER BY clicked_at)
                            < INTERVAL 10 MINUTE) IS NOT TRUE AS begins FROM clicks))
            GROUP BY visitor, visit
            HAVING max(clicked_at) + INTERVAL 10 MINUTE <= (SELECT watermark FROM mark)""",
        "pages": "FROM pages",
        "top_pages": """SELECT *,
                row_number() OVER (PARTITION BY window_start ORDER BY views DESC, page)::BIGINT AS place
            FROM pages QUALIFY place <= 3""",
    }


JOB = ExampleJob("clickstream", land, tables)
