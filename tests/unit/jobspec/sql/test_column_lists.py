"""A list of columns after the name of a statement, a common table expression or a query in FROM names columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

COUNTS = "SELECT customer, count(*) FROM orders GROUP BY customer"
MORE = "UNION ALL SELECT id + 1, amount FROM orders"
NAMED = "SELECT customer AS who, count(*) AS n FROM orders GROUP BY customer"


def operators(sql: str) -> list[dict[str, object]]:
    spec = from_text(json.dumps(document(sql)), Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql)).spec
    return [operator.model_dump(mode="json") for operator in spec.operators]


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        (f"CREATE MATERIALIZED VIEW v (who, n) AS {COUNTS}", f"CREATE MATERIALIZED VIEW v AS {NAMED}"),
        (f"CREATE MATERIALIZED VIEW v AS SELECT n, max(who) AS w FROM ({COUNTS}) AS c (who, n) GROUP BY n",
         f"CREATE MATERIALIZED VIEW v AS SELECT n, max(who) AS w FROM ({NAMED}) AS c GROUP BY n"),
        (f"CREATE MATERIALIZED VIEW v AS WITH c (who, n) AS ({COUNTS}) SELECT n, max(who) AS w FROM c GROUP BY n",
         f"CREATE MATERIALIZED VIEW v AS WITH c AS ({NAMED}) SELECT n, max(who) AS w FROM c GROUP BY n"),
        (f"CREATE STREAMING TABLE v (`A`, b) AS SELECT id, amount FROM orders {MORE}",
         f"CREATE STREAMING TABLE v AS SELECT id AS `A`, amount AS b FROM orders {MORE}"),
    ],
    ids=["statement", "query in FROM", "common table expression", "union"],
)  # fmt: skip
def test_a_list_of_columns_compiles_to_what_as_compiles_to(listed: str, named: str) -> None:
    assert operators(listed) == operators(named)
