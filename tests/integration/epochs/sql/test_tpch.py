"""TPC-H over change feeds: after refreshes, a rollback and a rescale, each table equals DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.planes import Plane, spark_runner
from milepost_testkit.specs.sql_statements import statements
from milepost_testkit.tpch.changes import ChangeFeed
from milepost_testkit.tpch.job import EXAMPLE, TpchJob
from milepost_testkit.tpch.tables import Tpch

QUERIES = statements((EXAMPLE / "tpch.sql").read_text())
GROUPS = (
    ("q01", "q03", "q04", "q06"),
    ("q05", "q07", "q12"),
    ("q08", "q13", "q14"),
    ("q09", "q10", "q11"),
    ("q18", "q19", "q21"),
    ("q02", "q16", "q22"),
    ("revenue", "q15", "q17", "q20"),
)


@pytest.mark.deep
def test_two_queries_equal_duckdb_after_a_refresh(tmp_path: Path, in_process: Plane) -> None:
    job = TpchJob(tmp_path, {name: QUERIES[name] for name in ("q04", "q14")}, ChangeFeed(Tpch(0.001), share=0.05))
    runner = in_process()
    for _ in range(2):
        job.run(runner)
        assert all(job.check().values())


@pytest.mark.deep
@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
def test_each_query_equals_duckdb_after_refreshes_a_rollback_and_a_rescale(
    names: tuple[str, ...], tmp_path: Path, in_process: Plane
) -> None:
    job, runner = TpchJob(tmp_path, {name: QUERIES[name] for name in names}), in_process()
    for _ in range(3):
        done = job.run(runner)
        assert all(job.check().values())
    roll_back(job.master, done.checkpoint_id - 1)
    job.run(runner)
    assert all(job.check().values())
    job.rescale(3)
    job.run(runner)
    assert all(job.check().values())


@pytest.mark.deep
def test_some_queries_equal_duckdb_on_spark(tmp_path: Path) -> None:
    names = ("q01", "q11", "q14", "q17", "q20", "q22")
    job = TpchJob(tmp_path, {name: QUERIES[name] for name in names}, ChangeFeed(Tpch(0.01), share=0.02))
    runner = spark_runner()
    for _ in range(2):
        job.run(runner)
        assert all(job.check().values())


def test_the_groups_are_all_queries() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(QUERIES)
