"""Queries whose results differ between Spark and DuckDB, which laws must avoid.

Spark defines scalars and types. A test queries both engines, so that the table stays correct. Laws avoid the
differences: they sum integers as int64, which the examples never overflow, and do not average decimals. No law depends
on the order of nulls, a cast, a division, a regular expression or a calendar. An engine that rejects the query has the
result `REFUSED`.

Aggregates of Milepost have types of their own where Spark's follow from the input's: `sum` of a decimal is
decimal(38, scale) (Spark: ten digits more than the input), `avg` of one is float64 (Spark: a decimal of four more).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

REFUSED = "refused"


@dataclass(frozen=True)
class Difference:
    """A query in the dialect of each engine, with each result, a single value."""

    about: str
    in_spark: str
    spark: Any
    in_duckdb: str
    duckdb: Any


def _same_words(about: str, query: str, spark: Any, duckdb: Any) -> Difference:
    return Difference(about, query, spark, query, duckdb)


_NUMBERS = "FROM (VALUES (2), (NULL), (1)) AS t(x)"
_LARGE = "FROM (VALUES (CAST(9223372036854775807 AS BIGINT)), (CAST(1 AS BIGINT))) AS t(x)"
_PRICES = "FROM (VALUES (CAST(1.00 AS DECIMAL(9,2))), (CAST(2.01 AS DECIMAL(9,2)))) AS t(x)"

DIFFERENCES = (
    _same_words("nulls come first", f"SELECT x {_NUMBERS} ORDER BY x LIMIT 1", None, 1),
    _same_words("nulls in a list", f"SELECT array_agg(x) {_NUMBERS} WHERE x IS NULL", [], [None]),
    _same_words("a sum beyond int64", f"SELECT sum(x) {_LARGE}", REFUSED, 2**63),
    _same_words("the mean of decimals", f"SELECT avg(x) {_PRICES}", Decimal("1.505000"), 1.505),
    _same_words(
        "division of decimals",
        "SELECT CAST(1 AS DECIMAL(9,2)) / CAST(3 AS DECIMAL(9,2))",
        Decimal("0.333333333333"),
        1 / 3,
    ),
    _same_words("division by zero", "SELECT CAST(1 AS DOUBLE) / CAST(0 AS DOUBLE)", REFUSED, float("inf")),
    _same_words("a text as a whole number", "SELECT CAST('2.5' AS INT)", REFUSED, 3),
    _same_words("a null in the row of the largest key",
                "SELECT max_by(v, k) FROM (VALUES ('a', 1), (NULL, 2)) AS t(v, k)", None, "a"),
    Difference("a large float as text", "SELECT CAST(1e20D AS STRING)", "1.0E20",
               "SELECT CAST(1e20::DOUBLE AS VARCHAR)", "1e+20"),
    Difference("a time as text", "SELECT CAST(TIMESTAMP '2013-01-01 00:00:00' AS STRING)", "2013-01-01 00:00:00",
               "SELECT CAST(TIMESTAMPTZ '2013-01-01 00:00:00+00' AS VARCHAR)", "2013-01-01 00:00:00+00"),
    _same_words("what a regular expression replaces", "SELECT regexp_replace('aaa', 'a', 'b')", "bbb", "baa"),
    _same_words("which group is extracted", "SELECT regexp_extract('ab12', '([a-z]+)([0-9]+)')", "ab", "ab12"),
    Difference("what a text is split by", "SELECT size(split('a.b', '.'))", 4,
               "SELECT len(string_split('a.b', '.'))", 2),
    _same_words("a substring from 0", "SELECT substring('abc', 0, 2)", "ab", "a"),
    _same_words("a text and null", "SELECT concat('a', NULL)", None, "a"),
    _same_words("the number of a weekday", "SELECT dayofweek(DATE '2013-01-01')", 3, 2),
)  # fmt: skip

SAME = (
    ("the deviation of one row", "SELECT stddev(x) FROM (VALUES (CAST(1 AS DOUBLE))) AS t(x)", None),
    ("the variance of NaN",
     "SELECT isnan(var_samp(x)) FROM (VALUES (CAST(1 AS DOUBLE)), (CAST('NaN' AS DOUBLE))) AS t(x)", True),
    ("what a filter drops", "SELECT sum(x) FILTER (WHERE x > 1) FROM (VALUES (1), (2), (NULL)) AS t(x)", 2),
    ("a condition that is null", "SELECT count(*) FILTER (WHERE b) FROM (VALUES (true), (NULL), (false)) AS t(b)", 1),
    ("true in some rows", "SELECT bool_or(b) FROM (VALUES (CAST(NULL AS BOOLEAN)), (true)) AS t(b)", True),
    ("true in all rows", "SELECT bool_and(b) FROM (VALUES (CAST(NULL AS BOOLEAN)), (true)) AS t(b)", True),
    ("true in no rows", "SELECT bool_or(b) FROM (VALUES (CAST(NULL AS BOOLEAN))) AS t(b)", None),
    ("the row of the largest key", "SELECT max_by(v, k) FROM (VALUES ('a', 1), ('b', NULL)) AS t(v, k)", "a"),
    ("the largest of NaN and numbers",
     "SELECT isnan(max(x)) FROM (VALUES (CAST(1 AS DOUBLE)), (CAST('NaN' AS DOUBLE))) AS t(x)", True),
    ("zeros in a group",
     "SELECT count(*) FROM (SELECT x FROM (VALUES (CAST(0 AS DOUBLE)), (-CAST(0 AS DOUBLE))) AS t(x) GROUP BY x)", 1),
    ("NaN among distinct values",
     "SELECT count(DISTINCT x) FROM (VALUES (CAST('NaN' AS DOUBLE)), (CAST('NaN' AS DOUBLE)), (NULL)) AS t(x)", 1),
    ("the sign of a remainder", "SELECT -7 % 3", -1),
    ("half of a float as a whole number", "SELECT CAST(CAST(2.5 AS DOUBLE) AS INT)", 2),
)  # fmt: skip
"""What one might expect to differ and does not, in words of both: laws rely on it."""
