"""Distinct counts of sliding windows and sessions: a value counts once, whatever its panes, wherever it moves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorInput
from milepost.operators.window.spec import WindowOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.string()), ("b", pa.bool_()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000
END_OF_TIME = 2**63 - 1
SLIDING = {"sliding": {"size": "30m", "slide": "10m"}}
SESSION = {"session": {"gap": "10m"}}
VALUES, SOME = "distinct(v)", "distinct(v where `b`)"
DATABASE = duckdb.connect(config={"threads": 1})

Row = tuple[str, str | None, int]
"""Key, value, and minutes since 1970. A row of an even minute counts for the filtered call."""
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", None]), st.integers(0, 59)), max_size=8
)


def started(folder: Path | str, window: dict[str, Any], **options: str) -> OperatorRun:
    spec = WindowOperator.model_validate(
        {"uid": "win", "kind": "window", "inputs": ["in"], "key": ["k"], "window": window, **options,
         "aggregates": {"n": "count(*)", "vs": "count(distinct v)", "some": "count(distinct v) filter (where b)"}}
    )  # fmt: skip
    operator = build_operator(spec, [OperatorInput(SCHEMA, "t")])
    return OperatorRun(operator, LocalStore(StoreConfig(f"file://{folder}")))


def rows(*values: Row) -> pa.Table:
    times = pa.array([minute * MINUTE_US for _, _, minute in values], pa.int64()).cast(SCHEMA.field("t").type)
    columns = [
        [k for k, _, _ in values],
        [v for _, v, _ in values],
        [minute % 2 == 0 for _, _, minute in values],
        times,
    ]
    return pa.table(columns, schema=SCHEMA)


def found(table: pa.Table) -> list[tuple[Any, ...]]:
    """(key, start and end in minutes, n, vs, some) per window."""
    bounds = [pc.divide(table.column(name).cast(pa.int64()), MINUTE_US) for name in ("window_start", "window_end")]
    columns = [table.column("k"), *bounds, *(table.column(name) for name in ("n", "vs", "some"))]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def of_duckdb(values: list[Row], windows: str) -> list[tuple[Any, ...]]:
    table = pa.table({"k": [k for k, _, _ in values], "v": pa.array([v for _, v, _ in values], pa.string()),
                      "t": pa.array([t for _, _, t in values], pa.int64())})  # fmt: skip
    DATABASE.register("given_rows", table)
    counts = "count(*), count(DISTINCT v), count(DISTINCT v) FILTER (t % 2 = 0)"
    return sorted(DATABASE.sql(f"SELECT k, s, e, {counts} FROM ({windows}) GROUP BY k, s, e").fetchall())


OVERLAPPING = "SELECT *, t // 10 * 10 - back AS s, s + 30 AS e FROM given_rows, (VALUES (0), (10), (20)) AS _(back)"
APART = """
    SELECT *, min(t) OVER (PARTITION BY k, number) AS s, max(t) OVER (PARTITION BY k, number) + 10 AS e FROM (
        SELECT *, sum(new) OVER (PARTITION BY k ORDER BY t ROWS UNBOUNDED PRECEDING) AS number FROM (
            SELECT *, (coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t), 10) >= 10)::INTEGER AS new
            FROM given_rows))
"""


@pytest.mark.deep
@profiles.examples(share=0.05)
@example([[("a", "x", 1), ("a", "x", 11), ("a", "y", 21)], [("a", "y", 2)]], [1])
@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(st.integers(1, 7), max_size=2, unique=True))
def test_distinct_counts_of_sliding_windows_are_those_of_duckdb(epochs: list[list[Row]], cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = started(folder, SLIDING)
        for number, values in enumerate(epochs):
            run.epoch(rows(*values), None, None, parallelism=1 + number % 2, cuts=sorted(cuts))
        emitted = found(run.epoch(rows(), None, 40 * MINUTE_US).rows) + found(run.epoch(rows(), None, END_OF_TIME).rows)
        every = [row for values in epochs for row in values]
        assert sorted(emitted) == of_duckdb(every, OVERLAPPING)
        assert not run.state(VALUES).num_rows and not run.state(SOME).num_rows


def test_a_value_counts_for_the_windows_that_are_not_done_by_the_stamp_of_its_row(tmp_path: Path) -> None:
    run = started(tmp_path, SLIDING, allowed_lateness="10m")
    run.epoch(rows(("a", "x", 5)), None, 25 * MINUTE_US)
    again = run.epoch(rows(("a", "y", 6)), 25 * MINUTE_US, 25 * MINUTE_US).rows
    assert found(again) == [("a", -10, 20, 2, 2, 1)], "the one that ended at 10 is over, the one until 30 is not done"
    assert found(run.epoch(rows(("a", "y", 7)), 25 * MINUTE_US, 30 * MINUTE_US).rows) == [
        ("a", -10, 20, 3, 2, 1), ("a", 0, 30, 3, 2, 1),
    ]  # fmt: skip


@pytest.mark.long
@profiles.examples(share=0.05)
@example([[("a", "x", 20), ("a", "y", 21), ("a", "x", 2)], [("a", "z", 11)], []], [1], {"allowed_lateness": "50m"})
@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(st.integers(1, 7), max_size=2, unique=True),
       st.sampled_from(({}, {"emit": "early"}, {"allowed_lateness": "50m"})))  # fmt: skip
def test_distinct_counts_of_sessions_are_those_of_duckdb(
    epochs: list[list[Row]], cuts: list[int], options: dict[str, str]
) -> None:
    """Values of sessions that a row joins are of one session from then on, each once."""
    shown: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = started(folder, SESSION, **options)
        for number, values in enumerate([*epochs, []]):
            firing_us = END_OF_TIME if number == len(epochs) else 30 * MINUTE_US if "allowed_lateness" in options else 0
            out = run.epoch(rows(*values), None, firing_us, parallelism=1 + number % 2, cuts=sorted(cuts)).rows
            gone = out.column(DELETED_COLUMN).to_pylist() if options else [False] * out.num_rows
            for row, deleted in zip(found(out), gone, strict=True):
                shown.pop(row[:2], None)
                if not deleted:
                    shown[row[:2]] = row
        assert sorted(shown.values()) == of_duckdb([row for values in epochs for row in values], APART)


@pytest.mark.deep
@pytest.mark.parametrize("options", [{}, {"allowed_lateness": "20m"}])
@pytest.mark.parametrize("window", [SESSION, SLIDING])
def test_values_go_when_no_row_can_join_their_windows(
    tmp_path: Path, window: dict[str, Any], options: dict[str, str]
) -> None:
    run = started(tmp_path, window, **options)
    run.epoch(rows(("a", "x", 0), ("a", "y", 2), ("b", "x", 28)), None, 0)
    lateness = 20 if options else 0
    last = 12 if window is SESSION else 30
    run.epoch(rows(), 0, (last + lateness) * MINUTE_US - 1)
    assert sorted(run.state(VALUES).column("k").to_pylist()) == ["a", "a", "b"]
    run.epoch(rows(), 0, (last + lateness) * MINUTE_US)
    assert run.state(VALUES).column("k").to_pylist() == run.state().column("k").to_pylist() == ["b"]
