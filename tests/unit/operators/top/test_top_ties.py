"""Rows that tie have one rank, as by rank() or dense_rank(); the first rows of all; and one row of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.operators.contract import ONLY_TABLE, OperatorFailed, OperatorInput
from milepost.operators.top.run import Ties, TopByKey
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost_testkit import profiles, wording
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun

VIEWS = pa.schema([("hour", pa.int32()), ("page", pa.string()), ("views", pa.float64())])
WEIGHTED = VIEWS.append(pa.field(WEIGHT_COLUMN, pa.int64()))
nan = float("nan")


def top(
    ties: bool | str = False, n: int = 2, rank: str | None = "place", key: Sequence[str] = ("hour",), most: int = 100,
    schema: pa.Schema = WEIGHTED,
) -> TopByKey:  # fmt: skip
    rules = Ties(is_dense=ties == "dense", most=most) if ties else None
    return TopByKey("top", key, (("views", True),), n, rank, OperatorInput(schema, None), rules)


def started(operator: TopByKey) -> OperatorRun:
    return OperatorRun(operator, MemoryStore("file:///memory/top"))


def views(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []], schema=WEIGHTED)


def changes(run: OperatorRun, rows: pa.Table, cuts: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    """Return what operators read of one epoch, and move to its checkpoint."""
    operator = run.operator
    rows = rows.select(operator.input_schema.names if not operator.over_updates else rows.column_names)  # type: ignore[attr-defined]
    epoch: Any = operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    list(epoch.rows(0, rows, None))
    epoch.finish(None)
    run.epoch(rows, cuts=cuts)
    return [tuple(row.values()) for row in epoch.retractions().to_pylist()]


def test_rows_that_tie_have_one_rank_and_the_next_follows_their_number() -> None:
    rows = views((1, "a", 9.0, 1), (1, "b", 9.0, 1), (1, "c", 7.0, 2), (1, "d", 5.0, 1))
    assert changes(started(top(True, 3)), rows) == [
        (1, "a", 9.0, 1, 1), (1, "b", 9.0, 1, 1), (1, "c", 7.0, 3, 2),
    ]  # fmt: skip
    assert changes(started(top("dense", 2)), rows) == [
        (1, "a", 9.0, 1, 1), (1, "b", 9.0, 1, 1), (1, "c", 7.0, 2, 2),
    ]  # fmt: skip


def test_a_rank_that_changes_is_another_row_only_if_it_is_shown() -> None:
    shown, hidden = started(top(True, 3)), started(top(True, 3, rank=None))
    first, second = views((1, "a", 9.0, 1), (1, "b", 7.0, 1)), views((1, "c", 9.0, 1))
    for run in (shown, hidden):
        changes(run, first)
    assert changes(shown, second) == [(1, "b", 7.0, 2, -1), (1, "c", 9.0, 1, 1), (1, "b", 7.0, 3, 1)]
    assert changes(hidden, second) == [(1, "c", 9.0, 1)]


def test_zeros_tie_and_so_do_nan_and_null() -> None:
    rows = views((1, "a", 0.0, 1), (1, "b", -0.0, 1), (1, "c", nan, 1), (1, "d", nan, 1), (1, "e", None, 1))
    ranks = {row[1]: row[3] for row in changes(started(top("dense", 9)), rows)}
    assert ranks == {"c": 1, "d": 1, "a": 2, "b": 2, "e": 3}


def test_more_rows_than_max_ties_fail_the_epoch_with_their_key() -> None:
    for ties, key in ((True, ("hour",)), ("dense", ())):
        run = started(top(ties, 1, key=key, most=2))
        changes(run, views((1, "a", 9.0, 1), (1, "b", 9.0, 1), (1, "z", 1.0, 5)))
        with wording.raises(OperatorFailed):
            changes(run, views((1, "c", 9.0, 1)))


def test_of_append_rows_those_beyond_the_last_rank_are_dropped_and_all_that_tie_are_kept() -> None:
    run = started(top(True, 2, schema=VIEWS))
    changes(run, views((1, "a", 9.0, 1), (1, "b", 9.0, 1), (1, "c", 9.0, 1), (1, "d", 5.0, 1)))
    assert sorted(run.state().column("page").to_pylist()) == ["a", "b", "c"]
    run = started(top("dense", 2, schema=VIEWS))
    changes(run, views((1, "a", 9.0, 1), (1, "b", 9.0, 1), (1, "c", 7.0, 1), (1, "d", 5.0, 1)))
    assert sorted(run.state().column("page").to_pylist()) == ["a", "b", "c"]


def test_one_row_of_each_key_is_keyed_by_it_without_a_rank() -> None:
    operator = top(n=1, rank=None)
    assert operator.output_key == ("hour",) and operator.output_schema.names == [*VIEWS.names, "__deleted"]
    run = started(operator)
    emitted = run.epoch(views((1, "a", 9.0, 1), (1, "b", 7.0, 1), (2, "z", 1.0, 1))).rows
    assert [row["page"] for row in emitted.to_pylist()] == ["a", "z"]
    emitted = run.epoch(views((1, "a", 9.0, -1), (2, "z", 1.0, -1))).rows
    assert [(row["hour"], row["page"], row["__deleted"]) for row in emitted.to_pylist()] == [
        (1, "b", False), (2, None, True),
    ]  # fmt: skip
    assert top(n=1, rank=None, key=()).output_key == () == top(n=2, rank=None).output_key


def test_without_a_key_the_first_rows_are_of_all_and_in_one_subtask() -> None:
    run = started(top(key=()))
    emitted = run.epoch(views((1, "a", 9.0, 1), (2, "b", 7.0, 1), (3, "c", 5.0, 1)), parallelism=3).rows
    assert [(row["page"], row["place"]) for row in emitted.to_pylist()] == [("a", 1), ("b", 2)]
    emitted = run.epoch(views((1, "a", 9.0, -1), (7, "d", nan, 1)), parallelism=2).rows
    assert [(row["page"], row["place"]) for row in emitted.to_pylist()] == [("d", 1)]
    assert run.epoch(views((9, "c", 6.0, -1)), parallelism=2).rows.num_rows == 0


ROWS = st.tuples(st.sampled_from([1, 2]), st.sampled_from("abc"), st.sampled_from([None, -0.0, 0.0, 1.0, nan]))


@profiles.examples(share=0.4)
@example([([(1, "a", 0.0), (1, "b", -0.0)], 0), ([(1, "a", 1.0)], 1)], True, 1, ("hour",), [1], True)
@given(
    st.lists(st.tuples(st.lists(ROWS, max_size=6), st.integers(0, 6)), min_size=1, max_size=4),
    st.sampled_from([False, True, "dense"]),
    st.integers(1, 3),
    st.sampled_from([("hour",), ()]),
    st.lists(st.integers(0, 6), max_size=2),
    st.booleans(),
)
def test_the_read_changes_add_up_to_duckdbs_ranks(
    epochs: list[tuple[list[tuple[int, str, Any]], int]], ties: bool | str, n: int, key: tuple[str, ...],
    cuts: list[int], over_updates: bool,
) -> None:  # fmt: skip
    """Rows come, some are retracted; over append rows, that state drops what will never rank changes nothing."""
    operator = top(ties, n, key=key, schema=WEIGHTED if over_updates else VIEWS)
    run, there, read = started(operator), list[Any](), Counter[str]()
    function = {False: "row_number", True: "rank", "dense": "dense_rank"}[ties]
    tied = "" if ties else ", hour, page, CASE WHEN views::VARCHAR = '-0.0' THEN 0 ELSE 1 END"
    for come, goes in epochs:
        goes = goes if over_updates else 0
        gone, there = there[:goes], there[goes:] + come
        for *row, weight in changes(
            run, views(*((*one, 1) for one in come), *((*one, -1) for one in gone)), sorted(cuts)
        ):
            read[repr(row)] += weight
        connection = duckdb.cursor()
        connection.register("there", pa.table([*zip(*there, strict=True)] if there else [[], [], []], schema=VIEWS))
        rank = f"{function}() OVER ({'PARTITION BY hour' if key else ''} ORDER BY views + 0.0 DESC NULLS LAST{tied})"
        expected = connection.sql(f"SELECT * FROM (SELECT *, {rank} AS place FROM there) WHERE place <= {n}").fetchall()
        assert Counter({row: count for row, count in read.items() if count}) == Counter(map(repr, map(list, expected)))
