"""The newest row of each key: chosen by value alone, deleted keys remembered, each change emitted once."""

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
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import OperatorInput
from milepost.operators.latest.newest import TOMBSTONE_COLUMN, LatestByKey
from milepost.operators.latest.spec import LatestOperator
from milepost.operators.rows.row_order import last_rows
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

UTC = pa.timestamp("us", "UTC")
ORDERS = pa.schema([("id", pa.int32()), ("status", pa.string()), ("lsn", pa.int64())])
MARKED = ORDERS.append(pa.field(DELETED_COLUMN, pa.bool_()))
TIMED = MARKED.append(pa.field("at", UTC))
MINUTE_US = 60_000_000


def latest(schema: pa.Schema = MARKED, **options: Any) -> LatestByKey:
    value = {"uid": "current", "kind": "latest", "inputs": ["orders"], "key": ["id"], "sequence_by": ["lsn"], **options}
    if DELETED_COLUMN in schema.names:
        value["delete_when"] = "op = 'D'"
    return LatestByKey(
        LatestOperator.model_validate(value), OperatorInput(schema, "at" if "at" in schema.names else None)
    )


def rows(*found: tuple[Any, ...], schema: pa.Schema = MARKED) -> pa.Table:
    return pa.table(list(zip(*found, strict=True)) if found else [[] for _ in schema], schema=schema)


def started(folder: Path, operator: LatestByKey) -> OperatorRun:
    return OperatorRun(operator, LocalStore(StoreConfig(folder.as_uri())))


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_an_epoch_emits_each_changed_key_once(tmp_path: Path) -> None:
    run = started(tmp_path, latest(ORDERS))
    first = run.epoch(rows((1, "new", 10), (2, "new", 11), (1, "paid", 12), schema=ORDERS)).rows
    assert sorted(listed(first)) == [(1, "paid", 12), (2, "new", 11)]
    assert not run.epoch(rows((1, "new", 11), (2, "new", 11), schema=ORDERS)).rows.num_rows, "older, and the same"
    assert listed(run.epoch(rows((2, "sent", 12), schema=ORDERS)).rows) == [(2, "sent", 12)]
    assert first.schema.names == ORDERS.names, "nothing says of rows that are no deletes that they are none"


def test_a_delete_is_emitted_only_where_the_table_had_a_row(tmp_path: Path) -> None:
    run = started(tmp_path, latest())
    came_and_went = run.epoch(rows((1, "new", 1, False), (2, "new", 1, False), (2, "", 2, True), (3, "", 5, True)))
    assert listed(came_and_went.rows) == [(1, "new", 1, False)]
    assert listed(run.epoch(rows((1, "gone", 2, True))).rows) == [(1, None, None, True)], "its key alone"
    assert not run.epoch(rows((1, "gone", 3, True))).rows.num_rows, "it is deleted already"
    assert not run.epoch(rows((3, "old", 4, False))).rows.num_rows, "its delete came before it"
    assert listed(run.epoch(rows((1, "again", 4, False))).rows) == [(1, "again", 4, False)]
    back = run.epoch(rows((1, "", 5, True), (1, "third", 6, False)))
    assert listed(back.rows) == [(1, "third", 6, False)], "gone and there again within an epoch"


def test_a_delete_wins_a_tie_and_then_the_whole_row_decides(tmp_path: Path) -> None:
    run = started(tmp_path, latest())
    assert listed(run.epoch(rows((1, "b", 1, False), (1, "c", 1, False), (1, "a", 1, False))).rows) == [
        (1, "c", 1, False)
    ]
    assert listed(run.epoch(rows((1, "a", 1, True), (1, "z", 1, False))).rows) == [(1, None, None, True)]
    assert not run.epoch(rows((1, "zz", 1, False))).rows.num_rows


def taken_up(run: OperatorRun, *pieces: pa.Table) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return an epoch's retractions and new rows, after one has gone on to the next."""
    opened = run.operator.begin({"": run.restore(0, 1)}, None)
    for piece in pieces:
        assert not any(output.rows.num_rows for output in opened.rows(0, piece, None))
    opened.finish(None)
    changes = listed(opened.retractions())  # type: ignore[attr-defined]
    run.epoch(pa.concat_tables([rows(), *pieces]))
    return tuple([row[:-1] for row in changes if row[-1] == weight] for weight in (-1, 1))  # type: ignore[return-value]


