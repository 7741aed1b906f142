"""Sessions: rows of a key that follow each other within a gap, whatever the order in which they came."""

from __future__ import annotations

import math
import tempfile
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorFailed, OperatorInput, StatefulOperator
from milepost.operators.window.spec import SessionWindows, WindowOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.evolution import compare_schemas
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000
END_OF_TIME = 2**63 - 1

Row = tuple[str | None, float]


def session_operator(
    schema: pa.Schema, calls: dict[str, str], options: dict[str, str] | None = None, gap: str = "10m"
) -> StatefulOperator:
    spec = WindowOperator.model_validate(
        {"uid": "win", "kind": "window", "inputs": ["in"], "key": ["k"], "window": {"session": {"gap": gap}},
         "aggregates": calls, **(options or {})}
    )  # fmt: skip
    return build_operator(spec, [OperatorInput(schema, "t")])


def started(folder: Path, options: dict[str, str] | None = None, **calls: str) -> OperatorRun:
    operator = session_operator(SCHEMA, calls or {"n": "count(*)", "s": "sum(x)", "low": "min(x)"}, options)
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


def test_with_a_microsecond_more_rows_exactly_a_gap_apart_are_one_session(tmp_path: Path) -> None:
    operator = session_operator(SCHEMA, {"n": "count(*)"}, gap="600000001us")
    run = OperatorRun(operator, LocalStore(StoreConfig(f"file://{tmp_path}")))
    assert not run.epoch(rows(("a", 0)), None, 10 * MINUTE_US).rows.num_rows, "a row at minute 10 may still arrive"
    out = run.epoch(rows(("a", 10), ("b", 0), ("b", 10 + 1 / MINUTE_US)), None, END_OF_TIME).rows
    assert sorted(zip(out["k"].to_pylist(), out["n"].to_pylist(), strict=True)) == [("a", 2), ("b", 1), ("b", 1)]


@pytest.mark.parametrize("gap", ["600000001us", "10m", "1us"])
def test_a_gap_is_written_as_it_is_read(gap: str) -> None:
    assert SessionWindows.model_validate({"gap": gap}).model_dump(mode="json") == {"gap": gap}


@pytest.mark.parametrize("gap", ["0us", "9999999999999999us", "-1us", "1.5us"])
def test_a_gap_that_is_none_is_refused(gap: str) -> None:
    with wording.raises(ValidationError):
        SessionWindows.model_validate({"gap": gap})


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


@pytest.mark.deep
@profiles.examples(share=0.15)
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


@pytest.mark.deep
@pytest.mark.parametrize("order", list(permutations([(5, 0.0), (0, -0.0), (14, math.nan), (20, -1.0)])))
def test_extremes_of_zeros_and_nan_do_not_depend_on_the_order_in_which_rows_join_a_session(
    tmp_path: Path, order: tuple[tuple[float, float], ...]
) -> None:
    """-0.0 is less than 0.0 and NaN the greatest number, as over updates."""
    calls = {"low": "min(z)", "high": "max(z)", "low_of_all": "min(f)", "high_of_all": "max(f)"}
    zeros = pa.schema([*SCHEMA, ("z", pa.float32())])
    run = OperatorRun(session_operator(zeros, calls), LocalStore(StoreConfig(f"file://{tmp_path}/store")))
    for minute, number in order:
        z = pa.array([number if number == 0 else None], pa.float32())
        run.epoch(rows(("a", minute)).set_column(2, "f", pa.array([number])).append_column("z", z), None, None)
    out = run.epoch(zeros.empty_table(), None, END_OF_TIME).rows
    assert repr(out.select(list(calls)).to_pylist()) == repr(
        [{"low": -0.0, "high": 0.0, "low_of_all": -1.0, "high_of_all": math.nan}]
    )


