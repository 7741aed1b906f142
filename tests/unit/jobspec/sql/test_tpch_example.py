"""The example with the queries of TPC-H."""

from __future__ import annotations

import pytest

from milepost.jobspec.load.load import load_job
from milepost_testkit.tpch.job import EXAMPLE


@pytest.mark.long
def test_the_example_compiles_with_a_table_of_each_query() -> None:
    job = load_job(str(EXAMPLE / "tpch.yaml"))
    assert sorted(sink.name for sink in job.spec.sinks) == [f"q{number:02}" for number in range(1, 23)]


SCALARS = {"q02": "partsupp", "q15": "revenue", "q17": "lineitem", "q22__query_customer": "customer"}


@pytest.mark.long
def test_a_query_that_only_filters_is_compared_inside_its_join() -> None:
    spec = load_job(str(EXAMPLE / "tpch.yaml")).spec
    joins = {
        name: spec.operator(f"{name}__join_from_scalar_{relation}").model_dump(mode="json")
        for name, relation in SCALARS.items()
    }
    assert {join["how"] for join in joins.values()} == {"semi"}
    assert [len(joins[name]["condition"]) for name in SCALARS] == [0, 0, 1, 1]
    assert joins["q22__query_customer"]["key"] == []
