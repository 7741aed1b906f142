"""The first rows of each key without a rank: operators read which rows came to be among them, and which are no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from milepost.operators.contract import ONLY_TABLE, OperatorInput
from milepost.operators.top.run import TopByKey
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun

VIEWS = pa.schema([("hour", pa.int32()), ("page", pa.string()), ("views", pa.int64())])
WEIGHTED = VIEWS.append(pa.field(WEIGHT_COLUMN, pa.int64()))
Row = tuple[int, str, int, int]
"""Hour, page, views, and how many times it comes."""


def started(store: Any, schema: pa.Schema = WEIGHTED, n: int = 2) -> OperatorRun:
    return OperatorRun(TopByKey("top", ("hour",), (("views", True),), n, None, OperatorInput(schema, None)), store)


def views(*rows: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []], schema=WEIGHTED)


def changes(run: OperatorRun, rows: pa.Table) -> list[Row]:
    """Return what operators read of one epoch, and move to its checkpoint."""
    epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    list(epoch.rows(0, rows, None))
    epoch.finish(None)
    read = [tuple(row.values()) for row in epoch.retractions().to_pylist()]
    run.epoch(rows)
    return read


def test_a_row_that_moves_from_one_place_to_another_is_not_read(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())))
    assert changes(run, views((1, "a", 3, 1), (1, "b", 2, 1), (2, "z", 1, 1))) == [
        (1, "a", 3, 1), (1, "b", 2, 1), (2, "z", 1, 1),
    ]  # fmt: skip
    assert changes(run, views((1, "c", 9, 1))) == [(1, "b", 2, -1), (1, "c", 9, 1)]
    assert changes(run, views((1, "c", 9, -1), (2, "y", 0, 1))) == [(1, "c", 9, -1), (1, "b", 2, 1), (2, "y", 0, 1)]
    assert changes(run, views((2, "x", -1, 1))) == []


def test_equal_rows_are_read_once_with_their_number(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())), n=3)
    assert changes(run, views((1, "a", 5, 2))) == [(1, "a", 5, 2)]
    assert changes(run, views((1, "a", 5, 4), (1, "b", 4, 1))) == [(1, "a", 5, 1)]
    assert changes(run, views((1, "a", 5, -5))) == [(1, "a", 5, -2), (1, "b", 4, 1)]


def test_it_has_no_key_and_no_rank(tmp_path: Path) -> None:
    operator = started(LocalStore(StoreConfig(tmp_path.as_uri())), VIEWS).operator
    assert (operator.output_key, operator.output_schema.names) == ((), VIEWS.names)


CHANGES = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from("abc"), st.integers(0, 2)), max_size=6)


@profiles.examples(share=0.4)
@given(st.lists(st.tuples(CHANGES, st.integers(0, 6)), min_size=1, max_size=4), st.integers(1, 3))
def test_the_read_changes_add_up_to_the_first_rows(
    epochs: list[tuple[list[tuple[int, str, int]], int]], n: int
) -> None:
    """Rows come, and some of those that are there are taken back."""
    run, there, read = started(MemoryStore("file:///memory/top"), n=n), list[Any](), Counter[Any]()
    for come, goes in epochs:
        gone, there = there[:goes], there[goes:] + come
        for *row, weight in changes(run, views(*((*one, 1) for one in come), *((*one, -1) for one in gone))):
            read[tuple(row)] += weight
        first = Counter(
            one
            for hour in (1, 2)
            for one in sorted((row for row in there if row[0] == hour), key=lambda row: (-row[2], row[1]))[:n]
        )
        assert +read == first and not any(weight < 0 for weight in read.values())
