"""Sessions: rows of a key that follow each other within a gap, whatever the order in which they came."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milepost.dataflow.operators.build import build_operator
from milepost.dataflow.operators.contract import OperatorFailed, OperatorInput
from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.object_store import StoreConfig
from milepost.spec.job.spec import WindowOperator
from milepost.storage.local import LocalStore
from tests.harness.tasks.subtasks import OperatorRun

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000
END_OF_TIME = 2**63 - 1

Row = tuple[str | None, float]


def started(folder: Path, **calls: str) -> OperatorRun:
    spec = WindowOperator.model_validate(
        {"uid": "win", "kind": "window", "inputs": ["in"], "key": ["k"], "window": {"session": {"gap": "10m"}},
         "aggregates": calls or {"n": "count(*)", "s": "sum(x)", "low": "min(x)"}}
    )  # fmt: skip
    operator = build_operator(spec, [OperatorInput(SCHEMA, "t")])
    return OperatorRun(operator, LocalStore(StoreConfig(f"file://{folder}/store")))


def rows(*values: Row) -> pa.Table:
    """Rows of (key, minute since 1970)."""
    times = pa.array([round(minute * MINUTE_US) for _, minute in values], pa.int64()).cast(SCHEMA.field("t").type)
    numbers = [round(minute * 100) for _, minute in values]
    return pa.table([[k for k, _ in values], numbers, [0.5] * len(values), times], schema=SCHEMA)


def found(table: pa.Table) -> list[tuple[Any, ...]]:
    """(key, first minute, end in minutes, n) per session."""
    bounds = [table.column(name).cast(pa.int64()).to_numpy() / MINUTE_US for name in ("window_start", "window_end")]
    columns = [table.column("k").to_pylist(), *(one.tolist() for one in bounds), table.column(3).to_pylist()]
    return list(zip(*columns, strict=True))


def test_a_row_a_gap_after_the_last_one_begins_a_new_session(tmp_path: Path) -> None:
    out = started(tmp_path).epoch(rows(("a", -5), ("a", 4.99), ("a", 14.99), ("b", 0), (None, 0)), None, END_OF_TIME)
    assert found(out.rows) == [
        ("a", -5.0, 14.99, 2), ("b", 0.0, 10.0, 1), (None, 0.0, 10.0, 1), ("a", 14.99, 24.99, 1),
    ]  # fmt: skip


def test_a_row_between_two_sessions_makes_them_one(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.epoch(rows(("a", 0), ("a", 15), ("b", 15)), None, None)
    assert run.state().num_rows == 3
    run.epoch(rows(("a", 7)), None, None)
    assert run.state().num_rows == 2
    assert found(run.epoch(rows(("a", -9)), None, 25 * MINUTE_US).rows) == [("a", -9.0, 25.0, 4), ("b", 15.0, 25.0, 1)]
    assert not run.state().num_rows


def test_a_session_that_is_done_takes_no_row_and_one_that_is_not_takes_the_row_at_the_watermark(tmp_path: Path) -> None:
    run = started(tmp_path)
    assert found(run.epoch(rows(("a", 0), ("b", 0.01)), None, 10 * MINUTE_US).rows) == [("a", 0.0, 10.0, 1)]
    out = run.epoch(rows(("a", 10), ("b", 10), ("b", 9.99)), 10 * MINUTE_US, 30 * MINUTE_US)
    assert out.late.column("k").to_pylist() == ["b"]
    assert found(out.rows) == [("b", 0.01, 20.0, 2), ("a", 10.0, 20.0, 1)]


ROWS = st.tuples(st.sampled_from(["a", None]), st.integers(-30, 30).map(float))


@settings(max_examples=15, deadline=None)
@example([("a", 0.0), ("a", 18.0), ("a", 9.0)], [1, 2])
@given(st.lists(ROWS, min_size=1, max_size=12), st.lists(st.integers(1, 11), max_size=4, unique=True))
def test_sessions_and_state_do_not_depend_on_pieces_or_arrival(given_rows: list[Row], cuts: list[int]) -> None:
    results = []
    for values, at in ((given_rows, []), (given_rows, sorted(cuts)), (given_rows[::-1], sorted(cuts))):
        with tempfile.TemporaryDirectory() as folder:
            run = started(Path(folder))
            run.epoch(rows(*values), None, None, cuts=at)
            state = run.state()
            results.append((state, run.epoch(rows(), None, 20 * MINUTE_US).rows))
    assert results[0][0].equals(results[1][0]) and results[0][0].equals(results[2][0])
    assert results[0][1].equals(results[1][1]) and results[0][1].equals(results[2][1])


def test_a_session_that_would_end_after_all_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorFailed, match="has no bounds that a timestamp can hold"):
        started(tmp_path).epoch(rows(("a", (2**63 - 1) // MINUTE_US)), None, None)


def test_a_sum_of_floats_is_refused_at_build(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="depends on the order in which rows join sessions"):
        started(tmp_path, s="sum(f)")
