"""`compiled`: which statements keep the operators of a compiled spec, and what such a file must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

SQL = """CREATE TEMPORARY VIEW large AS SELECT * FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW counts AS SELECT customer, count(*) AS n FROM large GROUP BY customer;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS c FROM counts GROUP BY n;"""


def job(sql: str, compiled: str = "", **changes: Any) -> LoadedJob:
    text = SqlText.of("shop.sql", sql)
    keys = {"compiled": "shop.compiled"} if compiled else {}
    text = text.with_compiled(compiled) if compiled else text
    return from_text(json.dumps(document(sql, **keys, **changes)), Path("/jobs/shop.yaml"), text)


RECORDED = job(SQL).text.replace("count: count(*)", "count_: count(*)").replace("`count`", "`count_`")
"""As another version would have compiled it."""


def pinned(**keys: Any) -> set[str]:
    """Return the statements that have the recorded operators."""
    loaded = job(keys.pop("sql", SQL), RECORDED, **keys)
    return {
        one.uid.removesuffix("__agg") for one in loaded.spec.operators if "count_:" in str(one) or "count_'" in str(one)
    }


def test_an_unedited_file_keeps_all_recorded_steps() -> None:
    loaded = job(SQL, RECORDED)
    assert loaded.text == RECORDED and loaded.spec.compiled is None
    assert job(loaded.sql.source.text if loaded.sql else "").text != RECORDED


@pytest.mark.deep
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sql": SQL.replace("count(*) AS c", "count(*) + 1 AS c")}, {"counts"}),
        ({"sql": SQL.replace("customer, count", "customer, max(id) AS m, count")}, set()),
        ({"sql": SQL.replace("> 10", "> 20")}, set()),
        (
            {
                "sources": document(SQL)["sources"]
                | {"orders": document(SQL)["sources"]["orders"] | {"path": "x/*.csv"}}
            },
            set(),
        ),
        ({"sql": "-- a comment\n" + SQL.replace("  ", " ")}, {"counts", "sizes"}),
    ],
    ids=["last", "middle", "view of appended rows", "source", "comment"],
)
def test_a_statement_is_compiled_if_it_or_what_it_reads_was_edited(keys: dict[str, Any], expected: set[str]) -> None:
    assert pinned(**keys) == expected


@pytest.mark.parametrize(
    ("compiled", "problem"),
    [
        ("a: [", "shop.compiled is not a compiled spec: "),
        ("name: shop", "shop.compiled is not a compiled spec: it has no `statements` and `operators`"),
        ("- 1", "shop.compiled is not a compiled spec: it has no `statements` and `operators`"),
        ("statements: {}\noperators: [x]", "shop.compiled is not a compiled spec: an operator is no mapping"),
        ("statements: {}\noperators: []\nsources: []", "shop.compiled is not a compiled spec: it has no `sources`"),
        (RECORDED.replace("kind: aggregate", "kind: agregate"), "agregate"),
    ],
)
def test_a_file_that_is_no_compiled_spec_is_refused(compiled: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job(SQL, compiled)
    assert problem in str(refused.value)


def test_a_compiled_spec_needs_sql_and_a_suffix_that_no_spec_has() -> None:
    plain = document(SQL) | {"compiled": "shop.yaml"}
    with pytest.raises(InvalidRequest, match="expected the name of a compiled spec, which ends in"):
        from_text(json.dumps(plain), Path("/jobs/shop.yaml"), SqlText.of("shop.sql", SQL))
    del plain["sql"], plain["tables"]
    with pytest.raises(InvalidRequest, match="`compiled` needs `sql`"):
        from_text(json.dumps(plain | {"compiled": "shop.compiled"}), Path("/jobs/shop.yaml"))


def test_a_change_of_the_compiled_spec_changes_the_digest_of_the_text() -> None:
    text = SqlText.of("shop.sql", SQL)
    assert len({text.digest, *(text.with_compiled(one).digest for one in ("a", "b"))}) == 3
    assert replace(text.with_compiled("a"), compiled="", digest=text.digest) == text
