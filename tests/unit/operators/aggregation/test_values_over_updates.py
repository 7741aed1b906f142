"""min, max, arg_min, arg_max, count(distinct …), any and every over updates: of the rows that are there, to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.over_updates import AggregateOverUpdates
from milepost.operators.contract import OperatorFailed, OperatorInput
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.models.data.aggregate_calls import said
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.tasks.operators.subtasks import OperatorRun

COLUMNS = {"k": pa.string(), "x": pa.float64(), "i": pa.int64(), "s": pa.string(), "b": pa.bool_()}
SCHEMA = pa.schema([*COLUMNS.items(), (WEIGHT_COLUMN, pa.int64())])
CALLS = {
    "n": "count(*)", "low": "min(x)", "high": "max(x)", "xs": "count(distinct x)", "ss": "count(distinct s)",
    "most": "max(i)", "least_s": "min(s) filter (where b)", "some": "any(b)", "all": "every(b)",
    "first_s": "arg_min(s, i)", "last_x": "arg_max(x, i)", "at_x": "arg_min(i, x) filter (where b)", "is": "count(i)",
}  # fmt: skip
NAN = float("nan")
TYPES = {"x": "DOUBLE", "i": "BIGINT", "s": "VARCHAR", "b": "BOOLEAN"}


def operator(calls: dict[str, str] = CALLS, key: tuple[str, ...] = ("k",)) -> AggregateOverUpdates:
    parsed = {name: parse_aggregate(text) for name, text in calls.items()}
    return AggregateOverUpdates("totals", key, parsed, OperatorInput(SCHEMA, None))


def started(folder: Path, calls: dict[str, str] = CALLS, hasher: Any = KEYED) -> OperatorRun:
    return OperatorRun(operator(calls), LocalStore(StoreConfig(f"file://{folder}")), hasher=hasher)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(one, field.type) for one, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def of_x(*rows: tuple[str, float | None, int]) -> pa.Table:
    return table([(k, x, 0, "", True, weight) for k, x, weight in rows])


def listed(rows: pa.Table) -> list[str]:
    """Each row as text: -0.0 and 0.0 are two, NaN is one."""
    return sorted(map(repr, (tuple(row.values()) for row in rows.to_pylist())))


one_row = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([1.5, 0.0, -0.0, None, NAN, -2.0]),
    st.sampled_from([0, 5, None, -(2**63), 2**63 - 1]),
    st.sampled_from(["p", "", None, "q"]),
    st.sampled_from([True, False, None]),
)
lives = st.lists(st.tuples(one_row, st.integers(0, 2), st.integers(0, 4)), max_size=24)
"""Rows, the epoch in which each comes, and the one in which it is taken back; later than the last one: never."""
shapes = st.tuples(*[st.tuples(st.sampled_from([1, 2]), st.lists(st.integers(1, 8), max_size=2))] * 3)


@profiles.examples(share=0.12, phases=[Phase.explicit, Phase.generate])
@example(lives=[(("a", 0.0, 1, "p", True), 0, 5), (("a", -0.0, 1, "p", True), 0, 2)], shapes=[(1, [])] * 3, weak=True)
@example(lives=[(("a", 1.5, 5, "p", True), 0, 5), (("a", 1.5, 5, "q", False), 1, 5)], shapes=[(1, [])] * 3, weak=False)
@example(lives=[((None, -0.0, 0, "", False), 1, 3), ((None, 0.0, 0, "", False), 2, 0)], shapes=[(1, [])] * 3, weak=True)
@given(lives=lives, shapes=shapes, weak=st.booleans())
def test_the_current_rows_decide_no_matter_what_came_and_went(
    tmp_path_factory: pytest.TempPathFactory, lives: Any, shapes: Any, weak: bool
) -> None:
    """State is that of the rows that are left, come in one epoch; results are DuckDB's wherever nothing is owed."""
    folder = tmp_path_factory.mktemp("run")
    run = started(folder / "run", hasher=WEAK if weak else KEYED)
    shown: dict[str | None, dict[str, Any]] = {}
    there: Counter[tuple[tuple[Any, ...], str]] = Counter()  # by text as well: -0.0 and 0.0 are equal
    for epoch, (parallelism, cuts) in enumerate(shapes):
        rows = [(*row, 1) for row, comes, _ in lives if comes == epoch]
        rows += [(*row, -1) for row, _, goes in lives if goes == epoch]
        for *row, weight in rows:
            there[tuple(row), repr(row)] += weight
        for out in run.epoch(table(rows), parallelism=parallelism, cuts=sorted(cuts)).rows.to_pylist():
            shown.pop(out["k"], None)
            if not out.pop("__deleted"):
                shown[out["k"]] = out
        if min(there.values(), default=0) >= 0:
            assert answers(shown.values()) == answers(of_duckdb(there))
    plain = started(folder / "plain", hasher=WEAK if weak else KEYED)
    plain.epoch(table([(*row, weight) for (row, _), weight in there.items() if weight]))
    for name in run.tables:
        assert listed(run.state(name)) == listed(plain.state(name))


