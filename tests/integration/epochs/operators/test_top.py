"""The example of `top` runs on Spark, its table is Spark's own ranking, and so is the order of every type."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from milepost.dataflow.operators.rows.row_order import sorted_rows
from milepost.jobmaster.jobmaster import JobMaster, Session
from milepost.spark.driver.engines.session import open_session
from milepost.spark.driver.runner import SparkEpochRunner
from milepost.spec.job.spec import SparkSpec
from milepost.spec.load.load import load_job
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec


def session() -> SparkSession:
    return open_session("top", SparkSpec(master="local[2]"))


def test_the_example_is_what_spark_finds_over_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "top.yaml"
    edit_spec(path, {"watermark_delay: 10m": "watermark_delay: 10m\n    settle: 0s"})
    master = JobMaster(load_job(str(path)))
    master.run(Session.cli(), SparkEpochRunner())
    clicks = session().read.csv(
        str(folder / "clicks"), header=True, schema="visitor string, page string, clicked_at timestamp"
    )
    clicks.createOrReplaceTempView("clicks")
    expected = session().sql("""
        WITH hourly AS (
            SELECT page, date_trunc('HOUR', clicked_at) AS window_start,
                window_start + INTERVAL 1 HOUR AS window_end, count(*) AS views
            FROM clicks GROUP BY 1, 2
            HAVING window_end <= (SELECT max(clicked_at) - INTERVAL 10 MINUTES FROM clicks))
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY views DESC, page) AS place FROM hourly)
        WHERE place <= 3""")
    found = master.read("top_pages")
    assert_same_rows(found, expected.toArrow().cast(found.schema), "top_pages")
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
    session().createDataFrame(rows).createOrReplaceTempView("some")
    group = np.zeros(8, dtype=np.int64)
    for name in rows.column_names:
        for descends in (False, True):
            order, _ = sorted_rows(rows, group, ((name, descends), ("n", False)))
            direction = "DESC" if descends else "ASC"
            spark = (
                session().sql(f"SELECT n FROM some ORDER BY {name} {direction}, n").toArrow().column("n").to_pylist()
            )
            assert order.tolist() == spark, (name, direction)


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


def test_two_rankings_behind_an_aggregate_are_sparks_answer_epoch_after_epoch(tmp_path: Path) -> None:
    """Beside SQL on the level of the aggregate: what it takes back goes through the frame of Spark, as all rows do."""
    (tmp_path / "orders").mkdir()
    path = tmp_path / "best.yaml"
    path.write_text(REVENUE)
    lines = (EXAMPLES / "shop" / "orders" / "2026-03-01.csv").read_text().splitlines()
    runner = SparkEpochRunner()
    for epoch in range(2):
        part = "\n".join([lines[0], *lines[1 + epoch :: 2]])
        (tmp_path / "orders" / f"{epoch}.csv").write_text(part + "\n")
        master = JobMaster(load_job(str(path)))
        master.run(Session.cli(), runner)
        schema = "order long, customer string, amount decimal(12, 2), ordered_at timestamp"
        orders = session().read.csv(str(tmp_path / "orders"), header=True, schema=schema)
        orders.createOrReplaceTempView("orders")
        session().sql("""SELECT date_trunc('HOUR', ordered_at) AS hour, customer, sum(amount) AS revenue FROM orders
            GROUP BY 1, 2""").createOrReplaceTempView("revenue")
        for name, ranking, most in (
            ("best", "row_number() OVER (PARTITION BY hour ORDER BY revenue DESC, customer) AS place", 2),
            ("counts", "row_number() OVER (PARTITION BY customer ORDER BY hour) AS hour_of_customer", 9),
        ):
            rank = ranking.rpartition(" ")[2]
            expected = session().sql(f"SELECT * FROM (SELECT *, {ranking} FROM revenue) WHERE {rank} <= {most}")
            found = master.read(name)
            assert_same_rows(found, expected.toArrow().cast(found.schema), name)
        assert_same_rows(
            master.read("revenue"), session().table("revenue").toArrow().cast(master.read("revenue").schema), "revenue"
        )