def test_a_session_that_would_end_after_all_time_is_refused(tmp_path: Path) -> None:
    with wording.raises(OperatorFailed):
        started(tmp_path).epoch(rows(("a", (2**63 - 1) // MINUTE_US)), None, None)


@pytest.mark.deep
@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2]])
def test_floats_are_summed_exactly_in_whatever_order_rows_join_a_session(tmp_path: Path, cuts: list[int]) -> None:
    """Added one after another, these come to other sums in each order; and in pieces, sessions are joined otherwise."""
    values = {0.0: 0.1, 9.0: 0.2, 18.0: 0.3, 27.0: 1e16, 36.0: -1e16}
    for place, order in enumerate((list(values), [18.0, 0.0, 36.0, 9.0, 27.0], [36.0, 0.0, 18.0, 27.0, 9.0])):
        run = started(tmp_path / str(place), s="sum(f)", m="avg(f)", d="stddev(f)")
        given_rows = rows(*(("a", minute) for minute in order))
        floats = pa.array([values[minute] for minute in order])
        out = run.epoch(given_rows.set_column(2, "f", floats), None, END_OF_TIME, cuts=cuts).rows
        (row,) = out.select(["s", "m", "d"]).to_pylist()
        exact = [Fraction(value) for value in values.values()]
        mean = sum(exact) / 5
        variance = sum((value - mean) ** 2 for value in exact) / 4
        assert row == {
            "s": math.fsum(values.values()),
            "m": math.fsum(values.values()) / 5,
            "d": float(variance) ** 0.5,
        }


LATE = {"allowed_lateness": "20m"}
EARLY = {"emit": "early"}


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    """(key, first minute, end in minutes, n) per session, of a delete its key and first minute."""
    deleted = table.column(DELETED_COLUMN).to_pylist()
    rows_of = found(table.filter(pc.invert(table.column(DELETED_COLUMN))))
    return rows_of + [row[:2] for row, gone in zip(found(table), deleted, strict=True) if gone]


def test_a_late_row_merges_two_emitted_sessions(tmp_path: Path) -> None:
    """The later one is deleted, the earlier one is emitted in place of itself; others are not emitted again."""
    run = started(tmp_path, LATE)
    assert run.operator.output_key == ("k", "window_start")
    first = run.epoch(rows(("a", 0), ("a", 15), ("b", 0)), None, 25 * MINUTE_US).rows
    assert shown(first) == [("a", 0.0, 10.0, 1), ("b", 0.0, 10.0, 1), ("a", 15.0, 25.0, 1)]
    assert shown(run.epoch(rows(("a", 7)), 25 * MINUTE_US, 25 * MINUTE_US).rows) == [("a", 0.0, 25.0, 3), ("a", 15.0)]
    assert shown(run.epoch(rows(("a", 5)), 25 * MINUTE_US, 25 * MINUTE_US).rows) == [("a", 0.0, 25.0, 4)]
    assert not run.epoch(rows(), 25 * MINUTE_US, 44 * MINUTE_US).rows.num_rows
    assert run.state().column("k").to_pylist() == ["a"]


def test_a_reopened_session_is_deleted_until_it_is_done_again(tmp_path: Path) -> None:
    run = started(tmp_path, LATE)
    assert shown(run.epoch(rows(("a", 0)), None, 12 * MINUTE_US).rows) == [("a", 0.0, 10.0, 1)]
    assert shown(run.epoch(rows(("a", 9)), 12 * MINUTE_US, 12 * MINUTE_US).rows) == [("a", 0.0)]
    assert not run.epoch(rows(("a", 10)), 12 * MINUTE_US, 12 * MINUTE_US).rows.num_rows
    assert shown(run.epoch(rows(), 12 * MINUTE_US, 20 * MINUTE_US).rows) == [("a", 0.0, 20.0, 3)]


