"""`milepost test` runs a view whose rows are deleted by key, which Spark reads next to rows of other nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.spark.local.local_runner import LocalRunner
from milepost_testkit.jobs.sql_job import SqlJob

pytestmark = pytest.mark.deep

NEWEST = "SELECT id, amount FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY ordered_at DESC) = 1"
ABOVE = "SELECT id, amount FROM newest WHERE amount > (SELECT avg(amount) FROM payments)"


def test_a_view_whose_rows_are_deleted_equals_duckdb(tmp_path: Path) -> None:
    job = SqlJob(tmp_path, f"CREATE TEMPORARY VIEW newest AS {NEWEST};\nCREATE MATERIALIZED VIEW above AS {ABOVE}")
    job.database.execute(f"CREATE VIEW newest AS {NEWEST}")
    for _ in range(2):
        job.run(LocalRunner())
        assert job.check("above", ABOVE)
