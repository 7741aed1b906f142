"""Rows that are inserted and retracted, as updates by a key."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.operators.contract import ONLY_TABLE, OperatorFailed, OperatorInput
from milepost.operators.materialize.run import MaterializeByKey
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun

ORDERS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("paid", pa.float64())])
WEIGHTED = ORDERS.append(pa.field(WEIGHT_COLUMN, pa.int64()))
Row = tuple[int | None, str | None, float | None, int]
"""Id, city, amount, and how often it is added."""


def orders(*rows: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []], schema=WEIGHTED)


def started(store: Any, key: tuple[str, ...] = ("id",), schema: pa.Schema = WEIGHTED) -> OperatorRun:
    return OperatorRun(MaterializeByKey("orders", key, OperatorInput(schema, None)), store)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def opened(run: OperatorRun, rows: pa.Table) -> Any:
    """Return one subtask's finished epoch, without a checkpoint."""
    epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    list(epoch.rows(0, rows, None))
    epoch.finish(None)
    return epoch


def test_an_epoch_emits_the_keys_whose_row_changed_and_deletes_those_without_one(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())))
    first = run.epoch(orders((7, "rome", 1.0, 1), (3, "oslo", 2.0, 1), (None, "bonn", 3.0, 1))).rows
    assert listed(first) == [(None, "bonn", 3.0, False), (3, "oslo", 2.0, False), (7, "rome", 1.0, False)]
    moved = orders((7, "rome", 1.0, -1), (7, "riga", 1.0, 1), (3, "oslo", 2.0, -1), (3, "oslo", 2.0, 1))
    read = listed(opened(run, moved).retractions())
    assert read == [(7, "rome", 1.0, -1), (7, "riga", 1.0, 1)], "oslo is as it was"
    assert listed(run.epoch(moved).rows) == [(7, "riga", 1.0, False)]
    assert listed(run.epoch(orders((7, "riga", 1.0, -1), (4, "bern", 0.0, 1))).rows) == [
        (4, "bern", 0.0, False), (7, None, None, True),
    ]  # fmt: skip
    assert not run.epoch(orders()).rows.num_rows


def test_of_two_rows_the_greatest_is_shown_until_one_is_retracted(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())))
    run.epoch(orders((7, "berlin", 1.0, 1)))
    assert listed(run.epoch(orders((7, "rome", 0.0, 1))).rows) == [(7, "rome", 0.0, False)]
    assert not run.epoch(orders((7, "athens", 9.0, 1))).rows.num_rows
    assert listed(run.epoch(orders((7, "rome", 0.0, -1))).rows) == [(7, "berlin", 1.0, False)]
    assert not run.epoch(orders((7, "athens", 9.0, -1))).rows.num_rows


def test_a_retraction_that_precedes_its_row_is_stored_and_counts_as_absent(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())))
    assert not run.epoch(orders((7, "rome", 1.0, -1))).rows.num_rows
    assert not run.epoch(orders((7, "rome", 1.0, 1))).rows.num_rows and not run.state().num_rows


def test_a_key_with_two_rows_fails_once_nothing_is_in_flight(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())))
    run.epoch(orders((1, "rome", 1.0, 1), (2, "oslo", 1.0, 2), (3, "bern", 1.0, -1)))
    sound, crowded = opened(run, orders((1, "rome", 1.0, -1), (1, "riga", 1.0, 1))), opened(run, orders())
    sound.check_unique(all_keys=False), sound.check_settled(all_keys=False)
    crowded.check_unique(all_keys=False), crowded.check_settled(all_keys=False)
    with wording.raises(OperatorFailed):
        sound.check_unique(all_keys=True)
    with wording.raises(OperatorFailed):
        crowded.check_settled(all_keys=True)
    with wording.raises(OperatorFailed):
        opened(run, orders((1, "oslo", 1.0, 1))).check_unique(all_keys=False)


def test_one_zero_and_one_nan_are_one_key(tmp_path: Path) -> None:
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())), ("paid",))
    nan = float("nan")
    rows = run.epoch(orders((1, "a", -0.0, 1), (2, "b", nan, 1), (1, "a", 0.0, -1), (3, "c", 0.0, 1))).rows
    assert [(row[0], row[1]) for row in listed(rows)] == [(3, "c"), (2, "b")]
    assert str(rows.column("paid").to_pylist()[0]) == "0.0"


def test_a_stable_key_has_no_deletes() -> None:
    input_ = OperatorInput(WEIGHTED, None, stable_key=("id", "city"))
    assert MaterializeByKey("orders", ("id",), input_).output_schema == ORDERS
    assert MaterializeByKey("orders", ("paid",), input_).output_schema.names[-1] == "__deleted"


@pytest.mark.parametrize("key", [("absent",), ("tags",)])
def test_a_key_that_does_not_fit_is_refused(key: tuple[str, ...]) -> None:
    with wording.raises(InvalidRequest):
        started(MemoryStore("file:///memory/m"), key, WEIGHTED.append(pa.field("tags", pa.list_(pa.string()))))


def test_rows_that_differ_in_nested_columns_alone_are_two_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), (WEIGHT_COLUMN, pa.int64())])
    run = started(LocalStore(StoreConfig(tmp_path.as_uri())), ("id",), schema)
    assert listed(run.epoch(pa.table([[1, 1], [["a"], ["a", "b"]], [1, 1]], schema=schema)).rows) == [
        (1, ["a", "b"], False)
    ]


CHANGES = st.lists(st.tuples(st.sampled_from([1, 2, None]), st.sampled_from("abc")), max_size=6)


@pytest.mark.deep
@profiles.examples(share=0.5)
@example([([(1, "a"), (1, "b")], 0), ([(1, "a")], 3)], [1], 2)
@given(
    st.lists(st.tuples(CHANGES, st.integers(0, 6)), min_size=1, max_size=4),
    st.lists(st.integers(0, 12), max_size=2),
    st.integers(1, 3),
)
def test_the_table_has_the_greatest_row_of_each_key_however_rows_are_cut(
    epochs: list[tuple[list[tuple[int | None, str]], int]], cuts: list[int], parallelism: int
) -> None:
    """Rows come, some are retracted. Output and state are the same in one piece, in several, and on other subtasks."""
    with tempfile.TemporaryDirectory() as folder:
        whole = started(LocalStore(StoreConfig(f"file://{folder}/whole")))
        cut, apart = (started(LocalStore(StoreConfig(f"file://{folder}/{name}"))) for name in ("cut", "apart"))
        there, table = list[Any](), dict[int | None, str]()
        for come, goes in epochs:
            gone, there = there[:goes], there[goes:] + come
            rows = orders(*((*one, 0.5, 1) for one in come), *((*one, 0.5, -1) for one in gone))
            emitted = listed(whole.epoch(rows).rows)
            backwards = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
            assert emitted == listed(cut.epoch(backwards, cuts=sorted(cuts)).rows)
            assert Counter(emitted) == Counter(listed(apart.epoch(rows, parallelism=parallelism).rows))
            for key, city, _, deleted in emitted:
                if deleted:
                    del table[key]
                else:
                    assert table.get(key) != city, "it is as it was"
                    table[key] = city
            assert table == {key: max(city for one, city in there if one == key) for key, _ in there}
        assert Counter(listed(whole.state().select(["id", "city", WEIGHT_COLUMN]))) == Counter(
            (*row, count) for row, count in Counter(there).items()
        )
        assert whole.handles == cut.handles
        results = whole.operator.results(whole.state())  # type: ignore[attr-defined]
        assert {row[0]: row[1] for row in listed(results)} == table