def test_a_session_is_kept_while_a_row_that_is_not_late_may_join_it(tmp_path: Path) -> None:
    run = started(tmp_path, LATE)
    run.epoch(rows(("a", 0)), None, 29.99 * MINUTE_US)
    out = run.epoch(rows(("a", 9.99), ("a", 9.98)), round(29.99 * MINUTE_US), round(29.99 * MINUTE_US))
    assert out.late.column("x").to_pylist() == [998] and shown(out.rows) == [("a", 0.0, 19.99, 2)]
    run.epoch(rows(), round(29.99 * MINUTE_US), round(39.99 * MINUTE_US))
    assert not run.state().num_rows


@pytest.mark.parametrize(("firing_us", "written"), [(30 * MINUTE_US - 1, 2), (30 * MINUTE_US, 0)])
def test_a_session_past_its_lateness_is_not_rewritten_when_it_is_emitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, firing_us: int, written: int
) -> None:
    """No row can join it any longer, so its emission no longer matters; a row a microsecond earlier still can."""
    run = started(tmp_path, LATE)
    run.epoch(rows(("a", 0), ("b", 0)), None, 0)
    state, found = run.restore(0, 1), 0
    upsert = state.upsert

    def count(changed: pa.Table) -> None:
        nonlocal found
        found += changed.num_rows
        upsert(changed)

    monkeypatch.setattr(state, "upsert", count)
    assert len(run.operator.begin({"": state}, 0).finish(firing_us)) == 2
    assert found == written


def test_sessions_are_emitted_early_and_an_earlier_start_replaces_the_former_session(tmp_path: Path) -> None:
    run = started(tmp_path, EARLY)
    assert shown(run.epoch(rows(("a", 20), ("b", 20)), None, None).rows) == [("a", 20.0, 30.0, 1), ("b", 20.0, 30.0, 1)]
    assert shown(run.epoch(rows(("a", 15)), None, None).rows) == [("a", 15.0, 30.0, 2), ("a", 20.0)]
    assert shown(run.epoch(rows(("a", 22)), None, 30 * MINUTE_US, cuts=[1]).rows) == [
        ("a", 15.0, 32.0, 3),
        ("b", 20.0, 30.0, 1),
    ]
    assert shown(run.epoch(rows(), 30 * MINUTE_US, 32 * MINUTE_US).rows) == [("a", 15.0, 32.0, 3)]
    assert not run.state().num_rows


def test_sessions_that_may_have_been_emitted_do_not_become_final(tmp_path: Path) -> None:
    """Their state says which have, and what was emitted of those would stay in the table; the other way none has."""
    final, early = (started(tmp_path, options).operator.tables[""] for options in ({}, EARLY))
    assert compare_schemas(final.schema, early.schema, early.key).added == ("__emitted", "__fired")
    wording.matches("problems", compare_schemas(early.schema, final.schema, final.key).problems)


def joined(run: OperatorRun, state: SubtaskState, fired_us: int | None, behind_us: int | None) -> SubtaskState:
    """Return the state of a subtask that had fired so far, as one restores it that goes on from behind it."""
    snapshot = state.freeze(fired_us).encode(f"chk-9/t{fired_us or 1}/state/")
    for upload in snapshot.uploads:
        run.store.put(upload.key, upload.body)
    table = run.operator.tables[""]
    identity = StateIdentity.of(
        "win", KeySpec(table.key, table.routing_key, run.hasher), table.schema, range(16), run.max_parallelism
    )
    objects = CheckpointObjects(run.store, 9, "t")
    return restore_state(identity, [snapshot.handle], objects, watermark_us=behind_us, firing=[fired_us])


def test_what_another_subtask_has_emitted_is_deleted_where_this_one_has_not_fired_so_far(tmp_path: Path) -> None:
    """After a change of parallelism, with rows in flight: whether a session was emitted is part of its state."""
    run = started(tmp_path, LATE)
    run.epoch(rows(("a", 15)), None, 0)
    ahead = run.restore(0, 1)
    assert shown(run.operator.begin({"": ahead}, 0).finish(25 * MINUTE_US)) == [("a", 15.0, 25.0, 1)]
    again = run.operator.begin({"": joined(run, ahead, 25 * MINUTE_US, 0)}, 0)
    list(again.rows(0, rows(("a", 7)), 0))
    assert shown(again.finish(0)) == [("a", 15.0)]