def test_a_replaced_or_deleted_row_is_retracted_as_it_was_when_the_epoch_began(tmp_path: Path) -> None:
    run = started(tmp_path, latest())
    assert taken_up(run, rows((1, "new", 10, False), (2, "new", 10, False), (3, "new", 10, False))) == (
        [], [(key, "new", 10) for key in run.state().column("id").to_pylist()],
    )  # fmt: skip
    first = rows((1, "paid", 11, False), (2, "gone", 11, True), (4, "new", 1, False), (5, "new", 1, False))
    before, now = taken_up(run, first, rows((1, "sent", 12, False), (5, "gone", 2, True), (3, "old", 9, False)))
    assert sorted(before) == [(1, "new", 10), (2, "new", 10)], "what was there within the epoch was never put out"
    assert sorted(now) == [(1, "sent", 12), (4, "new", 1)]
    assert taken_up(run, rows((2, "gone", 13, True))) == ([], []), "its row was taken back already"
    assert taken_up(run, rows((2, "again", 14, False))) == ([], [(2, "again", 14)])


def test_a_newer_row_with_equal_values_is_not_reported(tmp_path: Path) -> None:
    run = started(tmp_path, latest(columns=["id", "status"]))
    taken_up(run, rows((1, "new", 10, False), (2, "new", 10, False)))
    assert taken_up(run, rows((1, "new", 11, False), (2, "new", 9, False))) == ([], [])
    assert taken_up(run, rows((1, "sent", 12, False))) == ([(1, "new")], [(1, "sent")])
    assert taken_up(run) == ([], [])


def test_null_is_the_oldest_and_nan_the_newest(tmp_path: Path) -> None:
    schema = ORDERS.set(2, pa.field("lsn", pa.float64()))
    run = started(tmp_path, latest(schema))
    run.epoch(rows((1, "null", None), schema=schema))
    assert listed(run.epoch(rows((1, "least", -np.inf), schema=schema)).rows) == [(1, "least", -np.inf)]
    assert run.epoch(rows((1, "nan", np.nan), (1, "most", np.inf), (1, "null", None), schema=schema)).rows.column(
        "status"
    ).to_pylist() == ["nan"]


def test_a_table_has_the_columns_that_are_named(tmp_path: Path) -> None:
    run = started(tmp_path, latest(columns=["status", "id"]))
    assert listed(run.epoch(rows((1, "new", 1, False))).rows) == [("new", 1, False)]
    assert listed(run.epoch(rows((1, "", 2, True))).rows) == [(None, 1, True)]
    assert run.state().schema.names == ["id", "status", "lsn", TOMBSTONE_COLUMN], "and what is newer is known"


def test_keys_that_are_equal_are_one(tmp_path: Path) -> None:
    schema = ORDERS.set(0, pa.field("id", pa.float64()))
    run = started(tmp_path, latest(schema))
    nan = float("nan")
    found = run.epoch(rows((-0.0, "a", 1), (0.0, "b", 2), (nan, "c", 1), (nan, "d", 2), (None, "e", 1), schema=schema))
    assert sorted(found.rows.column("status").to_pylist()) == ["b", "d", "e"]


def timed(*found: tuple[Any, ...]) -> pa.Table:
    return rows(*((*row[:-1], row[-1] * MINUTE_US) for row in found), schema=TIMED)


def test_a_tombstone_is_remembered_for_its_ttl_and_older_rows_are_late(tmp_path: Path) -> None:
    run = started(tmp_path, latest(TIMED, tombstone_ttl="10m"))
    run.epoch(timed((1, "", 5, True, 100), (2, "", 5, True, 150)), firing_us=100 * MINUTE_US)
    later = run.epoch(
        timed((1, "old", 4, False, 140), (2, "old", 4, False, 149), (3, "late", 9, False, 138)),
        lateness_us=149 * MINUTE_US,
        firing_us=149 * MINUTE_US,
    )
    assert later.late.column("status").to_pylist() == ["late"] and DELETED_COLUMN not in later.late.column_names
    assert later.rows.column("status").to_pylist() == ["old"], "the first key was forgotten: it begins anew"
    assert sorted(run.state().column("id").to_pylist()) == [1, 2]


