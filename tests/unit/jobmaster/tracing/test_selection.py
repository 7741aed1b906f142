"""Rows are selected by values that are equal as keys are: one zero, one NaN, null equals null, times in UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from milepost.epoch import stamp_column
from milepost.jobmaster.tracing.selection import KnownValues, selected
from milepost.operators.base.row_trace import RowTrace, TimeSpan, same_names

_FIVE = timezone(timedelta(hours=5))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "values", "wanted", "places"),
    [
        (pa.int32(), [1, 2, None, 1], [1], [0, 3]),
        (pa.string(), ["a", None, "b"], [None], [1]),
        (pa.float64(), [0.0, -0.0, math.nan, None, 1.5], [0.0], [0, 1]),
        (pa.float64(), [0.0, math.nan, None, math.nan], [math.nan], [1, 3]),
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("2.00")], [Decimal("1.50")], [0]),
        (pa.bool_(), [True, False, None], [False, None], [1, 2]),
        (pa.timestamp("us", "UTC"), [NOON, NOON + timedelta(hours=1)], [NOON.astimezone(_FIVE)], [0]),
        (pa.list_(pa.int64()), [[1], [2], None], [[2]], [1]),
        (pa.struct([("x", pa.float64())]), [{"x": 0.0}, {"x": 1.0}], [{"x": -0.0}], [0]),
    ],
)  # fmt: skip
def test_equal_keys_are_selected(type_: pa.DataType, values: list[Any], wanted: list[Any], places: list[int]) -> None:
    rows = pa.table({"k": pa.array(values, type_), "at": list(range(len(values)))})
    known = KnownValues.of(pa.table({"k": pa.array(wanted, type_)}))
    assert selected(rows, [known]).column("at").to_pylist() == places


def test_a_value_of_another_type_is_compared_as_a_value() -> None:
    rows = pa.table({"k": pa.array([1, 2], pa.int32())})
    assert selected(rows, [KnownValues.of(pa.table({"k": pa.array([2, 2**40], pa.int64())}))]).to_pylist() == [{"k": 2}]


def test_nothing_known_selects_every_row_and_no_alternative_none() -> None:
    rows = pa.table({"k": [1, 2]})
    assert selected(rows, [KnownValues({})]).num_rows == 2
    assert selected(rows, []).num_rows == 0


def test_a_span_is_that_of_its_own_key_and_without_its_end() -> None:
    trace = RowTrace(0, same_names(["k"]), span=TimeSpan("t", "start", "end", timedelta(hours=1)))
    windows = pa.table(
        {"k": ["a", "b"], "start": [NOON, NOON + timedelta(hours=1)], "end": [NOON + timedelta(hours=1)] * 2}
    )
    times = [NOON, NOON + timedelta(minutes=59), NOON + timedelta(hours=1)]
    rows = pa.table({"k": ["a", "a", "a"], "t": times})
    found = selected(rows, [KnownValues.of(windows).through(trace, "hourly", picked=False)])
    assert found.column("t").to_pylist() == times[:2]


@pytest.mark.parametrize(("allowed", "listed"), [(0, [0]), (10, [0, 1]), (11, [0, 1, 2])])
def test_a_row_that_was_read_when_a_window_was_closed_is_not_in_it(allowed: int, listed: list[int]) -> None:
    span = TimeSpan("t", "start", "end", timedelta(hours=1), allowed_lateness=timedelta(microseconds=allowed))
    window = pa.table({"start": [NOON], "end": [NOON + timedelta(hours=1)]})
    end_us = int((NOON + timedelta(hours=1)).timestamp()) * 10**6
    stamps = pa.array([end_us - 1, end_us, end_us + 10], pa.int64())
    rows = pa.table({"n": [0, 1, 2], "t": [NOON] * 3, stamp_column("hourly"): stamps})
    found = selected(rows, [KnownValues.of(window).through(RowTrace(0, {}, span=span), "hourly", picked=False)])
    assert found.column("n").to_pylist() == listed


def test_a_window_in_a_year_that_python_cannot_represent_selects_by_its_other_bound() -> None:
    trace = RowTrace(0, {}, span=TimeSpan("t", "start", "end", timedelta(hours=1)))
    last = int(datetime(9999, 12, 31, 23, 59, tzinfo=UTC).timestamp()) * 10**6
    times = pa.schema([(name, pa.timestamp("us", "UTC")) for name in ("start", "end", "t")])
    rows = pa.table({"t": [last - 1, last, last + 1]}).cast(pa.schema([times.field("t")]))
    window = KnownValues.of(pa.table({"start": [last], "end": [last + 3_600_000_000]}).cast(pa.schema([*times][:2])))
    assert selected(rows, [window.through(trace, "hourly", picked=False)]).num_rows == 2
    end = KnownValues({"end": window.columns["end"]})
    assert selected(rows, [end.through(trace, "hourly", picked=False)]).num_rows == 3


def test_bounds_of_no_window_select_no_row() -> None:
    trace = RowTrace(0, {}, span=TimeSpan("t", "start", "end", timedelta(hours=1)))
    none = KnownValues({"start": [], "end": []}).through(trace, "hourly", picked=False)
    assert selected(pa.table({"t": [NOON]}), [none]).num_rows == 0
