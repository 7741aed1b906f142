"""Parts: no matter how rows are cut, the verdict is that of the whole table, and no process holds all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from milepost.codec.records import from_json, to_json
from milepost.jobspec.job.spec import QualitySpec
from milepost.language.expectation_combination import COMBINATIONS, Combination, combination_of
from milepost.language.expectations import ARGUMENTS
from milepost.quality.evidence import Evidence
from milepost.quality.gate import collect_evidence, columns_of, evaluate
from milepost.quality.merged_verdict import decide_verdict
from milepost.quality.partial_results import MAX_VALUES, PartialResult, Tally, combination_for, required_columns
from milepost.quality.partitioning import partition_rows, sample_rows
from milepost.quality.verdict import ExpectationResult, Verdict, VerdictStatus
from milepost_testkit import profiles, wording

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int16()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.decimal128(9, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)
TIMES = [datetime(2026, 1, 1 + number, tzinfo=UTC) for number in range(3)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([0, 1, 2, 3, -1, 2**60, 2**60 + 1]),
    "j": st.sampled_from([0, 1, 2]),
    "f": st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan"), float("inf")]),
    "s": st.sampled_from(["", "a", "b", "abc", "12", "2026-01-01", '{"a": 1}']),
    "b": st.booleans(),
    "d": st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal("2.00")]),
    "t": st.sampled_from(TIMES),
    "day": st.sampled_from([one.date() for one in TIMES]),
}
RANGE: dict[str, Any] = {"min_value": 0, "max_value": 2}

SUITES: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("expectations.yaml"))


CUT_TYPES = [
    *(pa.float32(), pa.float64(), pa.int8(), pa.uint64(), pa.bool_(), pa.string(), pa.binary()),
    *(pa.decimal128(9, 2), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.date32()),
]


def suite(*expectations: Mapping[str, Any], **keys: Any) -> QualitySpec:
    return QualitySpec.model_validate({"sink": "carriers", **keys, "expectations": list(expectations)})


def judged_in_parts(
    spec: QualitySpec, pieces: Sequence[pa.Table], key: tuple[str, ...] = (), cuts: int = 3
) -> tuple[Verdict, dict[int, Evidence]]:
    """Judge pieces as the tasks do: each by itself, those of uniqueness cut by value; what is found is sent as text."""
    schema = pieces[0].schema
    hows = {number: combination_for(one, schema) for number, one in enumerate(spec.expectations)}
    by_value = (Combination.KEYS, Combination.DISTINCT)
    first = Tally(
        spec, key, schema, [number for number, how in hows.items() if how not in (*by_value, Combination.ALL)]
    )
    parts = [first.part(piece) for piece in pieces if piece.num_rows]
    whole = pa.concat_tables(pieces)
    for number in [number for number, how in hows.items() if how in by_value]:
        expectation = spec.expectations[number]
        needed = whole.select(required_columns(expectation, key, schema))
        for rows in partition_rows(needed, columns_of(expectation), cuts):
            if rows.num_rows:
                parts.append(PartialResult(metrics=Tally(spec, key, rows.schema, [number]).part(rows).metrics))
    joined = PartialResult()
    for part in parts:
        joined = joined.with_next(from_json(PartialResult, json.loads(json.dumps(to_json(part))), "a part"), spec.rows)
    return decide_verdict(spec, joined, schema, key)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[int]]:
    """A few rows with nulls, and where they are cut."""
    size = draw(st.integers(1, 7))
    columns = []
    for field in SCHEMA:
        values = draw(st.lists(st.none() | VALUES[field.name], min_size=size, max_size=size))
        columns.append(pa.array(values, field.type))
    cuts = draw(st.lists(st.integers(0, size), max_size=3).map(sorted))
    return pa.table(columns, schema=SCHEMA), cuts


def cut(table: pa.Table, cuts: Sequence[int]) -> list[pa.Table]:
    ends = [0, *cuts, table.num_rows]
    return [table.slice(begin, end - begin) for begin, end in pairwise(ends)]


def told(result: ExpectationResult) -> tuple[Any, ...]:
    return result.type, result.column, result.success, dict(result.observed), result.exception is not None


@pytest.mark.long
@pytest.mark.parametrize("nulls", [False, True])
def test_dates_outside_the_years_of_python_are_judged_correctly(nulls: bool) -> None:
    days = [3_000_000, 10, *([None] if nulls else [2]), 3_000_000, -2_000_000]
    far = pa.array(days, pa.int32()).cast(pa.date32())
    inside = pa.array([[day] for day in days], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    table = pa.table({"day": far, "inside": inside})
    ends = {"min_value": date(1960, 1, 1), "max_value": date(2100, 1, 1)}
    spec = suite(
        {"type": "expect_column_values_to_be_between", "column": "day", **ends},
        {"type": "expect_column_values_to_be_unique", "column": "day"},
        {"type": "expect_column_values_to_not_be_null", "column": "inside"},
        {"type": "expect_column_max_to_be_between", "column": "day", **ends},
    )
    whole = evaluate(spec, table)
    found, shown = judged_in_parts(spec, cut(table, [1, 3]))
    assert [told(one) for one in found.expectations] == [told(one) for one in whole.expectations]
    between, unique, not_null, greatest = whole.expectations
    assert (between.observed["unexpected_count"], unique.observed["unexpected_count"]) == (3, 2) and not_null.success
    assert not greatest.success and greatest.exception is not None, "the library parses it, and says so of this one"
    assert [row["day"] for row in shown[0].rows] == ["10183-09-21", "10183-09-21", "-3506-03-09"]


@pytest.mark.long
@profiles.examples(share=0.3, suppress_health_check=list(HealthCheck))
@given(drawn=tables(), mostly=st.sampled_from([1.0, 0.5, 2 / 3]), data=st.data())
def test_the_verdict_on_any_parts_is_that_on_the_whole_table(
    drawn: tuple[pa.Table, list[int]], mostly: float, data: st.DataObject
) -> None:
    table, cuts = drawn
    chosen = data.draw(st.lists(st.sampled_from(SUITES), min_size=3, max_size=12))
    expectations = [
        {**one, "mostly": mostly} if "mostly" in ARGUMENTS[one["type"]].split() and number % 2 else one
        for number, one in enumerate(chosen)
    ]
    spec = suite(*expectations)
    whole = evaluate(spec, table)
    found, _ = judged_in_parts(spec, cut(table, cuts))
    assert found.status is whole.status and found.rows == whole.rows
    for one, other in zip(found.expectations, whole.expectations, strict=True):
        assert told(one) == told(other), (one, other)


def test_every_expectation_of_the_library_is_either_compared_with_the_whole_or_needs_all_rows() -> None:
    """A new one would count as one that looks at single rows."""
    compared = {one["type"] for one in SUITES}
    needing = {type_ for type_, how in COMBINATIONS.items() if how is Combination.ALL}
    assert compared | needing == ARGUMENTS.keys() and not compared & needing
    assert COMBINATIONS.keys() <= ARGUMENTS.keys()


@pytest.mark.deep
@pytest.mark.parametrize("size", [130, 999, 1_000])
def test_shares_of_refused_rows_are_of_all_rows_not_of_a_part(size: int) -> None:
    """Half of the first and of the last rows are refused, one percent in all: `mostly` is applied once, to the sums."""
    rows = pa.table({"v": [11, 1] * 5 + [1] * 980 + [1, 11] * 5})
    for mostly, met in ((0.99, True), (0.995, False)):
        spec = suite({"type": "expect_column_values_to_be_between", "column": "v", **RANGE, "mostly": mostly})
        found, _ = judged_in_parts(spec, cut(rows, range(size, 1_000, size)))
        assert found.expectations[0].success is met
        assert found.expectations[0].observed["unexpected_percent"] == 1


@pytest.mark.deep
def test_a_share_is_of_the_rows_that_have_a_value() -> None:
    rows = pa.table({"v": pa.array([1] * 6 + [11] * 2 + [None] * 92, pa.int64())})
    for mostly, met in ((0.75, True), (0.76, False)):
        spec = suite({"type": "expect_column_values_to_be_between", "column": "v", **RANGE, "mostly": mostly})
        found, _ = judged_in_parts(spec, cut(rows, [7, 50]))
        assert found == evaluate(spec, rows) and found.expectations[0].success is met


@pytest.mark.long
@pytest.mark.parametrize("at", [0, 150, 299])
def test_an_expectation_that_raises_in_any_part_vetoes(at: int) -> None:
    """Two columns are compared of which one is null in one row; whatever the severity."""
    rows = pa.table({"v": range(300), "w": [None if number == at else 0 for number in range(300)]})
    kind = "expect_column_pair_values_a_to_be_greater_than_b"
    spec = suite({"type": kind, "column_A": "v", "column_B": "w", "severity": "info", "or_equal": True})
    found, _ = judged_in_parts(spec, cut(rows, [100, 200]))
    assert found.status is VerdictStatus.ERROR and told(found.expectations[0]) == told(
        evaluate(spec, rows).expectations[0]
    )


@pytest.mark.deep
def test_refused_rows_are_those_that_the_whole_table_shows_first() -> None:
    rows = pa.table({"k": range(100), "v": [number % 3 for number in range(100)], "w": ["x"] * 100})
    spec = suite({"type": "expect_column_values_to_be_between", "column": "v", "max_value": 1}, rows=5)
    _, found = judged_in_parts(spec, cut(rows, [10, 11, 12]), ("k",))
    assert found == collect_evidence(spec, [0], rows, ["k"])
    assert [row["k"] for row in found[0].rows] == [2, 5, 8, 11, 14] and found[0].rows[0].keys() == {"k", "v"}


@pytest.mark.deep
def test_a_duplicate_value_is_found_wherever_its_rows_are() -> None:
    rows = pa.table({"k": [*range(1_000), 7], "v": [1.0] * 1_001})
    spec = suite({"type": "expect_column_values_to_be_unique", "column": "k"})
    found, seen = judged_in_parts(spec, cut(rows, [500]), ("v",), cuts=16)
    assert found.status is VerdictStatus.FAILED and found.expectations[0].observed["unexpected_count"] == 2
    assert [row["k"] for row in seen[0].rows] == [7, 7]


@pytest.mark.parametrize("type_", CUT_TYPES, ids=str)
def test_equal_values_are_in_one_part_whatever_the_other_rows(type_: pa.DataType) -> None:
    """A null next to a value, or another row, does not move it; a null is a value of its own."""
    some = pa.array([0, 1, 1, None, 0], pa.int32())
    through = {pa.binary(): pa.string(), pa.decimal128(9, 2): pa.string(), pa.date32(): pa.int32()}
    values = some.cast(through.get(type_, pa.int64())).cast(type_)
    rows = pa.table({"v": values, "n": range(5)})
    parts = partition_rows(rows, ["v"], 64)
    of_row = {number: at for at, part in enumerate(parts) for number in part["n"].to_pylist()}
    assert of_row[0] == of_row[4] and of_row[1] == of_row[2]
    for number in range(5):
        (alone,) = [at for at, part in enumerate(partition_rows(rows.slice(number, 1), ["v"], 64)) if part.num_rows]
        assert alone == of_row[number]


def test_both_zeros_are_in_one_part() -> None:
    parts = partition_rows(pa.table({"v": [0.0, -0.0, float("nan"), None]}), ["v"], 63)
    assert sorted(part.num_rows for part in parts if part.num_rows) in ([4], [2, 2])


@pytest.mark.parametrize(
    ("condition", "how"),
    [
        ("j > 0 and i < 3", Combination.ROWS),
        ("(j > 0) & ~(i == 1)", Combination.ROWS),
        ("j > j.mean()", Combination.ALL),
        ("index > 2", Combination.ALL),
        ("abs(j) > 2", Combination.ALL),
        ("`a b` > 1", Combination.ALL),
    ],
)
def test_a_row_condition_that_may_depend_on_other_rows_needs_all_rows(condition: str, how: Combination) -> None:
    arguments = {"column": "i", "row_condition": condition, "condition_parser": "pandas"}
    assert combination_of("expect_column_values_to_not_be_null", arguments) is how


MEDIAN = {"type": "expect_column_median_to_be_between", "column": "v", "min_value": 400, "max_value": 600}


def test_an_expectation_that_needs_all_rows_vetoes_without_a_sample_and_names_the_setting() -> None:
    found, _ = judged_in_parts(suite({**MEDIAN, "severity": "warning"}), cut(pa.table({"v": range(1_000)}), [500]))
    assert found.status is VerdictStatus.ERROR
    wording.matches("verdicts", str(found.expectations[0].exception))


@pytest.mark.parametrize(("size", "total"), [(1, 1), (1, 10), (3, 10), (10, 10), (50, 10), (100_000, 5_000_000_000)])
def test_a_sample_is_spread_evenly_and_is_the_same_wherever_rows_are_cut(size: int, total: int) -> None:
    rows = pa.table({"n": range(min(total, 100_000))})
    whole = sample_rows(rows, 0, size, total)
    cut_up = [sample_rows(rows.slice(begin, 7), begin, size, total) for begin in range(0, min(70, total), 7)]
    assert pa.concat_tables(cut_up)["n"].to_pylist() == [n for n in whole["n"].to_pylist() if n < 70]
    if total == rows.num_rows:
        assert whole.num_rows == min(size, total)


def test_a_set_of_too_many_values_is_not_compared() -> None:
    rows = pa.table({"v": range(MAX_VALUES + 1)})
    spec = suite({"type": "expect_column_distinct_values_to_contain_set", "column": "v", "value_set": [1]})
    found, _ = judged_in_parts(spec, cut(rows, [5_000]))
    assert found.status is VerdictStatus.ERROR and "distinct values" in str(found.expectations[0].exception)
    found, _ = judged_in_parts(spec, cut(rows.slice(1), [5_000]))
    assert found.status is VerdictStatus.PASSED


@pytest.mark.deep
@pytest.mark.parametrize("again", range(3))
def test_decimals_stay_decimals_when_their_sum_is_checked_as_well(again: int) -> None:
    """The library made floats of them amid other questions, in an order of its own; and raised where one is null."""
    rows = pa.table({"d": pa.array([Decimal("0.10"), None, Decimal("0.20")], pa.decimal128(9, 2))})
    spec = suite(
        {"type": "expect_column_sum_to_be_between", "column": "d", "max_value": 0.4},
        {"type": "expect_column_values_to_be_of_type", "column": "d", "type_": "Decimal"},
        {"type": "expect_column_mean_to_be_between", "column": "d", "min_value": 0.1, "max_value": 0.2},
    )
    assert [one.exception for one in evaluate(spec, rows).expectations] == [None, None, None]
