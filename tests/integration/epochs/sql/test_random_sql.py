"""Random queries and edits: after each epoch, the table of each equals DuckDB's answer to the same text."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.law.queries import hold_edits
from milepost_testkit.models.data.random_sql import Draws, random_query
from milepost_testkit.profiles import examples
from milepost_testkit.runners.planes import Plane


@pytest.mark.long
@given(st.integers(min_value=0, max_value=2**32))
@examples(share=0.1, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_table_equals_its_query_whatever_the_query(in_process: Plane, seed: int) -> None:
    queries = {f"v{number}": random_query(Draws(3 * seed + number)) for number in range(3)}
    sql = ";\n".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in queries.items())
    with tempfile.TemporaryDirectory() as folder:
        job, runner = SqlJob(Path(folder), sql), in_process()
        for _ in range(2):
            job.run(runner)
            for name, query in queries.items():
                job.check(name, query)


@pytest.mark.long
@given(st.integers(min_value=0, max_value=2**32))
@examples(share=0.1, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_table_equals_its_query_after_edits_with_any_verdict(in_process: Plane, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_edits(seed, Path(folder), in_process())
