"""Statistics of a data file are what its rows say, and nothing where engines would not agree."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import date
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from milepost.sinks.parquet_files.file_statistics import statistics_of

US_PER_DAY = 86_400_000_000


def said_of(table: pa.Table, row_group_size: int = 2) -> dict[str, Any]:
    body = io.BytesIO()
    pq.write_table(table, body, row_group_size=row_group_size)
    said: dict[str, Any] = json.loads(statistics_of(pq.read_metadata(body)))
    return said


def ends_of(values: list[Any], data_type: pa.DataType) -> tuple[Any, Any]:
    said = said_of(pa.table({"c": pa.array(values, data_type)}))
    return said["minValues"].get("c"), said["maxValues"].get("c")


@pytest.mark.parametrize(
    ("values", "data_type", "ends"),
    [
        ([3, None, -7, 5], pa.int64(), (-7, 5)),
        ([-(2**63), 2**63 - 1], pa.int64(), (-(2**63), 2**63 - 1)),
        ([-128, 127], pa.int8(), (-128, 127)),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), ("0001-01-01", "9999-12-31")),
        ([0, 1], pa.timestamp("us", "UTC"), ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z")),
        ([-1, 1_000], pa.timestamp("us"), ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.001")),
        (["b", None, "a", ""], pa.string(), ("", "b")),
        (["ä", "z" * 32], pa.string(), ("z" * 32, "ä")),
    ],
)
def test_minimum_and_maximum_are_recorded_for_integers_days_times_and_short_text(
    values: list[Any], data_type: pa.DataType, ends: tuple[Any, Any]
) -> None:
    """Rule: exact for numbers, days and text; times as milliseconds, down at the lower end and up at the upper."""
    assert ends_of(values, data_type) == ends


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([1.0, 2.0], pa.float64()),
        ([1.0, float("nan")], pa.float32()),
        ([1, 2], pa.decimal128(38, 2)),
        ([True, False], pa.bool_()),
        ([b"a", b"b"], pa.binary()),
        (["a", "z" * 33], pa.string()),
        (["a", "b" * 9_000], pa.string()),
        ([0, 1], pa.timestamp("ms", "UTC")),
        ([0, 3_000_000], pa.date32()),
        ([0, -800_000], pa.date32()),
        ([0, 253_402_300_799_999_999], pa.timestamp("us", "UTC")),
        ([0, -62_135_596_800_000_001], pa.timestamp("us")),
        ([None, None], pa.int64()),
        ([], pa.int64()),
    ],
)
def test_no_minimum_or_maximum_is_recorded_where_engines_would_not_agree(
    values: list[Any], data_type: pa.DataType
) -> None:
    """Rule: never of floats, of text that would have to be cut, or of times that a calendar does not reach."""
    assert ends_of(values, data_type) == (None, None)


def test_rows_and_nulls_are_counted_over_all_row_groups() -> None:
    """Rule: numRecords always, nullCount of every column that holds no columns, under its own name."""
    table = pa.table(
        {
            "s": pa.array([{"c": 9}, None, {"c": None}], pa.struct([("c", pa.int64())])),
            "m": pa.array([[("k", [1])], None, []], pa.map_(pa.string(), pa.list_(pa.int64()))),
            "c": pa.array([None, 4, None]),
            "f": pa.array([None, float("nan"), 1.0]),
        }
    )
    said = said_of(table)
    assert said == {"numRecords": 3, "minValues": {"c": 4}, "maxValues": {"c": 4}, "nullCount": {"c": 2, "f": 1}}


def test_a_column_without_statistics_in_the_footer_gets_none() -> None:
    """Rule: a count that is not known is not taken for zero."""
    body = io.BytesIO()
    pq.write_table(pa.table({"a": [1], "b": [1]}), body, write_statistics=["a"])
    assert json.loads(statistics_of(pq.read_metadata(body)))["nullCount"] == {"a": 0}


@given(
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9),
    texts=st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=9),
    times=st.lists(st.none() | st.integers(-700_000 * US_PER_DAY, 2_900_000 * US_PER_DAY), min_size=1, max_size=9),
)
def test_ends_hold_every_value(numbers: list[int | None], texts: list[str | None], times: list[int | None]) -> None:
    """Rule: the statistics of a column never exclude one of its rows."""
    lowest, highest = ends_of(numbers, pa.int64())
    assert all(lowest <= value <= highest for value in numbers if value is not None)
    lowest, highest = ends_of(texts, pa.string())
    assert lowest is None or all(lowest <= value <= highest for value in texts if value is not None)
    moments = pa.array(times, pa.timestamp("us")).to_pylist()
    lowest, highest = ends_of(times, pa.timestamp("us"))
    assert all(lowest <= f"{value.isoformat(timespec='microseconds')}" for value in moments if value is not None)
    assert all(highest >= f"{value.isoformat(timespec='milliseconds')}" for value in moments if value is not None)


@pytest.mark.deep
def test_tasks_need_no_library_of_a_format_for_it() -> None:
    """Rule: files are staged without a library of the format in the worker (TABLES 1.2)."""
    code = (
        "import sys, milepost.sinks.parquet_files.file_statistics; print({'deltalake', 'pyiceberg'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
