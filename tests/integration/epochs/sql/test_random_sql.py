"""Random queries and edits: after each epoch, the table of each equals DuckDB's answer to the same text."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from milepost_testkit.law.queries import hold_edits
from milepost_testkit.law.sql_run import hold_tables, tables_of
from milepost_testkit.profiles import examples
from milepost_testkit.runners.planes import Plane


@pytest.mark.long
@given(st.integers(min_value=0, max_value=2**32))
@examples(share=0.1, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_table_equals_its_query_whatever_the_query(in_process: Plane, seed: int) -> None:
    hold_tables(tables_of(seed)[:3], seed, in_process)


@pytest.mark.long
@given(st.integers(min_value=0, max_value=2**32))
@examples(share=0.1, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_table_equals_its_query_after_edits_with_any_verdict(in_process: Plane, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_edits(seed, Path(folder), in_process())