@pytest.mark.parametrize("options", [LATE, LATE | EARLY])
@pytest.mark.parametrize("behind_us", [None, 0])
def test_a_session_that_another_subtask_fired_is_emitted_again_only_if_a_row_joins_it(
    tmp_path: Path, options: dict[str, str], behind_us: int | None
) -> None:
    """Nor does it in an epoch after the one that joins the subtasks, when that has not fired so far."""
    run = started(tmp_path, options)
    run.epoch(rows(("a", 5), ("b", 5)), None, behind_us)
    ahead = run.restore(0, 1)
    assert len(run.operator.begin({"": ahead}, behind_us).finish(15 * MINUTE_US)) == 2
    first = joined(run, ahead, 15 * MINUTE_US, behind_us)
    assert not len(run.operator.begin({"": first}, behind_us).finish(behind_us))
    again = run.operator.begin({"": joined(run, first, behind_us, behind_us)}, behind_us)
    list(again.rows(0, rows(("b", 6)), behind_us))
    assert shown(again.finish(20 * MINUTE_US)) == [("b", 5.0, 16.0, 2)]


DATABASE = duckdb.connect(config={"threads": 1})
LATE_ROWS = st.lists(st.tuples(st.sampled_from(["a", None]), st.integers(0, 60).map(float)), max_size=6)


@profiles.examples(share=0.08)
@example([[("a", 0.0), ("a", 18.0)], [("a", 9.0)], []], [1], EARLY)
@given(st.lists(LATE_ROWS, min_size=2, max_size=4), st.lists(st.integers(1, 5), max_size=2, unique=True),
       st.sampled_from([LATE, EARLY, LATE | EARLY]))  # fmt: skip
def test_a_table_of_sessions_is_the_batch_query_of_duckdb_after_each_epoch(
    epochs: list[list[Row]], cuts: list[int], options: dict[str, str]
) -> None:
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    taken: list[Row] = []
    lateness = 20 if options.get("allowed_lateness") else 0
    with tempfile.TemporaryDirectory() as folder:
        run = started(Path(folder), options)
        for number, given_rows in enumerate(epochs):
            stamp, firing = (None, 15) if not number else (15 * number, 15 * number + 15)
            out = run.epoch(rows(*given_rows), None if stamp is None else stamp * MINUTE_US, firing * MINUTE_US,
                            parallelism=1 + number % 2, cuts=sorted(cuts))  # fmt: skip
            for row in shown(out.rows):
                table.pop(row[:2], None)
                if len(row) > 2:
                    table[row[:2]] = row
            taken += [row for row in given_rows if stamp is None or row[1] >= stamp - lateness]
            assert sorted(table.values(), key=repr) == sorted(
                expected(taken, None if "emit" in options else firing), key=repr
            )


def expected(taken: list[Row], firing: int | None) -> list[tuple[Any, ...]]:
    given_rows = pa.table(
        {"k": pa.array([k for k, _ in taken], pa.string()), "t": pa.array([t for _, t in taken], pa.float64())}
    )
    DATABASE.register("given_rows", given_rows)
    new = "SELECT *, coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) >= 10, true)::INTEGER AS new FROM given_rows"
    numbered = f"SELECT *, sum(new) OVER (PARTITION BY k ORDER BY t ROWS UNBOUNDED PRECEDING) AS s FROM ({new})"
    done = "true" if firing is None else f"e <= {firing}"
    each = f"SELECT k, min(t) AS b, max(t) + 10 AS e, count(*) AS n FROM ({numbered}) GROUP BY k, s"
    return DATABASE.sql(f"SELECT * FROM ({each}) WHERE {done}").fetchall()
