"""Comparisons that Python evaluates select the rows that Spark selects. Everything else is left to Spark."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from milepost.jobspec.job.spec import SparkSpec
from milepost.language.sql.comparisons import compile_comparisons
from milepost.spark.driver.engines.session import open_session
from milepost_testkit import profiles

DAYS = [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]
TEXTS = [None, "", " ", "a", "A", "a ", "ab", "zürich", "\ue000", "😀", "a\x00b", "10", "9"]
INTEGERS = [None, -(2**63), -(2**31), -1, 0, 1, 7, 127, 128, 2**31, 2**63 - 1]
ROWS = [
    {
        "n": n,
        "Small": None if n is None else (n + 128) % 256 - 128,
        "m": INTEGERS[(at * 7) % len(INTEGERS)],
        "text": TEXTS[at % len(TEXTS)],
        "other": TEXTS[(at * 5) % len(TEXTS)],
        "day": DAYS[at % len(DAYS)],
        "due": DAYS[(at * 3) % len(DAYS)],
        "flag": (None, True, False)[at % 3],
        "x": 0.5 * at,
    }
    for at, n in enumerate(INTEGERS * 13)
]
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("Small", pa.int8()),
        ("m", pa.int64()),
        ("text", pa.string()),
        ("other", pa.string()),
        ("day", pa.date32()),
        ("due", pa.date32()),
        ("flag", pa.bool_()),
        ("x", pa.float64()),
    ]
)
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)
TYPES = dict(zip(SCHEMA.names, SCHEMA.types, strict=True))

_INTEGERS = st.sampled_from(["n", "small", "src.M", "0", "1", "-1", "127", "128", "2147483648", "9223372036854775807"])
_TEXTS = st.sampled_from(["text", "`other`", "TEXT", "''", "'a'", "'A'", "'ab'", "'zürich'", "'10'", "'😀'"])
_DAYS = st.sampled_from(["day", "due", "DATE '1970-01-01'", "date'0001-01-01'", "DATE '9999-12-31'"])
_OF_ONE_KIND = st.sampled_from([_INTEGERS, _TEXTS, _DAYS])


@st.composite
def _comparisons(draw: st.DrawFn) -> str:
    kind = draw(_OF_ONE_KIND)
    left, right, third = draw(kind), draw(kind), draw(kind)
    form = draw(st.integers(0, 3))
    if form == 0:
        return f"{left} {draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))} {right}"
    if form == 1:
        return f"{left} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {right} AND {third}"
    if form == 2:
        return f"{left} {draw(st.sampled_from(['', 'NOT ']))}IN ({right}, {third})"
    return f"{draw(st.sampled_from(['n', 'text', 'day', 'flag', 'x']))} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


_CONDITIONS = st.recursive(
    _comparisons() | st.just("flag"),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join)
        | inner.map(lambda one: f"NOT {one}")
        | inner.map(lambda one: f"({one})")
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def source() -> Iterator[SparkSession]:
    spark = open_session("comparisons", SparkSpec(master="local[2]"))
    numbered = TABLE.append_column("row", pa.array(range(len(TABLE))))
    spark.createDataFrame(numbered).createOrReplaceTempView("comparison_rows")
    yield spark
    spark.catalog.dropTempView("comparison_rows")


@profiles.examples()
@given(conditions=st.lists(_CONDITIONS, min_size=8, max_size=8))
def test_comparisons_select_the_rows_that_spark_selects(source: SparkSession, conditions: list[str]) -> None:
    compiled = {one: compile_comparisons(f"SELECT n FROM src WHERE {one}", TYPES) for one in conditions}
    known = {one: pickle.loads(pickle.dumps(found)) for one, found in compiled.items() if found is not None}
    if not known:
        return
    columns = ", ".join(f"({one}) AS c{at}" for at, one in enumerate(known))
    answers = source.sql(f"SELECT {columns} FROM comparison_rows AS src ORDER BY row").toArrow()
    for at, (one, condition) in enumerate(known.items()):
        assert condition.evaluate(TABLE).to_pylist() == answers.column(at).to_pylist(), one


@pytest.mark.parametrize(
    "condition",
    [
        "n = 1.0",
        "n = '1'",
        "text = 1",
        "x > 0",
        "n = x",
        "n + 1 = 2",
        "upper(text) = 'A'",
        "text LIKE 'a%'",
        "day = '1970-01-01'",
        "day < DATE '1970-01'",
        "day < DATE '1970-01-01' + INTERVAL 1 DAY",
        "n <=> 1",
        "flag = true",
        "flag IS TRUE",
        "text = 'it''s'",
        r"text = 'a\nb'",
        "n = 9223372036854775808",
        "n = 1L",
        "n IN (1, NULL)",
        "1 = 1",
        "NOT CASE WHEN n > 1 THEN flag END",
        "n > 0 AND rand() < 1",
        f"n IN ({', '.join(map(str, range(40)))})",
    ],
)
def test_what_needs_a_conversion_or_a_function_is_left_to_spark(condition: str) -> None:
    assert compile_comparisons(f"SELECT n FROM src WHERE {condition}", TYPES) is None


def test_a_field_of_a_struct_is_no_column() -> None:
    types: dict[str, Any] = {"pair": pa.struct([("n", pa.int64())]), "n": pa.int64()}
    assert compile_comparisons("SELECT n FROM src WHERE pair.n = 1", types) is None
    assert compile_comparisons("SELECT n FROM src AS s WHERE s.n = 1", types) is not None
    assert compile_comparisons("SELECT n FROM src AS s WHERE src.n = 1", types) is None
