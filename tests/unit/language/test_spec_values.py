"""Durations, sizes, column types and aggregate calls are parsed strictly."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.language.aggregates import AggregateCall, call_type_problem, parse_aggregate, result_type
from milepost.language.times.durations import format_duration, parse_duration, parse_size
from milepost.language.types import SPARK_NAMES, ColumnType, parse_type, to_arrow
from milepost_testkit import wording


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "30", "1.5h", "-1s", "2 h", "h", "1h30m", 30, None, True, "36501d"])
def test_anything_but_a_duration_is_refused(text: object) -> None:
    """This includes a bare number, because its unit would be a guess."""
    with wording.raises(ValueError):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_the_canonical_text_of_a_duration_reads_back(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


def test_sizes_have_decimal_and_binary_units() -> None:
    sizes = [("64MB", 64_000_000), ("1KiB", 1024), ("2GiB", 2 << 30), ("5B", 5), (17, 17)]
    assert [parse_size(text) for text, _ in sizes] == [expected for _, expected in sizes]
    for bad in ("", "MB", "1.5MB", -1, True, None, "3 XB"):
        with wording.raises(ValueError):
            parse_size(bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bool", pa.bool_()),
        ("int8", pa.int8()),
        ("int64", pa.int64()),
        ("float32", pa.float32()),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[us, UTC]", pa.timestamp("us", tz="UTC")),
        (
            "list<struct<a: int32, b: list<string>>>",
            pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        ),
    ],
)
def test_a_column_type_is_the_arrow_type_of_its_name(text: str, expected: pa.DataType) -> None:
    assert to_arrow(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "varchar(20)", "int32?", "timestamptz", "map<string, int>", "timestamp(3)", "decimal()", "timestamp[us, CET]",
     "timestamp[h]", "decimal(39,0)", "decimal(3,4)", "list<>", "list<int32", "struct<>", "struct<a int32>",
     "struct<a: int32, A: string>", "string string", "list<" * 40, 3],
)  # fmt: skip
def test_anything_but_a_column_type_is_refused_with_the_grammar(text: object) -> None:
    with wording.raises(ValueError):
        parse_type(text)


@pytest.mark.parametrize(
    ("spark", "canonical"),
    [
        ("INT", "int32"),
        ("BigInt", "int64"),
        ("SMALLINT", "int16"),
        ("tinyint", "int8"),
        ("BOOLEAN", "bool"),
        ("FLOAT", "float32"),
        ("DOUBLE", "float64"),
        ("STRING", "string"),
        ("BINARY", "binary"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp[us, UTC]"),
        ("TIMESTAMP_LTZ", "timestamp[us, UTC]"),
        ("TIMESTAMP_NTZ", "timestamp[us]"),
        ("DECIMAL(12,2)", "decimal(12,2)"),
        ("NUMERIC(12)", "decimal(12,0)"),
        ("dec", "decimal(10,0)"),
        ("ARRAY<STRUCT<A: INT, at: TIMESTAMP>>", "list<struct<A: int32, at: timestamp[us, UTC]>>"),
    ],
)
def test_spark_s_name_of_a_type_is_the_type_that_spark_means(spark: str, canonical: str) -> None:
    """Upper and lower case are equal, but in the names of fields."""
    assert str(parse_type(spark)) == canonical


def test_every_spark_name_has_a_canonical_name() -> None:
    for name in SPARK_NAMES:
        text = f"{name}<int32>" if name == "array" else name
        assert parse_type(str(parse_type(text.upper()))) == parse_type(text)


_SIMPLE = st.sampled_from(["bool", "int8", "int16", "int32", "int64", "float32", "float64", "string", "binary", "date"])
_TYPES = st.recursive(
    st.one_of(
        _SIMPLE.map(ColumnType),
        st.builds(
            ColumnType, kind=st.just("timestamp"), unit=st.sampled_from(["s", "ms", "us", "ns"]), utc=st.booleans()
        ),
        st.integers(1, 38).flatmap(
            lambda p: st.integers(0, p).map(lambda s: ColumnType("decimal", precision=p, scale=s))
        ),
    ),
    lambda inner: st.one_of(
        inner.map(lambda t: ColumnType("list", element=t)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: ColumnType("struct", fields=tuple((f"f{i}", t) for i, t in enumerate(ts)))
        ),
    ),
    max_leaves=6,
)


@given(_TYPES)
def test_the_canonical_text_of_a_type_reads_back(type_: ColumnType) -> None:
    assert parse_type(str(type_)) == type_
    to_arrow(type_)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(*)", AggregateCall("count", None)),
        (" SUM( dep_delay ) ", AggregateCall("sum", "dep_delay")),
        ("max(`two words`)", AggregateCall("max", "two words")),
        ("avg(x)", AggregateCall("avg", "x")),
        ("arg_max(x,`last one`)", AggregateCall("arg_max", "x", by="last one")),
        ("COUNT(DISTINCT  x)", AggregateCall("count", "x", distinct=True)),
        ("count(distinct`a b`) filter (where c)", AggregateCall("count", "a b", where="c", distinct=True)),
        ("count(distinct)", AggregateCall("count", "distinct")),
        ("count(*) FILTER (WHERE paid)", AggregateCall("count", None, where="paid")),
        ("sum(`a) filter (where b`)filter(where `c)`)", AggregateCall("sum", "a) filter (where b", where="c)")),
    ],
)
def test_an_aggregate_is_a_function_of_one_column(text: str, expected: AggregateCall) -> None:
    call = parse_aggregate(text)
    assert call == expected
    assert parse_aggregate(str(call)) == call


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("count(*) filter (where status = 'paid' and amount > 0)", "status = 'paid' and amount > 0"),
        ("count(*) filter (where x>1)", "x>1"),
        ("sum(x) filter (where (a or b) and not (c))", "(a or b) and not (c)"),
        ("count(*) filter (where `a b` > ')')", "`a b` > ')'"),
        ("count(distinct x) filter (where\n  y is not null -- known\n)", "y is not null -- known"),
    ],
)
def test_a_filter_is_a_condition_or_a_column(text: str, condition: str) -> None:
    call = parse_aggregate(text)
    assert call.condition == condition and parse_aggregate(str(call)) == call
    assert call.where is not None and call.where.startswith("__where_") and call.where in call.columns
    other = parse_aggregate(f"count(*) filter (where {condition} or z)")
    assert other.where != call.where, "another condition is another column of state"


@pytest.mark.parametrize(
    "text",
    [
        "approx_percentile(x)",
        "approx_distinct(x)",
        "sum(distinct x)",
        "count(distinct *)",
        "count(distinct x, y)",
        "summ(x)",
        "argmax(x, y)",
        "arg_max(x)",
        "sum(x, y)",
        "sum(x) filter (where )",
        "sum(x) filter (y)",
        "min(`a`b)",
        "sum(*)",
        "sum(a + b)",
        "sum()",
        "sum",
        3,
    ],
)
def test_an_invalid_aggregate_call_is_refused(text: object) -> None:
    with wording.raises(ValueError):
        parse_aggregate(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sum(s)", "sum needs numbers, but s is string"),
        ("stddev(s)", "stddev needs numbers, but s is string"),
        ("max(l)", "max cannot order values of type list<int32>"),
        ("arg_min(i, l)", "arg_min cannot order values of type list<int32>"),
        ("any(i)", "any needs a boolean column, but i is int32"),
        ("count(*) filter (where i)", "a filter needs a boolean column, but i is int32"),
        ("count(distinct l)", "count(distinct …) needs scalar values, but l is list<int32>"),
        ("count(distinct s)", None),
        ("avg(i)", None),
        ("max(s)", None),
        ("arg_max(l, s) filter (where b)", None),
        ("every(b)", None),
        ("sum(unknown)", None),
    ],
)
def test_an_aggregate_refuses_unsuitable_types(text: str, problem: str | None) -> None:
    types = {"s": "string", "i": "int32", "l": "list<int32>", "b": "bool"}
    assert (
        call_type_problem(parse_aggregate(text), {name: parse_type(type_) for name, type_ in types.items()}) == problem
    )


def test_result_types_of_aggregates_are_fixed() -> None:
    def result(function: str, type_: str) -> str:
        return str(result_type(AggregateCall(function, "x"), parse_type(type_)))

    assert result("count", "string") == "int64"
    assert result("sum", "int8") == "int64"
    assert result("sum", "float32") == "float64"
    assert result("sum", "decimal(10,2)") == "decimal(38,2)"
    assert result("avg", "int32") == "float64"
    assert result("max", "date") == "date"
    assert result("var", "int32") == result("stddev", "decimal(10,2)") == "float64"
    assert result("every", "bool") == "bool"
    assert result("arg_max", "list<string>") == "list<string>"
    assert result("last", "timestamp[us, UTC]") == "timestamp[us, UTC]"
