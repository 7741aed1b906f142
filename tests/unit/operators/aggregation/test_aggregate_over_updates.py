"""Aggregates over updates: a retracted row leaves no trace, and a key without rows is deleted."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.over_updates import AggregateOverUpdates
from milepost.operators.contract import ONLY_TABLE, OperatorFailed, OperatorInput
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema(
    {"k": pa.string(), "v": pa.int64(), "d": pa.decimal128(9, 2), "x": pa.float64(), WEIGHT_COLUMN: pa.int64()}
)
CALLS = {"n": "count(*)", "total": "sum(v)", "mean": "avg(d)", "spread": "var(v)", "some": "count(v)"}


def operator(calls: dict[str, str] = CALLS, stable_key: tuple[str, ...] = ()) -> AggregateOverUpdates:
    parsed = {name: parse_aggregate(text) for name, text in calls.items()}
    return AggregateOverUpdates("totals", ("k",), parsed, OperatorInput(SCHEMA, None, stable_key=stable_key))


def rows(*found: tuple[str, int | None, int]) -> pa.Table:
    cents = [None if v is None else Decimal(v % 1000).scaleb(-2) for _, v, _ in found]
    columns = [[k for k, _, _ in found], [v for _, v, _ in found], cents, [0.0] * len(found), [w for _, _, w in found]]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def started(folder: Path, **kinds: Any) -> OperatorRun:
    return OperatorRun(operator(**kinds), LocalStore(StoreConfig(f"file://{folder}")))


def test_retracted_rows_are_as_if_they_had_never_arrived(tmp_path: Path) -> None:
    large = 2**62
    run, plain = started(tmp_path / "run"), started(tmp_path / "plain")
    run.epoch(rows(("a", large, 1), ("a", -large, 1), ("a", 7, 2), ("a", None, 1)), cuts=[1])
    out = run.epoch(rows(("a", large, -1), ("a", 7, -1), ("a", 5, 1), ("a", -large, -1)), cuts=[2]).rows
    expected = plain.epoch(rows(("a", 7, 1), ("a", 5, 1), ("a", None, 1))).rows
    assert out.to_pylist() == expected.to_pylist()
    assert out.to_pylist()[0] | {"mean": None} == {
        "k": "a", "n": 3, "total": 12, "mean": None, "spread": 2.0, "some": 2, "__deleted": False,
    }  # fmt: skip
    assert run.state().to_pylist() == plain.state().to_pylist()


def test_a_key_without_rows_is_deleted_and_forgotten(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.epoch(rows(("a", 1, 1), ("b", 2, 1)))
    out = run.epoch(rows(("a", 1, -1))).rows.to_pylist()
    assert out == [{"k": "a", **dict.fromkeys(CALLS), "__deleted": True}]
    assert run.state().column("k").to_pylist() == ["b"]
    assert run.epoch(rows(("a", 4, 1), ("a", 4, -1))).rows.num_rows == 0, "it came and went in one epoch"


def test_a_row_may_be_retracted_before_it_arrives(tmp_path: Path) -> None:
    """The key counts as absent, is in no output, and nothing of it is lost."""
    run = started(tmp_path)
    assert run.epoch(rows(("a", 1, -1))).rows.num_rows == 0
    assert run.epoch(rows(("a", 1, 1), ("a", 3, 1))).rows.column("total").to_pylist() == [3]


def test_where_keys_never_go_rows_are_not_marked() -> None:
    assert "__deleted" in operator().output_schema.names
    assert "__deleted" not in operator(stable_key=("k", "v")).output_schema.names


def test_a_change_of_a_key_is_a_retraction_and_a_new_row(tmp_path: Path) -> None:
    run = started(tmp_path, calls={"n": "count(*)"})
    run.epoch(rows(("a", 1, 1), ("b", 1, 1), ("c", 1, 1)))
    state = run.restore(0, 1)
    epoch = run.operator.begin({ONLY_TABLE: state}, None)
    list(epoch.rows(0, rows(("a", 1, -1), ("b", 2, 1), ("c", 1, 1), ("c", 1, -1), ("d", 1, 1)), None))
    epoch.finish(None)
    taken = epoch.retractions().to_pylist()  # type: ignore[attr-defined]
    assert sorted((row["k"], row["n"], row[WEIGHT_COLUMN]) for row in taken) == [
        ("a", 1, -1), ("b", 1, -1), ("b", 2, 1), ("d", 1, 1),
    ]  # fmt: skip


def test_retractions_of_rows_that_never_arrived_are_refused_with_their_key(tmp_path: Path) -> None:
    run = started(tmp_path)
    epoch = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    list(epoch.rows(0, rows(("a", 1, -1)), None))
    epoch.finish(None)
    with wording.raises(OperatorFailed):
        epoch.check_settled(all_keys=False)  # type: ignore[attr-defined]


SPREADS = {"total": "sum(x)", "mean": "avg(x)", "variance": "var(x)"}
LARGEST = sys.float_info.max
SPECIAL = (math.nan, math.inf, -math.inf, LARGEST, -LARGEST, 5e-324, 0.1, -0.0, None)


def floats(*changes: tuple[float | None, int]) -> pa.Table:
    """Return rows of one key: the value of x, and the weight."""
    count = len(changes)
    columns = [["a"] * count, [0] * count, [None] * count, [x for x, _ in changes], [w for _, w in changes]]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def expected(values: list[float | None]) -> list[float | None]:
    """Return sum, mean and variance: the exact ones, rounded once; with NaN or infinities what their sum is."""
    there = [value for value in values if value is not None]
    finite = [Fraction(value) for value in there if math.isfinite(value)]
    if len(finite) < len(there):
        total = sum(value for value in there if not math.isfinite(value))
        return [total, total, math.nan if len(there) > 1 else None]
    if not finite:
        return [None] * 3
    exact = sum(finite, Fraction(0))
    mean = exact / len(finite)
    squares = sum(((value - mean) ** 2 for value in finite), Fraction(0))
    total = rounded(exact)
    return [total, total / len(finite), rounded(squares / (len(finite) - 1)) if len(finite) > 1 else None]


def rounded(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


values_ = st.one_of(st.sampled_from(SPECIAL), st.floats())


@pytest.mark.deep
@profiles.examples(share=0.4)
@given(
    epochs=st.lists(st.lists(st.tuples(values_, st.integers(1, 2)), max_size=4), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    parallelism=st.integers(1, 3),
)
def test_sums_of_floats_are_those_of_the_remaining_rows_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[tuple[float | None, int]]], order: Random,
    parallelism: int,
) -> None:  # fmt: skip
    """NaN and infinities that were added are retracted, also before they arrive."""
    folder = tmp_path_factory.mktemp("floats")
    run, plain = started(folder / "run", calls=SPREADS), started(folder / "plain", calls=SPREADS)
    added = [change for epoch in epochs for change in epoch]
    goes = [order.random() < 0.6 for _ in added]
    changes = [*added, *((value, -weight) for (value, weight), gone in zip(added, goes, strict=True) if gone)]
    order.shuffle(changes)
    size = max(1, len(changes) // len(epochs))
    shown: dict[str, Any] = {"__deleted": True}
    for start in range(0, len(changes), size):
        piece = floats(*changes[start : start + size])
        out = run.epoch(piece, parallelism=parallelism, cuts=[1]).rows.to_pylist()
        shown = out[-1] if out else shown
    remaining = [change for change, gone in zip(added, goes, strict=True) if not gone]
    if not remaining:
        assert shown["__deleted"] and not run.state().num_rows
        return
    found = [shown[name] for name in SPREADS]
    np.testing.assert_equal(found, expected([value for value, weight in remaining for _ in range(weight)]))
    plain.epoch(floats(*remaining))
    assert run.state().equals(plain.state()), "state has one form"


def test_a_nan_that_is_retracted_leaves_the_sum_of_the_others(tmp_path: Path) -> None:
    run = started(tmp_path, calls=SPREADS)
    assert math.isnan(run.epoch(floats((1.5, 1), (math.nan, 1), (math.inf, 1))).rows["total"][0].as_py())
    assert run.epoch(floats((math.nan, -1))).rows["total"].to_pylist() == [math.inf]
    assert run.epoch(floats((math.inf, -1), (2.0, 1))).rows["variance"].to_pylist() == [0.125]
    assert run.epoch(floats((1.5, -1), (2.0, -1))).rows["__deleted"].to_pylist() == [True]
    assert not run.state().num_rows
