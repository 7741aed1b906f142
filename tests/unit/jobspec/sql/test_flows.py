"""Compiled operators and refusals of CREATE FLOW … AUTO CDC INTO a streaming table."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

SPEC = Path("/jobs/shop.yaml")
TABLE = "CREATE STREAMING TABLE t;\n"
FLOW = "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(orders) "
KEYS = "KEYS (id) SEQUENCE BY ordered_at "


def job(sql: str) -> LoadedJob:
    return from_text(json.dumps(document(sql)), SPEC, SqlText.of("shop.sql", sql))


COMPILED: dict[str, dict[str, Any]] = {
    KEYS: {"kind": "latest", "key": ["id"], "sequence_by": ["ordered_at"]},
    "SEQUENCE BY struct(ordered_at, ID) KEYS (id, customer) IGNORE NULL UPDATES COLUMNS * EXCEPT (quantity)": {
        "kind": "latest",
        "key": ["customer", "id"],
        "sequence_by": ["ordered_at", "id"],
        "columns": ["id", "customer", "amount", "ordered_at"],
        "ignore_nulls": True,
    },
    KEYS + "APPLY AS DELETE WHEN Quantity = 0 COLUMNS (amount, id) STORED AS SCD TYPE 1": {
        "kind": "latest",
        "columns": ["amount", "id"],
        "delete_when": "`quantity` = 0",
    },
    KEYS + "STORED AS SCD TYPE 2": {"kind": "history", "track": None},
    KEYS + "STORED AS SCD TYPE 2 COLUMNS * EXCEPT (ordered_at)": {
        "kind": "history",
        "track": ["customer", "amount", "quantity"],
    },
    KEYS + "STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (amount, ordered_at)": {
        "kind": "history",
        "track": ["customer", "quantity"],
    },
    KEYS + "STORED AS SCD TYPE 2 TRACK HISTORY ON (quantity)": {"kind": "history", "track": ["quantity"]},
}


@pytest.mark.parametrize("clauses", COMPILED)
def test_a_flow_is_the_newest_row_or_the_versions_of_each_key(clauses: str) -> None:
    spec = job(TABLE + FLOW + clauses).spec
    assert [operator.uid for operator in spec.operators] == ["t__rows", "t__cdc", "t"]
    compiled = spec.operator("t__cdc").model_dump(mode="json")
    assert {name: compiled[name] for name in COMPILED[clauses]} == COMPILED[clauses]
    assert spec.sinks[0].mode == "upsert"


def test_a_sequence_that_is_an_expression_becomes_a_column_that_the_table_does_not_have() -> None:
    loaded = job(TABLE + FLOW + "KEYS (id) SEQUENCE BY amount * 2")
    (sequence,) = loaded.spec.operator("t__cdc").sequence_by
    assert f"`amount` * 2 AS `{sequence}`" in loaded.spec.operator("t__rows").sql
    assert sequence not in loaded.spec.operator("t").sql


def test_a_flow_remembers_deletes_for_as_long_as_its_table_states() -> None:
    table = "CREATE STREAMING TABLE t TBLPROPERTIES ('milepost.ttl' = '3 days');\n"
    loaded = job(table + FLOW + "KEYS (id) SEQUENCE BY quantity COLUMNS (id) APPLY AS DELETE WHEN amount = 0")
    assert loaded.spec.operator("t__cdc").tombstone_ttl == timedelta(days=3)
    assert "`ordered_at`" in loaded.spec.operator("t__rows").sql


REFUSED = {
    TABLE + FLOW: "2:1: KEYS is missing in this flow",
    TABLE + FLOW + "KEYS (id)": "2:1: SEQUENCE BY is missing in this flow",
    TABLE + FLOW + "KEYS (idd) SEQUENCE BY id": '2:60: there is no column idd; did you mean "id"?',
    TABLE + FLOW + "KEYS (id, ID) SEQUENCE BY id": "2:64: ID occurs twice",
    TABLE + FLOW + "KEYS (id) SEQUENCE BY moment": "2:76: there is no column moment",
    TABLE + FLOW + KEYS + "COLUMNS (amount)": "2:59: the key id must be a column of the table; add it to COLUMNS",
    TABLE + FLOW + KEYS + "COLUMNS": "2:87: COLUMNS is incomplete",
    TABLE + FLOW + KEYS + KEYS: "2:87: KEYS occurs twice",
    TABLE + FLOW + KEYS + "STORED AS SCD TYPE 3": "2:106: expected STORED AS SCD TYPE 1 or STORED AS SCD TYPE 2",
    TABLE + FLOW + KEYS + "TRACK HISTORY ON (amount)": "2:104: TRACK HISTORY needs STORED AS SCD TYPE 2",
    TABLE + FLOW + KEYS + "IGNORE NULL UPDATES STORED AS SCD TYPE 2": "IGNORE NULL UPDATES needs STORED AS SCD TYPE 1",
    TABLE + FLOW + "KEYS (id) SEQUENCE BY max(amount)": "2:76: max reads several rows; SEQUENCE BY takes an expression",
    TABLE + FLOW + KEYS + "APPLY AS DELETE WHEN rank() OVER (ORDER BY id) = 1": "2:108: rank reads several rows; APPLY",
    TABLE + FLOW + KEYS + "IGNORE NULL UPDATES ON (amount)": "2:87: a list of columns is not available here",
    TABLE + FLOW + KEYS + "APPLY AS TRUNCATE WHEN amount = 0": "2:87: APPLY AS TRUNCATE is not available",
    TABLE + FLOW + "KEYS (id) SEQUENCE BY struct(id, amount) STORED AS SCD TYPE 2": "2:76: SCD TYPE 2 needs",
    TABLE + "CREATE FLOW f AS INSERT INTO t BY NAME SELECT id FROM orders": "2:18: INSERT INTO is not available",
    TABLE + "CREATE FLOW f AS AUTO CDC INTO t FROM ordrs " + KEYS + "; -- orders":
        '2:39: there is no source or statement ordrs; did',
    TABLE + "CREATE FLOW f AS AUTO CDC INTO t FROM orders o " + KEYS: "2:39: a flow reads one source or statement",
    TABLE + FLOW + KEYS + ";\n" + FLOW.replace("f", "g", 1) + KEYS: "3:1: f is already defined",
    TABLE + FLOW + KEYS + ";\n" + FLOW.replace("FLOW f", "FLOW g") + KEYS: "3:32: another flow fills this table",
    FLOW + KEYS: "1:32: there is no table t; add CREATE STREAMING TABLE t",
    TABLE + "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders": "1:1: t has no rows; add AS SELECT …, or a",
    "CREATE STREAMING TABLE t AS SELECT id FROM orders;\n" + FLOW + KEYS: "2:32: t has a query; remove AS SELECT …",
    "CREATE STREAMING TABLE t PARTITIONED BY (id);\n" + FLOW + KEYS: "1:1: PARTITIONED BY applies to tables",
    "CREATE STREAMING TABLE t TBLPROPERTIES ('milepost.ttl' = '1 day');\n" + FLOW + KEYS + "STORED AS SCD TYPE 2":
        "milepost.ttl has no effect with SCD TYPE 2",
    TABLE + "CREATE FLOW f AS AUTO CDC INTO t FROM n KEYS (id) SEQUENCE BY c;\n"
    "CREATE TEMPORARY VIEW n AS SELECT id, count(*) AS c FROM orders GROUP BY id":
        "2:39: the rows of n are updates by id; a flow reads changes that are appended",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_a_flow_that_cannot_be_compiled_is_refused_where_it_is_wrong(sql: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job(sql)
    assert REFUSED[sql] in str(refused.value)
