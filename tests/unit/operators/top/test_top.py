"""The first rows of each key: ranked by value alone, emitted when they change, and no others stored."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.operators.contract import OperatorFailed, OperatorInput
from milepost.operators.rows.row_order import sorted_rows
from milepost.operators.top.run import TopByKey
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

VIEWS = pa.schema([("hour", pa.int32()), ("page", pa.string()), ("views", pa.int64())])


def top(n: int = 2, order: tuple[tuple[str, bool], ...] = (("views", True),), schema: pa.Schema = VIEWS) -> TopByKey:
    return TopByKey("top", ("hour",), order, n, "place", OperatorInput(schema, None, stable_key=("hour", "page")))


def views(*rows: tuple[int | None, str | None, int | None]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) if rows else [[], [], []], schema=VIEWS)


def started(folder: Path, operator: TopByKey) -> OperatorRun:
    return OperatorRun(operator, LocalStore(StoreConfig(folder.as_uri())))


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_an_epoch_emits_the_ranks_with_a_changed_row(tmp_path: Path) -> None:
    run = started(tmp_path, top(3))
    first = run.epoch(views((1, "a", 5), (1, "b", 3), (2, "a", 1))).rows
    assert listed(first) == [(1, "a", 5, 1), (1, "b", 3, 2), (2, "a", 1, 1)]
    assert listed(run.epoch(views((1, "c", 4), (2, "z", 0))).rows) == [(1, "c", 4, 2), (1, "b", 3, 3), (2, "z", 0, 2)]
    assert not run.epoch(views((1, "d", 2))).rows.num_rows, "it is behind three others"
    assert not run.epoch(views()).rows.num_rows


def test_equal_rows_have_a_rank_each_and_are_kept_once(tmp_path: Path) -> None:
    run = started(tmp_path, top(3))
    assert len(listed(run.epoch(views((1, "a", 5), (1, "a", 5))).rows)) == 2
    assert listed(run.epoch(views((1, "a", 5), (1, "a", 5))).rows) == [(1, "a", 5, 3)]
    assert run.state().num_rows == 1 and run.state().column("__weight").to_pylist() == [4]


def test_a_row_that_n_others_go_before_is_dropped(tmp_path: Path) -> None:
    run = started(tmp_path, top(2))
    run.epoch(views((1, "a", 1), (1, "b", 2), (1, "c", 3), (None, "n", 0)))
    assert sorted(run.state().column("page").to_pylist()) == ["b", "c", "n"]
    run.epoch(views((1, "d", 4)))
    assert sorted(run.state().column("page").to_pylist()) == ["c", "d", "n"]


ROWS = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", "", None]), st.integers(0, 3) | st.none())


@pytest.mark.deep
@profiles.examples(share=0.6)
@example([(1, "a", 1), (1, "a", 1), (1, "b", 2)], [2], 2)
@given(st.lists(ROWS, max_size=12), st.lists(st.integers(0, 12), max_size=3), st.integers(1, 3))
def test_ranks_and_state_do_not_depend_on_pieces_or_arrival(
    rows: list[tuple[int | None, str | None, int | None]], cuts: list[int], n: int
) -> None:
    """One piece, several, and the other way round: the same output and the same state, to the byte."""
    found = []
    for of_epoch, at in ((rows, []), (rows, sorted(cuts)), (rows[::-1], [])):
        with tempfile.TemporaryDirectory() as folder:
            run = started(Path(folder), top(n))
            found.append((listed(run.epoch(views(*of_epoch), cuts=at).rows), run.handles))
    assert found[0] == found[1] == found[2]


def test_rows_are_in_sparks_order_then_in_that_of_all_their_columns() -> None:
    nan, inf = float("nan"), float("inf")
    rows = pa.table({"x": [nan, None, 0.0, -0.0, -inf, inf], "y": ["a", "b", "c", "d", None, "é"]})
    group = np.zeros(6, dtype=np.int64)
    ascending, _ = sorted_rows(rows, group, (("x", False),))
    assert ascending.tolist() == [1, 4, 3, 2, 5, 0], "the zeros are one here, and told apart by the whole row"
    descending, _ = sorted_rows(rows, group, (("x", True), ("y", True)))
    assert descending.tolist() == [0, 5, 3, 2, 4, 1]


def test_rows_that_differ_in_nested_columns_alone_have_one_order() -> None:
    lists = pa.array([[2], [1, 5], None, [1], [], [None]], pa.list_(pa.int64()))
    structs = pa.array([{"a": 1, "b": "z"}, None, {"a": None, "b": "z"}] * 2)
    rows = pa.table({"k": [0] * 6, "lists": lists})
    order, begins = sorted_rows(rows, np.zeros(6, dtype=np.int64), (("k", False),))
    assert order.tolist() == [2, 4, 5, 3, 1, 0] and begins.all()
    order, begins = sorted_rows(pa.table({"s": structs}), np.zeros(6, dtype=np.int64), ())
    assert order.tolist() == [1, 4, 2, 5, 0, 3] and begins.tolist() == [True, False] * 3
    maps = pa.table({"m": pa.array([[("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    assert sorted_rows(maps, np.zeros(2, dtype=np.int64), ())[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    "schema",
    [
        VIEWS.remove(2),
        VIEWS.set(2, pa.field("views", pa.list_(pa.int64()))),
        VIEWS.append(pa.field("place", pa.int32())),
    ],
)
def test_columns_that_do_not_fit_are_refused(schema: pa.Schema) -> None:
    with wording.raises(InvalidRequest):
        top(schema=schema)


def weighed(*rows: tuple[int | None, str | None, int | None, int]) -> pa.Table:
    weights = pa.array([weight for *_, weight in rows], pa.int64())
    return views(*(row[:3] for row in rows)).append_column("__weight", weights)


UPDATED = VIEWS.append(pa.field("__weight", pa.int64()))


def test_over_updates_a_retracted_row_makes_room_for_the_next_one(tmp_path: Path) -> None:
    run = started(tmp_path, top(2, schema=UPDATED))
    run.epoch(weighed((1, "a", 5, 1), (1, "b", 3, 1), (1, "c", 1, 1)))
    assert run.state().num_rows == 3, "those behind the last rank may come to be among the first"
    assert listed(run.epoch(weighed((1, "a", 5, -1), (1, "a", 2, 1))).rows) == [(1, "b", 3, 1), (1, "a", 2, 2)]
    assert not run.epoch(weighed((1, "c", 1, -1), (1, "c", 0, 1))).rows.num_rows
    assert run.state().num_rows == 3


def test_a_row_may_be_retracted_before_it_arrives(tmp_path: Path) -> None:
    """From another sender, in another piece or epoch: until then it counts as absent, and nothing is lost of it."""
    run = started(tmp_path, top(2, schema=UPDATED))
    run.epoch(weighed((1, "a", 5, 1), (1, "b", 3, -1), (1, "c", 2, 1)))
    assert sorted(run.state().column("__weight").to_pylist()) == [-1, 1, 1]
    assert not run.epoch(weighed((1, "b", 3, 1))).rows.num_rows
    assert run.state().num_rows == 2
    assert listed(run.epoch(weighed((1, "b", 3, 1))).rows) == [(1, "b", 3, 2)]


@pytest.mark.parametrize("all_keys", [False, True])
def test_a_weight_below_zero_with_nothing_in_flight_is_refused_with_its_key(tmp_path: Path, all_keys: bool) -> None:
    operator = top(2, schema=UPDATED)
    run = started(tmp_path, operator)
    run.epoch(weighed((1, "a", 5, -1)))
    other_key, own_key = weighed((2, "a", 5, 1)), weighed((1, "b", 1, 1))

    def check(*pieces: pa.Table) -> None:
        opened = operator.begin({"": run.restore(0, 1)}, None)
        for rows in pieces:
            assert [*opened.rows(0, rows, None)] == []
        opened.finish(None)
        opened.check_settled(all_keys=all_keys)

    if not all_keys:
        check(other_key)
    with wording.raises(OperatorFailed):
        check(other_key) if all_keys else check(other_key, own_key)


def test_ranks_state_what_they_replace(tmp_path: Path) -> None:
    operator = top(2, schema=UPDATED)
    run = started(tmp_path, operator)
    run.epoch(weighed((1, "a", 5, 1), (1, "b", 3, 1)))
    opened = operator.begin({"": run.restore(0, 1)}, None)
    assert [*opened.rows(0, weighed((1, "b", 3, -1), (1, "b", 9, 1)), None)] == []
    opened.finish(None)
    assert listed(opened.retractions()) == [
        (1, "a", 5, 1, -1), (1, "b", 9, 1, 1), (1, "b", 3, 2, -1), (1, "a", 5, 2, 1)
    ]  # fmt: skip


def test_a_rank_that_ends_is_deleted_where_rows_may_move_from_key_to_key(tmp_path: Path) -> None:
    operator = TopByKey(
        "top", ("views",), (("page", False),), 2, "place", OperatorInput(UPDATED, None, stable_key=("page",))
    )
    run = started(tmp_path, operator)
    first = run.epoch(weighed((1, "a", 5, 1), (1, "b", 5, 1))).rows
    assert listed(first) == [(1, "a", 5, 1, False), (1, "b", 5, 2, False)]
    moved = run.epoch(weighed((1, "a", 5, -1), (1, "a", 6, 1))).rows
    assert listed(moved) == [(1, "b", 5, 1, False), (1, "a", 6, 1, False), (None, None, 5, 2, True)]
    assert operator.results(run.state()).column("__deleted").to_pylist() == [False, False]


def test_a_rank_that_ends_is_deleted_where_rows_without_a_key_may_be_deleted(tmp_path: Path) -> None:
    operator = TopByKey("top", (), (("views", False),), 2, "place", OperatorInput(UPDATED, None))
    run = started(tmp_path, operator)
    assert listed(run.epoch(weighed((1, "a", 5, 1), (1, "b", 6, 1))).rows) == [
        (1, "a", 5, 1, False), (1, "b", 6, 2, False)
    ]  # fmt: skip
    assert listed(run.epoch(weighed((1, "b", 6, -1))).rows) == [(None, None, None, 2, True)]
    assert not TopByKey("top", (), (("views", False),), 2, "place", OperatorInput(UPDATED, None, 0, ())).deletes
