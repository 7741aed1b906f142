"""Rows are selected by values that are equal as keys are: one zero, one NaN, null equals null, times in UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

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
    found = selected(rows, [KnownValues.of(windows).through(trace, picked=False)])
    assert found.column("t").to_pylist() == times[:2]