@pytest.mark.parametrize(("past_us", "shown"), [(0, []), (1, ["old"])])
def test_a_tombstone_is_remembered_up_to_the_last_microsecond_of_its_ttl(
    tmp_path: Path, past_us: int, shown: list[str]
) -> None:
    """A delete of minute 100 with a ttl of ten: at minute 110 it holds an older row off, a microsecond later not.

    Rows in flight hold firing back: the tombstone is in state, and lateness alone decides.
    """
    run = started(tmp_path, latest(TIMED, tombstone_ttl="10m"))
    run.epoch(timed((1, "", 5, True, 100)))
    out = run.epoch(timed((1, "old", 4, False, 111)), lateness_us=110 * MINUTE_US + past_us)
    assert out.rows.column("status").to_pylist() == shown


def test_a_tombstone_leaves_state_one_microsecond_after_its_ttl(tmp_path: Path) -> None:
    run = started(tmp_path, latest(TIMED, tombstone_ttl="10m"))
    run.epoch(timed((1, "", 5, True, 100)), firing_us=110 * MINUTE_US)
    assert run.state().num_rows == 1
    run.epoch(timed(), firing_us=110 * MINUTE_US + 1)
    assert run.state().num_rows == 0


def test_a_live_row_is_kept_however_old_it_is(tmp_path: Path) -> None:
    run = started(tmp_path, latest(TIMED, tombstone_ttl="1m"))
    run.epoch(timed((1, "new", 1, False, 0)), firing_us=10**15)
    assert run.state().num_rows == 1


ROWS = st.tuples(
    st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", None]), st.integers(0, 2) | st.none(), st.booleans()
)


@pytest.mark.long
@profiles.examples(share=0.6)
@example([(1, "a", 1, True), (1, "a", 1, False), (1, "b", 2, False)], [(1, "c", 2, True)], [2])
@given(st.lists(ROWS, max_size=10), st.lists(ROWS, max_size=6), st.lists(st.integers(0, 10), max_size=3))
def test_rows_and_state_do_not_depend_on_pieces_arrival_or_combining(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    found = []
    for turned, at, combined in ((1, [], False), (1, sorted(cuts), False), (-1, [], False), (1, [], True)):
        with tempfile.TemporaryDirectory() as folder:
            operator = latest()
            run = started(Path(folder), operator)
            out = []
            for of_epoch in (first, second):
                given_rows = rows(*of_epoch[::turned])
                if combined:
                    assert operator.combiner is not None
                    out.append(sorted(map(str, listed(run.epoch(given_rows, cuts=[3, 6], folded=[True] * 3).rows))))
                else:
                    out.append(sorted(map(str, listed(run.epoch(given_rows, cuts=at).rows))))
            found.append((out, sorted(map(str, listed(run.state())))))
    assert found[0] == found[1] == found[2] == found[3]


def test_the_last_row_of_each_group_is_that_of_a_stable_sort() -> None:
    random = np.random.default_rng(7)
    table = pa.table(
        {"x": pa.array(random.integers(-2, 3, 400)), "y": pa.array(random.choice([0.5, -0.0, 0.0, np.nan], 400))}
    )
    groups = random.integers(0, 60, 400)
    groups = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    place = {float.hex(v): n for n, v in enumerate([-0.0, 0.0, 0.5])}
    keys = [
        (int(x.as_py()), place.get(float.hex(y.as_py()), 9), n)
        for n, (x, y) in enumerate(zip(table["x"], table["y"], strict=True))
    ]
    expected = [max(keys[n] for n in np.flatnonzero(groups == g))[2] for g in range(groups.max() + 1)]
    assert last_rows(table, groups, ("x",)).tolist() == expected


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (ORDERS.remove(2), {}),
        (ORDERS.set(2, pa.field("lsn", pa.list_(pa.int64()))), {}),
        (MARKED, {"tombstone_ttl": "1h"}),
    ],
)
def test_columns_that_do_not_fit_are_refused(schema: pa.Schema, options: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        latest(schema, **options)
