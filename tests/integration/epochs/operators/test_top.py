"""Tables of `top` are DuckDB's ranking over the same files, and rows of every type are ordered as Spark orders them."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.job.spec import SparkSpec
from milepost.jobspec.load.load import load_job
from milepost.operators.rows.row_order import sorted_rows
from milepost.spark.driver.engines.session import open_session
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.deep


def over(files: Path, name: str, types: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """Open a database with the rows of CSV files as a table."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("read", database.read_csv(str(files / "*.csv"), dtype=types).to_arrow_table())
    database.execute(f"CREATE TABLE {name} AS FROM read")
    return database


def test_the_example_is_what_duckdb_finds_over_its_file(tmp_path: Path, plane: Plane) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "top.yaml"
    edit_spec(path, {"watermark_delay: 10m": "watermark_delay: 10m\n    settle: 0s"})
    master = JobMaster(load_job(str(path)))
    master.epochs.run(Session.cli(), plane())
    database = over(folder / "clicks", "clicks", {"clicked_at": "TIMESTAMPTZ"})
    expected = database.sql("""
        WITH hourly AS (
            SELECT page, date_trunc('HOUR', clicked_at) AS window_start, count(*) AS views FROM clicks GROUP BY ALL)
        SELECT page, window_start, window_start + INTERVAL 1 HOUR AS window_end, views,
            row_number() OVER (PARTITION BY window_start ORDER BY views DESC, page) AS place
        FROM hourly WHERE window_start + INTERVAL 70 MINUTES <= (SELECT max(clicked_at) FROM clicks)
        QUALIFY place <= 3""").to_arrow_table()
    found = master.reports.read("top_pages")
    assert_same_rows(found, expected.cast(found.schema), "top_pages")
    assert found.num_rows >= 6


def test_rows_are_ordered_as_spark_orders_them() -> None:
    """Nulls, NaN, infinities, texts by their bytes, dates before 1970, decimals and booleans, up and down."""
    nan, inf = float("nan"), float("inf")
    rows = pa.table(
        {
            "f": pa.array([nan, None, 0.0, -inf, inf, -1.5, nan, None], pa.float32()),
            "s": pa.array(["é", "z", None, "", "Z", "\U0001f600", "\uffff", "z "]),
            "d": pa.array([3, None, -4, 0, 1, 2, -1, -2], pa.date32()),
            "m": pa.array([None, 1, -1, 10, 9, 100, -100, 5], pa.int64()).cast(pa.decimal128(38, 0)),
            "b": pa.array([True, None, False, True, None, False, True, True]),
            "at": pa.array([5, None, -5, 0, 7, -7, 1, 2], pa.timestamp("us", "UTC")),
            "y": pa.array([b"\xff", None, b"", b"\x00", b"a", b"b", b"aa", b"\x7f"]),
            "n": pa.array(range(8), pa.int32()),
        }
    )
    orders = [(name, direction) for name in rows.column_names for direction in ("ASC", "DESC")]
    spark = open_session("top", SparkSpec(master="local[2]"))
    spark.createDataFrame(rows).createOrReplaceTempView("some")
    places = (f"row_number() OVER (ORDER BY {name} {direction}, n) AS {name}_{direction}" for name, direction in orders)
    placed = spark.sql(f"SELECT n, {', '.join(places)} FROM some").toArrow()
    group = np.zeros(8, dtype=np.int64)
    for name, direction in orders:
        order, _ = sorted_rows(rows, group, ((name, direction == "DESC"), ("n", False)))
        assert order.tolist() == placed.sort_by(f"{name}_{direction}")["n"].to_pylist(), (name, direction)


REVENUE = """
name: best
storage: store
sources:
  orders:
    format: csv
    path: orders/*.csv
    schema: {order: int64, customer: string, amount: "decimal(12, 2)", ordered_at: "timestamp[us, UTC]"}
    settle: 0s
operators:
  - {uid: timed, kind: sql, inputs: [orders], sql: "SELECT *, date_trunc('HOUR', ordered_at) AS hour FROM orders"}
  - {uid: once, kind: deduplicate, inputs: [timed], key: [order]}
  - {uid: large, kind: sql, inputs: [once], sql: "SELECT order, amount FROM once WHERE amount > 150"}
  - {uid: revenue, kind: aggregate, inputs: [timed], key: [hour, customer], aggregates: {revenue: sum(amount)}}
  - {uid: best, kind: top, inputs: [revenue], key: [hour], order_by: [{revenue: desc}], n: 2, rank: place}
  - {uid: counts, kind: top, inputs: [revenue], key: [customer], order_by: [hour], n: 9, rank: hour_of_customer}
sinks:
  - {name: large, input: large, format: parquet, path: lake/large, mode: append}
  - {name: revenue, input: revenue, format: parquet, path: lake/revenue, mode: upsert}
  - {name: best, input: best, format: parquet, path: lake/best, mode: upsert}
  - {name: counts, input: counts, format: parquet, path: lake/counts, mode: upsert}
spark: {master: "local[2]"}
"""


RANKINGS = {
    "revenue": "FROM revenue",
    "best": """SELECT *, row_number() OVER (PARTITION BY hour ORDER BY revenue DESC, customer) AS place FROM revenue
        QUALIFY place <= 2""",
    "counts": """SELECT *, row_number() OVER (PARTITION BY customer ORDER BY hour) AS hour_of_customer FROM revenue
        QUALIFY hour_of_customer <= 9""",
}


def test_two_rankings_behind_an_aggregate_are_duckdbs_answer_epoch_after_epoch(tmp_path: Path, plane: Plane) -> None:
    """With SQL on the level of the aggregate: its retractions pass the projection as all rows do."""
    (tmp_path / "orders").mkdir()
    path = tmp_path / "best.yaml"
    path.write_text(REVENUE)
    lines = (EXAMPLES / "shop" / "orders" / "2026-03-01.csv").read_text().splitlines()
    runner = plane()
    for epoch in range(2):
        part = "\n".join([lines[0], *lines[1 + epoch :: 2]])
        (tmp_path / "orders" / f"{epoch}.csv").write_text(part + "\n")
        master = JobMaster(load_job(str(path)))
        master.epochs.run(Session.cli(), runner)
        database = over(tmp_path / "orders", "orders", {"amount": "DECIMAL(12, 2)", "ordered_at": "TIMESTAMPTZ"})
        database.execute("""CREATE TABLE revenue AS SELECT date_trunc('HOUR', ordered_at) AS hour, customer,
            sum(amount) AS revenue FROM orders GROUP BY ALL""")
        for name, ranking in RANKINGS.items():
            found = master.reports.read(name)
            assert_same_rows(found, database.sql(ranking).to_arrow_table().cast(found.schema), name)
