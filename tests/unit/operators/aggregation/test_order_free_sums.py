"""Sums of floats without an order are the exact sums, rounded once, and their state has one form."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.operators.aggregation import order_free_sums as sums
from milepost.operators.aggregation.accumulators import Argument, Count, Grouped
from milepost.operators.aggregation.order_free_sums import OrderFreeSum, order_free_sums, order_free_variances
from milepost_testkit import profiles

X = Argument("x")
KEYS = 3
LARGEST, LEAST = sys.float_info.max, 5e-324
Rows = list[tuple[int, float]]
ROWS = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1),
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([LARGEST, -LARGEST, LEAST, -0.0])),
    ),
    max_size=12,
)  # fmt: skip
ACCUMULATORS = (Count(X), OrderFreeSum(X), OrderFreeSum(X, squares=True))
SCHEMA = pa.schema([field for one in ACCUMULATORS for field in one.fields])
NOTHING = pa.table([pa.nulls(KEYS, field.type) for field in SCHEMA], schema=SCHEMA)


def grouped(rows: Rows) -> Grouped:
    table = pa.table({"x": pa.array([value for _, value in rows], pa.float64())})
    return Grouped(table, np.array([key for key, _ in rows], dtype=np.int64), KEYS)


def updated(before: pa.Table, rows: Rows) -> pa.Table:
    columns = [column for one in ACCUMULATORS for column in one.update(before, grouped(rows))]
    return pa.table(columns, schema=SCHEMA)


def merged(*parts: pa.Table) -> pa.Table:
    partials = Grouped(pa.concat_tables(parts), np.tile(np.arange(KEYS), len(parts)), KEYS)
    return pa.table([column for one in ACCUMULATORS for column in one.merge(NOTHING, partials)], schema=SCHEMA)


def rounded(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@profiles.examples(share=0.4)
@example([(0, LARGEST), (0, LARGEST), (0, -LARGEST), (1, LEAST), (1, -1.0), (1, 1.0), (2, -LEAST)], 3)
@example([(0, -(2.0**-1000))], 1)
@given(ROWS, st.integers(0, 12))
def test_sums_and_variances_are_exact_and_rounded_once_in_whatever_order_and_pieces(rows: Rows, cut: int) -> None:
    whole = updated(NOTHING, rows)
    values = [[Fraction(value) for key, value in rows if key == own] for own in range(KEYS)]
    assert order_free_sums(whole, X).tolist() == [rounded(sum(own, Fraction(0))) for own in values]
    variances, none = order_free_variances(whole, X)
    assert none.tolist() == [len(own) < 2 for own in values]
    for found, own in zip(variances, values, strict=True):
        if len(own) > 1:
            mean = sum(own, Fraction(0)) / len(own)
            assert found == rounded(sum(((value - mean) ** 2 for value in own), Fraction(0)) / (len(own) - 1))
    first, rest = rows[:cut], rows[cut:]
    assert updated(NOTHING, rows[::-1]).equals(whole)
    assert updated(updated(NOTHING, rest), first).equals(whole)
    assert merged(updated(NOTHING, first), NOTHING, updated(NOTHING, rest)).equals(whole)


def test_added_and_retracted_values_leave_the_state_of_no_value() -> None:
    """One form for each number, in few bytes, also where it has been very large."""
    state = updated(NOTHING, [(0, 1e300), (0, 3.5), (0, -1e300), (0, -3.5)])
    assert state.column("sum(x).exact")[0] == updated(NOTHING, [(0, 0.0)]).column("sum(x).exact")[0]
    assert len(updated(NOTHING, [(0, 50.25)]).column("sum(x).exact")[0].as_py()) <= 20


@pytest.mark.parametrize(
    ("values", "total"),
    [([math.inf, 1.0], math.inf), ([-math.inf, 5.0], -math.inf), ([math.inf, -math.inf], math.nan),
     ([math.nan, 1.0], math.nan)],
)  # fmt: skip
def test_infinities_and_nan_are_what_a_sum_of_them_is(values: list[float], total: float) -> None:
    for order in (values, values[::-1]):
        parts = [updated(NOTHING, [(0, value)]) for value in order]
        for state in (updated(NOTHING, [(0, value) for value in order]), merged(*parts)):
            np.testing.assert_equal(order_free_sums(state, X)[0], total)
            assert math.isnan(order_free_variances(state, X)[0][0])


def test_many_keys_are_summed_some_at_a_time_to_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(key, value) for value in (0.1, 1e20, -3.0) for key in (2, 0, 1)]
    whole, parts = updated(NOTHING, rows), [updated(NOTHING, rows[:4]), updated(NOTHING, rows[4:])]
    monkeypatch.setattr(sums, "_KEYS_AT_ONCE", 2)
    assert updated(NOTHING, rows).equals(whole) and merged(*parts).equals(whole)
