"""Fingerprints: equal for the same text with other names of its inputs, and different for any other text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.jobspec.graph import fingerprint, reads_statement, state_fingerprint
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

GROUPED = "SELECT customer, count(*) AS w, min(id) AS w2 FROM orders GROUP BY customer"


def spec_of(sql: str, **changes: Any) -> JobSpec:
    return from_text(json.dumps(document(sql, **changes)), Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql)).spec


def reader(query: str, name: str) -> str:
    """Return the fingerprint of an operator of the spec that reads a view with this name."""
    y = {"uid": "y", "kind": "sql", "inputs": [name], "sql": query}
    return fingerprint(spec_of(f"CREATE TEMPORARY VIEW {name} AS {GROUPED}", operators=[y]), "y")


@pytest.mark.parametrize("query", ["SELECT customer, w.w FROM w", "SELECT o.customer FROM W AS o WHERE o.w > 1"])
def test_a_renamed_input_has_the_same_fingerprint(query: str) -> None:
    renamed = query.replace("w.w", "v.w").replace("FROM w", "FROM v").replace("FROM W", "FROM v")
    assert reader(query, "w") == reader(renamed, "v")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("SELECT customer, w AS k FROM w", "SELECT customer, w2 AS k FROM w2"),
        ("SELECT extract(day FROM w) AS d FROM w", "SELECT extract(day FROM w2) AS d FROM w2"),
        ("SELECT customer, w.x AS k FROM w AS o", "SELECT customer, w2.x AS k FROM w2 AS o"),
        ("SELECT customer, w.w AS k FROM w", "SELECT customer, w.w AS k FROM w2"),
    ],
)
def test_a_column_with_the_name_of_the_input_is_text(query: str, other: str) -> None:
    assert reader(query, "w") != reader(other, "w2")


def test_the_state_of_an_aggregate_depends_on_its_input_and_its_table_on_its_aggregates() -> None:
    sql = f"CREATE MATERIALIZED VIEW v AS {GROUPED}"
    before, other = spec_of(sql), spec_of(sql.replace("min(id)", "max(id)"))
    filtered = spec_of(sql.replace("FROM orders", "FROM orders WHERE id > 1"))
    assert state_fingerprint(before, "v__agg") == state_fingerprint(other, "v__agg")
    assert state_fingerprint(before, "v__agg") != state_fingerprint(filtered, "v__agg")
    assert len({fingerprint(spec, "v") for spec in (before, other, filtered)}) == 3


def test_a_source_under_another_name_may_count_as_the_former_one() -> None:
    sql = f"CREATE MATERIALIZED VIEW v AS {GROUPED}"
    before, other = spec_of(sql), spec_of(sql)
    sources = {"sales": other.sources["orders"]}
    other = other.model_copy(update={"sources": sources, "operators": tuple(
        one.model_copy(update={"inputs": ("sales",), "sql": one.model_dump()["sql"].replace("orders", "sales")})
        if one.inputs == ("orders",) else one for one in other.operators
    )})  # fmt: skip
    assert fingerprint(before, "v") != fingerprint(other, "v")
    assert fingerprint(before, "v", {"orders": "sales"}) == fingerprint(other, "v")


def test_an_operator_reads_a_statement_through_others() -> None:
    y = {"uid": "y", "kind": "sql", "inputs": ["v"], "sql": "SELECT customer, w FROM v"}
    big = {"uid": "big", "kind": "sql", "inputs": ["orders"], "sql": "SELECT * FROM orders WHERE amount > 1"}
    spec = spec_of(f"CREATE MATERIALIZED VIEW v AS {GROUPED}", operators=[y, big])
    assert {name: reads_statement(spec, name) for name in ("y", "v", "v__agg", "big", "orders")} == {
        "y": True, "v": True, "v__agg": True, "big": False, "orders": False,
    }  # fmt: skip
