"""What aggregates other than sums and extremes give out, to the bit, however their rows are cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.operators.aggregate.run import AggregateByKey
from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.aggregation.accumulators import Argument, Grouped
from milepost.operators.aggregation.variances import Moments
from milepost.operators.build import build_operator
from milepost.operators.contract import ONLY_TABLE, OperatorInput
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

NAN = float("nan")


def totals(calls: dict[str, str], rows: pa.Table, event_time: str | None = None) -> AggregateByKey:
    spec = AggregateOperator(uid="totals", kind="aggregate", inputs=["in"], key=["k"], aggregates=calls)
    operator = build_operator(spec, [OperatorInput(rows.schema, event_time)])
    assert isinstance(operator, AggregateByKey)
    return operator


def run(folder: Path, calls: dict[str, str], epochs: Sequence[pa.Table], cuts: Sequence[int] = ()) -> dict[Any, Any]:
    """Return the newest row of each key after some epochs, and the state in the end under None."""
    made = OperatorRun(totals(calls, epochs[0], "t"), LocalStore(StoreConfig(f"file://{folder}")))
    latest = {}
    for rows in epochs:
        latest |= {row["k"]: row for row in made.epoch(rows, cuts=cuts).rows.to_pylist()}
    return latest | {None: repr(made.state().to_pylist())}


def rows_of(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    return pa.table({"k": ["a"] * count, "t": times} | columns)


def one(folder: Path, call: str, **columns: Any) -> Any:
    return run(folder, {"it": call}, [rows_of(**columns)])["a"]["it"]


def cut(rows: pa.Table) -> Iterator[tuple[list[pa.Table], list[int]]]:
    """Yield rows in one piece, in small pieces, and in epochs."""
    yield [rows], []
    yield [rows], list(range(1, rows.num_rows, 7))
    yield [rows.slice(0, 1), rows.slice(1, 50), rows.slice(51)], [3, 4]


def test_the_spread_of_close_large_numbers_keeps_its_digits(tmp_path: Path) -> None:
    """Sums of squares of floats would have none of them left."""
    near = [1e9 + step for step in (4.0, 7.0, 13.0, 16.0)]
    assert one(tmp_path / "float", "var(x)", x=near) == 30.0
    assert one(tmp_path / "int", "var(x)", x=[2**62 + step for step in (4, 7, 13, 16)]) == 30.0
    prices = [Decimal("9999999.04"), Decimal("9999999.07"), Decimal("9999999.13"), Decimal("9999999.16")]
    assert one(tmp_path / "decimal", "var(x)", x=pa.array(prices, pa.decimal128(9, 2))) == 0.003
    assert one(tmp_path / "carry", "var(x)", x=[0, 2**33 - 1]) == (2**33 - 1) ** 2 / 2
    extremes = [-(2**63), 2**63 - 1, -(2**63), 2**63 - 1]
    assert one(tmp_path / "bounds", "stddev(x)", x=extremes) == math.sqrt((2**64 - 1) ** 2 / 3)


def test_the_spread_of_wide_decimals_is_that_of_floats_as_in_spark(tmp_path: Path) -> None:
    wide = pa.array([Decimal(10**30), Decimal(3 * 10**30)], pa.decimal128(38, 2))
    assert one(tmp_path, "stddev(x)", x=wide) == pytest.approx(math.sqrt(2) * 10**30, rel=1e-15)


@pytest.mark.parametrize(
    ("values", "expected"), [([1.5], None), ([None, None], None), ([1.5, None], None), ([1.0, 3.0, None], 2.0)]
)
def test_fewer_than_two_values_have_no_spread(tmp_path: Path, values: list[Any], expected: float | None) -> None:
    assert one(tmp_path / "float", "var(x)", x=pa.array(values, pa.float64())) == expected
    whole = [None if value is None else int(value) for value in values]
    assert one(tmp_path / "int", "var(x)", x=pa.array(whole, pa.int64())) == expected


@pytest.mark.deep
@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("values", list(permutations([0.0, -0.0, None])))
def test_extremes_of_zeros_do_not_depend_on_how_rows_are_cut_or_ordered(
    tmp_path: Path, data_type: pa.DataType, values: tuple[float | None, ...]
) -> None:
    """-0.0 is less than 0.0, as over updates, also where partial results are merged before the exchange."""
    calls = {name: f"{name}(x)" for name in ("min", "max")} | {"least": "arg_min(x, x)", "greatest": "arg_max(x, x)"}
    rows = rows_of(x=pa.array(values, data_type))
    epochs = [rows.slice(place, 1) for place in range(rows.num_rows)]
    found = [run(tmp_path / "whole", calls, [rows])["a"], run(tmp_path / "epochs", calls, epochs)["a"]]
    folding = OperatorRun(totals(calls, rows, "t"), LocalStore(StoreConfig(f"file://{tmp_path}/folded")))
    found += folding.epoch(rows, cuts=[1, 2], folded=[True] * 3).rows.to_pylist()
    assert [repr([row[name] for name in calls]) for row in found] == ["[-0.0, 0.0, -0.0, 0.0]"] * 3


def test_a_nan_makes_a_spread_nan(tmp_path: Path) -> None:
    assert math.isnan(one(tmp_path / "nan", "var(x)", x=[1.0, NAN, 2.0]))
    assert math.isnan(one(tmp_path / "inf", "var(x)", x=[1.0, float("inf"), 2.0]))


def test_spreads_and_picked_values_do_not_depend_on_pieces_and_epochs(tmp_path: Path) -> None:
    """To the bit, with many keys and with a few that have most of the rows."""
    random = np.random.default_rng(3)
    keys = np.where(random.random(400) < 0.5, "a", random.integers(0, 30, 400).astype(str))
    rows = pa.table(
        {"k": keys, "x": random.normal(1e6, 1.0, 400), "i": random.integers(0, 5, 400),
         "t": pa.array(random.integers(0, 9, 400), pa.timestamp("us", "UTC"))}
    )  # fmt: skip
    calls = {"x": "var(x)", "i": "stddev(i)", "first": "first(x)", "last": "last(i)", "most": "arg_max(x, i)"}
    made = [run(tmp_path / str(place), calls, *some) for place, some in enumerate(cut(rows))]
    assert made[0] == made[1] == made[2]
    of_a = rows.filter(pa.compute.equal(rows.column("k"), "a")).column("x").to_numpy()
    assert made[0]["a"]["x"] == pytest.approx(np.var(of_a, ddof=1), rel=1e-9)


def test_of_equals_the_value_itself_decides_not_the_order_of_arrival(tmp_path: Path) -> None:
    values, by = ["b", None, "a", "c", "z"], [2, 2, 2, 1, None]
    for place, order in enumerate(([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])):
        some = {"x": [values[at] for at in order], "y": [by[at] for at in order]}
        assert one(tmp_path / f"max{place}", "arg_max(x, y)", **some) == "b"
        assert one(tmp_path / f"min{place}", "arg_min(x, y)", **some) == "c"
    assert one(tmp_path / "null", "arg_min(x, y)", x=["b", None], y=[1, 1]) is None, "null is the least, as in Spark"


def test_a_picked_value_may_be_null_or_nested_and_nan_is_the_greatest(tmp_path: Path) -> None:
    assert one(tmp_path / "null", "arg_max(x, y)", x=["a", None], y=[1, 2]) is None
    assert one(tmp_path / "none", "arg_max(x, y)", x=["a"], y=pa.array([None], pa.int32())) is None
    nested = [{"p": [1, 2]}, {"p": None}]
    assert one(tmp_path / "nested", "arg_max(x, y)", x=nested, y=[1.0, NAN]) == {"p": None}
    assert one(tmp_path / "least", "arg_min(x, y)", x=nested, y=[1.0, NAN]) == {"p": [1, 2]}


def test_first_and_last_are_by_event_time_and_need_one(tmp_path: Path) -> None:
    times = pa.array([3, 1, 2], pa.timestamp("us", "UTC"))
    assert one(tmp_path / "first", "first(x)", x=["c", "a", "b"], t=times) == "a"
    assert one(tmp_path / "last", "last(x)", x=["c", "a", "b"], t=times) == "c"
    with wording.raises(InvalidRequest):
        totals({"it": "last(x)"}, rows_of(x=["a"]))


def test_any_and_every_pass_over_nulls(tmp_path: Path) -> None:
    flags = pa.array([None, False, True], pa.bool_())
    assert one(tmp_path / "any", "any(x)", x=flags) is True
    assert one(tmp_path / "every", "every(x)", x=flags) is False
    assert one(tmp_path / "all", "every(x)", x=pa.array([None, True], pa.bool_())) is True
    assert one(tmp_path / "none", "any(x)", x=pa.array([None], pa.bool_())) is None


def test_a_filter_lets_only_rows_through_in_which_its_column_is_true(tmp_path: Path) -> None:
    rows = rows_of(x=[1, 2, 4, 8], paid=pa.array([True, None, False, True]), y=[3, 9, 9, 1])
    calls = {"n": "count(*) filter (where paid)", "x": "sum(x) filter (where paid)", "most": "max(x)",
             "best": "arg_max(x, y) filter (where paid)", "spread": "var(x) filter (where paid)"}  # fmt: skip
    for place, (epochs, cuts) in enumerate(cut(rows)):
        result = run(tmp_path / str(place), calls, epochs, cuts)["a"]
        assert [result[name] for name in calls] == [2, 9, 8, 1, 24.5]


def test_a_key_whose_rows_a_filter_drops_is_there_all_the_same(tmp_path: Path) -> None:
    rows = rows_of(x=[1], paid=pa.array([False]))
    calls = {"n": "count(x) filter (where paid)", "x": "sum(x) filter (where paid)"}
    assert run(tmp_path, calls, [rows])["a"] == {"k": "a", "n": 0, "x": None}


def test_filtered_and_whole_columns_are_kept_apart() -> None:
    rows = rows_of(x=[1], p=[True], q=[True])
    calls = {"all": "sum(x)", "mean": "avg(x)", "p": "sum(x) filter (where p)", "q": "sum(x) filter (where q)"}
    names = totals(calls, rows).tables[ONLY_TABLE].schema.names
    assert names == [
        "k", "count(x)", "sum(x).low", "sum(x).high", "count(x where `p`)", "sum(x where `p`).low",
        "sum(x where `p`).high", "count(x where `q`)", "sum(x where `q`).low", "sum(x where `q`).high",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call",
    ["any(x)", "sum(x) filter (where x)", "var(s)", "arg_max(x, nested)", "every(s)", "count(*) filter (where s)"],
)
def test_a_type_that_does_not_work_is_refused(call: str) -> None:
    rows = rows_of(x=[1], s=["a"], nested=[[1]])
    with wording.raises(InvalidRequest):
        totals({"it": call}, rows)


def test_only_sums_of_floats_and_their_spread_keep_senders_from_folding() -> None:
    rows = rows_of(x=[1.0], i=[1], s=["a"], b=[True])
    exact = {"v": "var(i)", "l": "arg_max(s, x)", "f": "first(s)", "a": "any(b)", "n": "count(x) filter (where b)"}
    assert totals(exact, rows, "t").combiner is not None
    assert totals({"v": "var(x)"}, rows).combiner is None


def test_moments_of_rows_apart_merge(tmp_path: Path) -> None:
    """Panes of a window are merged in their order."""
    random = np.random.default_rng(5).normal(1e6, 1.0, 60)
    moments, fields = Moments(Argument("x"), None), ["count(x)", "mean(x)", "distances(x)"]
    none = pa.table({name: pa.array([None], pa.float64()) for name in fields})
    parts = []
    for part in np.split(random, [10, 11]):
        updated = moments.update(none, Grouped(pa.table({"x": part}), np.zeros(len(part), dtype=np.int64), 1))
        parts.append(pa.table([pa.array([len(part)], pa.int64()), *updated], names=fields))
    partials = Grouped(pa.concat_tables(parts), np.zeros(3, dtype=np.int64), 1)
    mean, distances = moments.merge(none, partials)
    assert mean[0].as_py() == pytest.approx(random.mean(), rel=1e-15)
    assert distances[0].as_py() / 59 == pytest.approx(np.var(random, ddof=1), rel=1e-9)


def test_what_a_sender_folded_leaves_the_state_of_the_rows_themselves(tmp_path: Path) -> None:
    rows = rows_of(x=[5, None, 7, 7], b=pa.array([True, False, None, True]), s=["a", "b", None, "d"])
    calls = {"v": "var(x)", "m": "arg_max(s, x)", "l": "arg_min(s, x) filter (where b)", "a": "every(b)"}
    operator = totals(calls, rows)
    states = []
    for folded in ([], [True, False, True, False]):
        made = OperatorRun(operator, LocalStore(StoreConfig(f"file://{tmp_path}/{len(folded)}")))
        made.epoch(rows, cuts=[2], folded=folded)
        states.append(repr(made.state().to_pylist()))
    assert states[0] == states[1]
