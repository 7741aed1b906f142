"""Signatures of a checkpoint under the names of renamed statements: those of the spec, unless a query changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from milepost.epoch.renamed_operators import renamed_signatures
from milepost.jobspec.graph import RENAMED_FROM, state_signatures
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

SQL = """CREATE MATERIALIZED VIEW sums AS SELECT customer AS who, count(*) AS n FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW sizes AS WITH large AS (SELECT who, n FROM sums WHERE n > 2)
    SELECT n AS size, count(*) AS customers FROM large GROUP BY n;
CREATE MATERIALIZED VIEW most AS SELECT who, x FROM y WHERE x > 1 ORDER BY x DESC LIMIT 3"""
Y = "SELECT sums.who,  sums.n % 3 AS x FROM sums -- of the customers"
RENAMED = {"totals": "sums", "best": "most", "sizes.great": "sizes.large"}


def job(sql: str, y: str, renamed: dict[str, str]) -> tuple[JobSpec, dict[str, Any]]:
    (read,) = {"sums", "totals"} & {*y.split()}
    own = [{"uid": "y", "kind": "sql", "inputs": [read], "sql": y}]
    text = json.dumps(document(sql, operators=own, renamed=renamed))
    loaded = from_text(text, Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql))
    return loaded.spec, state_signatures(loaded.spec, loaded.graph())["operators"]


def later(text: str) -> str:
    for new, former in RENAMED.items():
        text = text.replace(former.rpartition(".")[2], new.rpartition(".")[2])
    return text


def test_queries_over_updates_are_the_same_under_other_names_of_statements_and_expressions() -> None:
    _, recorded = job(SQL, Y, {})
    spec, signatures = job(later(SQL), later(Y), RENAMED)
    renamed = renamed_signatures(spec, recorded)
    formers = {uid: one.pop(RENAMED_FROM) for uid, one in renamed.items() if RENAMED_FROM in one}
    assert formers == {"totals__agg": "sums__agg", "best__top": "most__top", "best__keyed": "most__keyed"}
    assert renamed == signatures


def test_a_query_that_changed_with_its_name_has_its_recorded_digest() -> None:
    _, recorded = job(SQL, Y, {})
    spec, signatures = job(later(SQL), later(Y).replace("% 3", "% 4"), RENAMED)
    renamed = renamed_signatures(spec, recorded)
    differing = {key for key, value in renamed["best__top"].items() if signatures["best__top"].get(key) != value}
    assert differing == {"updates of y: SQL", RENAMED_FROM, "its query"}
