"""The tables of the example of a join are DuckDB's answer over its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.deep

PAID = """
SELECT o.*, p.payment, p.paid, p.paid_at FROM orders o JOIN payments p ON o."order" = p.order_id
WHERE p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTE
"""


def test_the_example_of_a_join_is_what_duckdb_finds(tmp_path: Path, plane: Plane) -> None:
    """Orders and payments in two epochs each, the payments first; then the job ends, and its windows are emitted."""
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "join.yaml"
    edit_spec(path, {"watermark_delay: 10m": "watermark_delay: 10m\n    settle: 0s"})
    held_back = tmp_path / "orders.csv"
    orders = folder / "shop" / "orders" / "2026-03-01.csv"
    shutil.move(orders, held_back)
    master, runner = JobMaster(load_job(str(path))), plane()
    master.epochs.run(Session.cli(), runner)
    shown = milepost("state", path, "paid.right")
    assert shown.exit_code == 0 and "order_id" in shown.stdout and not master.reports.state("paid.left").num_rows
    shutil.copy(held_back, orders)
    master.epochs.run(Session.cli(), runner)
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, file, types in (
        ("orders", held_back, {"amount": "DECIMAL(12, 2)", "ordered_at": "TIMESTAMPTZ"}),
        ("payments", folder / "shop" / "payments" / "2026-03-01.csv",
         {"paid": "DECIMAL(12, 2)", "paid_at": "TIMESTAMPTZ"}),
    ):  # fmt: skip
        database.register(f"{name}_read", database.read_csv(str(file), dtype=types).to_arrow_table())
        database.execute(f"CREATE TABLE {name} AS FROM {name}_read")
    expected = database.sql(PAID).to_arrow_table()
    assert_same_rows(master.reports.read("paid"), expected, "paid")
    assert expected.num_rows and not master.reports.read("late_payments").num_rows
    assert milepost("run", path, "--drain").exit_code == 0
    hourly = f"""SELECT customer, time_bucket(INTERVAL 1 HOUR, ordered_at) AS window_start,
        window_start + INTERVAL 1 HOUR AS window_end, count(*) AS orders, sum(amount) AS revenue
        FROM ({PAID}) GROUP BY ALL"""
    unpaid = """SELECT * FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o."order"
        AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 30 MINUTE)"""
    assert master.reports.read("unpaid").num_rows
    assert_same_rows(master.reports.read("unpaid"), database.sql(unpaid).to_arrow_table(), "unpaid")
    assert_same_rows(master.reports.read("hourly"), database.sql(hourly).to_arrow_table(), "hourly")
    assert not master.reports.state("paid.left").num_rows and not master.reports.state("paid.right").num_rows
    assert milepost("verify", path, "--deep").exit_code == 0
