"""SQL of other engines is refused at its line and column, with the SQL of a job that does the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document

VIEW = "CREATE MATERIALIZED VIEW v AS\n"
STATEMENTS = {
    "SELECT id FROM orders": "1:1: SELECT: a query needs a name: write CREATE MATERIALIZED VIEW name AS before it",
    "INSERT INTO v SELECT id FROM orders": "1:1: INSERT: a table has the rows of its query: write CREATE STREAMING",
    "MERGE INTO v USING orders o ON v.id = o.id WHEN MATCHED THEN DELETE": "1:1: MERGE: write CREATE STREAMING TABLE",
    "UPDATE v SET amount = 1": "1:1: UPDATE: a table has the rows of its query: change the query",
    "DROP TABLE v": "1:1: DROP: remove the statement that creates it",
    "USE lake": "1:1: USE: `tables` in the spec decides where tables are",
    "APPLY CHANGES INTO v FROM orders KEYS (id) SEQUENCE BY ordered_at": "1:1: APPLY CHANGES: write CREATE FLOW",
    "CREATE STREAMING LIVE TABLE v AS SELECT id FROM LIVE.orders": "1:1: write CREATE STREAMING TABLE, and names",
    "CREATE PRIVATE MATERIALIZED VIEW v AS SELECT id FROM orders": "1:1: CREATE PRIVATE: write CREATE TEMPORARY VIEW",
    "CREATE TABLE orders (id BIGINT, WATERMARK FOR at AS at - INTERVAL '5' SECOND)": "1:33: WATERMARK FOR: write",
    "{{ config(materialized='table') }}\nSELECT id FROM orders": "1:1: templates are not available here; `sql: {dbt",
}
QUERIES = {
    "SELECT id FROM {{ ref('orders') }}": "2:16: templates are not available here; `sql: {dbt: …/manifest.json}` reads",
    "SELECT window_start FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '10' MINUTES))":
        "2:32: TUMBLE: write GROUP BY window(time, '10 minutes')",
    "SELECT count(*) AS n FROM orders GROUP BY HOP(ordered_at, INTERVAL '1' HOUR, INTERVAL '2' HOUR)":
        "2:43: HOP: write GROUP BY window(time, '2 hours', '1 hour'), with the size first",
    "SELECT count(*) AS n FROM orders GROUP BY SESSION(ordered_at, INTERVAL '1' HOUR)":
        "2:43: SESSION: write GROUP BY session_window(time, '30 minutes')",
    "SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY customer)": "2:22: MATCH_RECOGNIZE is not available",
    "SELECT id, x FROM orders CROSS JOIN UNNEST(array(1)) AS t(x)": "2:37: UNNEST: write LATERAL VIEW explode(list)",
    "SELECT id, x FROM orders, LATERAL explode(array(1)) AS t(x)": "2:25: LATERAL is not available in this version",
    "SELECT id, x FROM orders LATERAL VIEW OUTER explode(array(1)) t AS x": "2:34: OUTER is not available in this",
    "SELECT id FROM orders JOIN countries FOR SYSTEM_TIME AS OF ordered_at ON true": "2:38: FOR SYSTEM_TIME: a table",
    "SELECT id FROM orders VERSION AS OF 3": "2:23: VERSION AS OF: a table has no readable versions here: join a",
    "SELECT DISTINCT ON (customer) customer, id FROM orders": "2:8: DISTINCT ON is not in Spark; write QUALIFY",
    "SELECT TOP 3 id FROM orders": "2:8: TOP is not in Spark; write ORDER BY … LIMIT n",
    "SELECT id FROM orders FETCH FIRST 3 ROWS ONLY": "2:23: FETCH is not in Spark; write ORDER BY … LIMIT n",
    "SELECT * EXCLUDE (id) FROM orders": "2:8: EXCLUDE is not in Spark; write * EXCEPT (columns)",
    "SELECT a FROM (SELECT * FROM orders) UNPIVOT (a FOR b IN (id))": "2:38: UNPIVOT is not available",
    "SELECT id FROM orders WHERE (id, amount) IN (SELECT order_id, amount FROM payments)":
        "2:46: IN takes one column, got 2; write EXISTS (SELECT 1 FROM …",
    "SELECT customer, approx_count_distinct(id) AS n FROM orders GROUP BY customer":
        "2:18: approx_count_distinct is not available in this version; write count(DISTINCT …)",
}  # fmt: skip
"""SQL -> the position and the beginning of its refusal."""
NAMES = (
    "SELECT session, `lateral` AS top, inline.hop, version AS read_files "
    "FROM (SELECT id AS session, customer AS `lateral`, id AS hop, amount AS version FROM orders) AS inline"
)


def compiled(sql: str) -> None:
    spec = json.dumps(document("orders payments countries"))
    from_text(spec, Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql)).graph()


@pytest.mark.parametrize("sql", [*STATEMENTS, *(VIEW + query for query in QUERIES)])
def test_sql_of_another_engine_is_refused_with_what_to_write_instead(sql: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled(sql)
    expected = STATEMENTS.get(sql) or QUERIES[sql.removeprefix(VIEW)]
    assert refused.value.message.splitlines()[1].startswith(f"shop.sql:{expected}")


def test_words_of_other_engines_may_be_names() -> None:
    sql = VIEW + NAMES
    from_text(json.dumps(document(sql)), Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql)).graph()