def of_duckdb(there: Counter[tuple[tuple[Any, ...], str]]) -> list[dict[str, Any]]:
    rows = table([(*row, 1) for (row, _), weight in there.items() for _ in range(weight)])
    calls = {name: parse_aggregate(text) for name, text in CALLS.items()}
    asked = ", ".join(f'{said(call, TYPES)} AS "{name}"' for name, call in calls.items())
    with duckdb.cursor() as connection:
        connection.register("rows", rows)
        return connection.sql(f"SELECT k, {asked} FROM rows GROUP BY k").to_arrow_table().to_pylist()


def answers(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as text: DuckDB's minimum of two zeros is either of them."""
    return sorted(repr([0.0 if value == 0 else value for value in row.values()]) for row in rows)


def test_a_retracted_value_makes_room_for_the_next_one(tmp_path: Path) -> None:
    """Beyond it nothing has come, so all values of its key are looked at; where one has come, it is that one."""
    run = started(tmp_path, {"high": "max(x)", "low": "min(x)", "xs": "count(distinct x)"})
    run.epoch(of_x(("a", 1.0, 1), ("a", 2.0, 1), ("a", 3.0, 2), ("b", 9.0, 1)))
    assert run.epoch(of_x(("a", 3.0, -1))).rows.to_pylist()[0] | {"k": ""} == {
        "k": "", "high": 3.0, "low": 1.0, "xs": 3, "__deleted": False,
    }  # fmt: skip
    assert run.epoch(of_x(("a", 3.0, -1))).rows.column("high").to_pylist() == [2.0]
    assert run.epoch(of_x(("a", 2.0, -1), ("a", 5.0, 1))).rows.column("high").to_pylist() == [5.0]
    out = run.epoch(of_x(("a", 1.0, -1), ("a", 0.5, 1), ("a", 0.5, -1), ("a", None, 1)), cuts=[1, 2]).rows
    assert (out["low"].to_pylist(), out["xs"].to_pylist()) == ([5.0], [1])
    assert run.epoch(of_x(("a", 5.0, -1))).rows.select(["low", "high", "xs"]).to_pylist() == [
        {"low": None, "high": None, "xs": 0}
    ]


def test_a_retracted_extreme_gives_way_to_the_second_best_although_a_worse_value_comes(tmp_path: Path) -> None:
    """10 and 7, then 10 becomes 5: the greatest is 7, which has not changed; so of least values and their rows."""
    run = started(tmp_path, {"high": "max(i)", "low": "min(i)", "at_high": "arg_max(s, i)", "at_low": "arg_min(s, i)"})

    def of_i(*changes: tuple[int, int]) -> pa.Table:
        return table([("a", 0.0, value, f"at {value}", True, weight) for value, weight in changes])

    def shown(*changes: tuple[int, int]) -> list[Any]:
        return list(run.epoch(of_i(*changes)).rows.select([*run.operator.row_schema.names[1:]]).to_pylist()[0].values())

    assert shown((10, 1), (7, 1)) == [10, 7, "at 10", "at 7"]
    assert shown((10, -1), (5, 1)) == [7, 5, "at 7", "at 5"]
    assert shown((5, -1), (8, 1)) == [8, 7, "at 8", "at 7"]
    assert shown((8, -1), (7, 1)) == [7, 7, "at 7", "at 7"], "it is there twice by now"
    assert shown((7, -1), (6, 1)) == [7, 6, "at 7", "at 6"]


def test_both_zeros_are_one_value_and_are_given_out_as_they_came(tmp_path: Path) -> None:
    calls = {"high": "max(x)", "low": "min(x)", "xs": "count(distinct x)", "at": "arg_min(x, i)"}
    run = started(tmp_path, calls)

    def shown(*rows: tuple[str, float, int]) -> list[str]:
        return listed(run.epoch(of_x(*rows)).rows.select([*calls]))

    assert shown(("a", -0.0, 1)) == ["(-0.0, -0.0, 1, -0.0)"]
    assert shown(("a", 0.0, 1)) == ["(0.0, -0.0, 1, -0.0)"]
    assert shown(("a", -0.0, -1)) == ["(0.0, 0.0, 1, 0.0)"]
    assert shown(("a", NAN, 1)) == ["(nan, 0.0, 2, 0.0)"]
    assert shown(("a", 0.0, -1)) == ["(nan, nan, 1, nan)"]


def test_totals_over_updates_have_values_as_keys_have(tmp_path: Path) -> None:
    """All in one subtask; without rows there is no least value, and none to count."""
    calls = {"low": "min(x)", "xs": "count(distinct x)", "most": "arg_max(x, i)", "some": "any(b)"}
    run = OperatorRun(operator(calls, ()), LocalStore(StoreConfig(f"file://{tmp_path}")))

    def shown(*rows: tuple[str, float, int]) -> list[str]:
        return listed(run.epoch(of_x(*rows), parallelism=2).rows)

    assert shown() == ["(None, 0, None, None)"]
    assert shown(("a", 3.0, 1), ("b", 1.0, 1), ("c", 2.0, 1)) == ["(1.0, 3, 3.0, True)"]
    assert shown(("b", 1.0, -1)) == ["(2.0, 2, 3.0, True)"]
    assert shown(("a", 3.0, -1), ("c", 2.0, -1)) == ["(None, 0, None, None)"]
    assert run.state("values(x)").num_rows == 0


def test_a_value_may_be_retracted_before_it_arrives(tmp_path: Path) -> None:
    """It is kept, counts as absent, and leaves when it has come."""
    run = started(tmp_path, {"high": "max(x)", "xs": "count(distinct x)"})
    out = run.epoch(of_x(("a", 1.0, 2), ("a", 7.0, -1))).rows
    assert out.select(["high", "xs"]).to_pylist() == [{"high": 1.0, "xs": 1}]
    assert sorted(run.state("values(x)")["__weight"].to_pylist()) == [-1, 2]
    run.epoch(of_x(("a", 7.0, 1)))
    assert run.state("values(x)").select(["__value", "__weight", "__negative_zeros"]).to_pylist() == [
        {"__value": 1.0, "__weight": 2, "__negative_zeros": 0}
    ]


@pytest.mark.parametrize(
    "rows", [[("a", 1.0, 1), ("a", 2.0, 1), ("a", 3.0, -1)], [("a", 0.0, 2), ("a", -0.0, -1)], [("a", None, -1)]]
)
@pytest.mark.parametrize("later", [False, True])
def test_a_retraction_of_a_value_that_never_arrived_is_refused_with_its_key(
    tmp_path: Path, rows: list[tuple[str, float | None, int]], later: bool
) -> None:
    """Where rows were in flight before, also of a key that nothing has come for since."""
    run = started(tmp_path, {"low": "min(x)"})
    if later:
        run.epoch(of_x(*rows))
        rows = [("b", 1.0, 1)]
    epoch: Any = run.operator.begin(run.restored(0, 1), None)
    list(epoch.rows(0, of_x(*rows), None))
    epoch.finish(None)
    with wording.raises(OperatorFailed):
        epoch.check_settled(all_keys=later)


def test_calls_over_one_argument_share_a_table_and_flags_need_none() -> None:
    assert list(operator().tables) == [
        "", "values(x)", "values(s)", "values(i)", "values(s where `b`)", "values(s by `i`)", "values(x by `i`)",
        "values(i where `b` by `x`)",
    ]  # fmt: skip
    assert list(operator({"n": "count(*)", "some": "any(b)", "all": "every(b) filter (where b)"}).tables) == [""]


def test_lists_whose_order_decides_are_refused_by_name() -> None:
    schema = SCHEMA.append(pa.field("parts", pa.list_(pa.int64())))
    with wording.raises(InvalidRequest):
        AggregateOverUpdates(
            "totals", ("k",), {"it": parse_aggregate("arg_min(parts, i)")}, OperatorInput(schema, None)
        )
