"""Compiled models of a dbt project run as a job, and their tables equal DuckDB's answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from milepost.errors import InvalidRequest
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob, document
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

MANIFEST = REPOSITORY / "tests" / "unit" / "jobspec" / "load" / "dbt_project" / "manifest.json"
MODELS = ["stg_shop__orders", "revenue", "customers", "placed"]
ORDERS = "SELECT * FROM orders WHERE amount IS NOT NULL"
REVENUE = f"""SELECT customer, count(*) AS orders, CAST(sum(amount) AS DECIMAL(20, 2)) AS revenue FROM ({ORDERS})
    WHERE amount > {{above}} GROUP BY customer"""
PLACED = f"""SELECT o.id AS order_id, o.customer, o.amount, o.ordered_at, c.country FROM ({ORDERS}) o
    JOIN countries c ON o.customer = c.customer"""
CUSTOMERS = f"SELECT DISTINCT customer, ordered_at FROM ({ORDERS})"


@pytest.fixture
def job(tmp_path: Path) -> SqlJob:
    job = SqlJob(tmp_path, "SELECT * FROM orders, countries")
    spec = document(job.sql, tables={"format": "delta", "path": "lake/{name}"})
    spec["sql"] = {"dbt": "manifest.json", "select": MODELS}
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    shutil.copy(MANIFEST, tmp_path)
    return job


def edit(job: SqlJob, old: str, new: str) -> None:
    file = job.folder / "manifest.json"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new))


def test_models_of_dbt_equal_their_queries_and_an_edited_model_is_refused(job: SqlJob, in_process: Plane) -> None:
    runner = in_process()
    for _ in range(2):
        job.run(runner)
    roll_back(job.master, 1)
    job.run(runner)
    assert job.check("revenue", REVENUE.format(above=0)) > 3
    assert job.check("customers", CUSTOMERS) > 30
    assert job.check("placed", PLACED) > 30
    edit(job, "amount > 0", "amount > 5")
    with pytest.raises(InvalidRequest, match="revenue"):
        job.run(runner)
