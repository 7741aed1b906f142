"""A SELECT in which Spark would read a text as a moment that depends on when it runs is refused (I12)."""

from __future__ import annotations

import pytest

from milepost.spec.sql.moments import check_moments
from milepost.spec.sql.sql_parse import SqlProblem
from milepost.spec.values.types import ColumnType

COLUMNS = {
    "s": ColumnType("string"),
    "ts": ColumnType("timestamp", unit="us", utc=True),
    "dt": ColumnType("date"),
    "n": ColumnType("int64"),
    "computed": None,
    "arr": None,
}

DEPENDS_ON_THE_MOMENT = [
    "timestamp 'now'",
    "timestamp \"NOW UTC\"",
    "CAST(r'now' AS TIMESTAMP)",
    "date 'today'",
    "CAST('now' AS TIMESTAMP)",
    "CAST(' now ' AS DATE)",
    "'tomorrow'::timestamp_ntz",
    "TRY_CAST('now' AS TIMESTAMP)",
    "cast(\"n\\u006fw\" as timestamp)",
    "to_timestamp('now')",
    "to_date('yesterday')",
    "to_timestamp_ntz('now')",
    "date('now')",
    "ts > 'now'",
    "dt > 'today'",
    "computed = 'now'",
    "ts IN ('now')",
    "ts BETWEEN '2013-01-01' AND 'now'",
    "coalesce(ts, 'now')",
    "nullif(ts, 'now')",
    "if(n > 1, 'now', ts)",
    "CASE ts WHEN 'now' THEN 1 END",
    "CASE WHEN n > 1 THEN ts ELSE 'now' END",
    "array(ts, 'now')",
    "transform(array(ts), x -> x > 'now')",
    "date_add('today', 1)",
    "year('today')",
    "extract(year FROM 'now')",
    "dt - 'now'",
    "interval '1' day + 'now'",
    "timestampadd(HOUR, 1, 'now')",
    "to_utc_timestamp('now', 'UTC')",
    # a constant that functions make, whose value is not known before Spark runs
    "CAST(concat('no', 'w') AS TIMESTAMP)",
    "CAST('no' 'w' AS TIMESTAMP)",
    "CAST('no' || 'w' AS TIMESTAMP)",
    "CAST(reverse('won') AS TIMESTAMP)",
    "CAST(upper('now') AS DATE)",
    "CAST(trim(BOTH 'x' FROM 'xnowx') AS DATE)",
    "CAST(CAST(X'6e6f77' AS STRING) AS TIMESTAMP)",
    "CAST(array_join(array('n', 'o', 'w'), '') AS TIMESTAMP)",
    "CAST(element_at(array('x', 'now'), 2) AS TIMESTAMP)",
    "CAST(struct('now').col1 AS TIMESTAMP)",
    "ts > concat('no', 'w')",
    "coalesce(ts, lower('TODAY'))",
    "CASE WHEN n > 1 THEN ts ELSE concat('no', 'w') END",
    "ts > decode(1, 1, 'now')",
    # a time of day, of which Spark makes that time of today: in a constant, and in rows
    "timestamp '12:30:00'",
    "'T12:30'::timestamp",
    "ts > '12:30'",
    "CAST(time '12:30' AS TIMESTAMP)",
    "CAST(s AS TIMESTAMP)",
    "CAST(computed AS TIMESTAMP)",
    "CAST(coalesce(s, 'x') AS TIMESTAMP)",
    "CAST(arr AS ARRAY<TIMESTAMP>)",
    "filter(arr, x -> CAST(x AS TIMESTAMP) > ts)",
    "to_timestamp(s)",
    "try_to_timestamp(computed)",
    "timestamp(s)",
    "ts > s",
    "ts > from_unixtime(n)",
    "hour(s)",
    "extract(hour FROM s)",
    "date_trunc('DAY', s)",
    "from_json(s, 'a timestamp').a",
    "from_csv(s, 'a TIMESTAMP, b int').b",
    "variant_get(parse_json(s), '$', 'timestamp')",
    "CAST(parse_json(s) AS TIMESTAMP)",
]  # fmt: skip

SAME_AT_ANY_MOMENT = [
    "size(filter(sequence(1, 30000), x -> x % 7 = n % 7)) > 0",
    "'now'",
    "s = 'now'",
    "s IN ('now', 'later')",
    "CASE WHEN n > 1 THEN 'now' ELSE 'later' END",
    "CASE s WHEN 'now' THEN 1 END",
    "coalesce(s, 'now')",
    "lower(s) = 'today'",
    "CAST(ts AS STRING) = 'now'",
    "s LIKE 'now%'",
    "concat(s, 'now')",
    "replace(s, 'now', '')",
    "regexp_extract(s, '12:(.*)', 1)",
    "s > '12:30'",
    "interval '12:30' hour to minute",
    "date_format(ts, 'HH:mm')",
    "timestamp '2013-01-01 12:30:00'",
    "ts > '2013-01-01'",
    "ts > 'epoch'",
    "dt > date '2013-01-01' + interval 1 day",
    "to_timestamp(s, 'yyyy-MM-dd')",
    "to_timestamp('12:30', 'HH:mm')",
    "CAST(s AS TIMESTAMP_NTZ)",
    "CAST(s AS DATE)",
    "to_date(s)",
    "unix_timestamp(s)",
    "from_json(s, 'a string').a",
    "from_json(s, 'a timestamp', map('timestampFormat', 'yyyy')).a",
    "CAST(n AS TIMESTAMP)",
    "CAST(n / 2 AS TIMESTAMP)",
    "CAST(dt AS TIMESTAMP)",
    "CAST(date_add(dt, 1) AS TIMESTAMP)",
    "timestamp_seconds(n)",
    "hour(ts)",
    "months_between(ts, dt)",
    "concat('a', 'b')",
    "upper('x') = s",
    "coalesce(s, concat('a', 'b'))",
    "split(s, chr(9))",
    "make_date(2013, 1, 1)",
    "map('AA', 'American')[s]",
    "transform(arr, x -> upper(x))",
    "named_struct('a', n, 'b', s)",
]


@pytest.mark.parametrize("expression", DEPENDS_ON_THE_MOMENT)
def test_a_text_that_may_be_read_by_the_clock_is_refused(expression: str) -> None:
    for sql in (f"SELECT {expression} AS q FROM t", f"SELECT n FROM t WHERE {expression} IS NOT NULL"):
        with pytest.raises(SqlProblem, match=r"read as a moment|may read a text"):
            check_moments(sql, "t", COLUMNS)


@pytest.mark.parametrize("expression", SAME_AT_ANY_MOMENT)
def test_a_text_that_stays_a_text_or_says_its_date_is_fine(expression: str) -> None:
    check_moments(f"SELECT {expression} AS q FROM t", "t", COLUMNS)
