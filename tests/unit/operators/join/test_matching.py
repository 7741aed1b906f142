"""Right rows that match left rows by key and comparisons, as Spark compares."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.operators.join.matching import Compared, Matches, matched_weights
from milepost_testkit import profiles

nan, inf = float("nan"), float("inf")
SYMBOLS = ("=", "<>", "<=>", "<", "<=", ">", ">=")


def spark(symbol: str, left: Any, right: Any) -> bool:
    """Compare as Spark does: NaN equals NaN and is above all numbers, and a null makes all but `<=>` unknown."""
    if left is None or right is None:
        return symbol == "<=>" and left is right

    def place(value: Any) -> Any:
        return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value

    left, right = place(left), place(right)
    return bool({"=": left == right, "<>": left != right, "<=>": left == right, "<": left < right,
                 "<=": left <= right, ">": left > right, ">=": left >= right}[symbol])  # fmt: skip


FLOATS = (None, -inf, -1.0, -0.0, 0.0, 2.5, inf, nan)


@pytest.mark.long
@pytest.mark.parametrize("symbol", SYMBOLS)
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (FLOATS, pa.float64()),
        ((None, -(2**63), 0, 2**63 - 1), pa.int64()),
        ((None, "", "Z", "a", "é", "\U0001f600", "\uffff"), pa.string()),
        ((None, False, True), pa.bool_()),
        ((None, b"", b"\xff", b"a"), pa.binary()),
        ((None, *map(Decimal, ("-1.50", "0.00", "2.25"))), pa.decimal128(9, 2)),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_values_compare_as_in_spark(symbol: str, values: tuple[Any, ...], type_: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(values, type_)])
    zeros = np.zeros(len(values), dtype=np.int64)
    compared = Compared.of(symbol, column, column)
    pairs = {(own, other) for owns, others in Matches.of(zeros, zeros, [compared]).pairs(3)
             for own, other in zip(owns.tolist(), others.tolist(), strict=True)}  # fmt: skip

    def order(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    assert pairs == {
        (own, other)
        for own, left in enumerate(values)
        for other, right in enumerate(values)
        if spark(symbol, order(left), order(right))
    }


rows = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(FLOATS), st.sampled_from([None, "a", "b"])), max_size=8)


@profiles.examples(share=0.5)
@given(rows, rows, st.lists(st.tuples(st.sampled_from(SYMBOLS), st.booleans()), max_size=4), st.integers(0, 9))
def test_pairs_and_sums_are_those_of_every_pair(
    left: list[Any], right: list[Any], comparisons: list[tuple[str, bool]], seed: int
) -> None:
    """However many comparisons there are, of two columns."""
    sides = [pa.table(list(zip(*one, strict=True)) if one else [[], [], []], schema=pa.schema(
        [("key", pa.int64()), ("x", pa.float64()), ("s", pa.string())])) for one in (left, right)]  # fmt: skip
    keys = [one["key"].to_numpy() for one in sides]
    compared = [Compared.of(symbol, *(one["s" if text else "x"] for one in sides)) for symbol, text in comparisons]
    expected = [
        [
            own[0] == other[0] and all(spark(symbol, own[1 + text], other[1 + text]) for symbol, text in comparisons)
            for other in right
        ]
        for own in left
    ]
    found = {(own, other) for owns, others in Matches.of(*keys, compared).pairs(3)
             for own, other in zip(owns.tolist(), others.tolist(), strict=True)}  # fmt: skip
    assert found == {(own, other) for own, row in enumerate(expected) for other, holds in enumerate(row) if holds}
    weights = np.random.default_rng(seed).integers(-2, 3, len(right))
    sums = matched_weights(*keys, compared, [weights, np.ones(len(right), dtype=np.int64)])
    assert sums[0].tolist() == [int(sum(weights[np.array(row, dtype=np.bool_)])) for row in expected]
    assert sums[1].tolist() == [sum(row) for row in expected]
