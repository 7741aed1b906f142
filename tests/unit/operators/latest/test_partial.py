"""Rows that update some columns of a key: older rows fill what newer ones left open, deletes end all before them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import BuildOptions, OperatorFailed, OperatorInput
from milepost.operators.latest.run import build
from milepost.operators.latest.spec import LatestOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("status", pa.string()),
        ("paid", pa.float64()),
        ("lsn", pa.int64()),
        (DELETED_COLUMN, pa.bool_()),
    ]
)


def started(folder: Path | str, **options: Any) -> OperatorRun:
    value = {"uid": "current", "kind": "latest", "inputs": ["orders"], "key": ["id"], "sequence_by": ["lsn"], **options}
    spec = LatestOperator.model_validate(value | {"delete_when": "op = 'D'"})
    operator: Any = build(spec, [OperatorInput(SCHEMA, None)], BuildOptions())
    return OperatorRun(operator, LocalStore(StoreConfig(Path(folder).as_uri())))


def rows(*found: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(one) for one in zip(*found, strict=True)] if found else [[] for _ in SCHEMA], schema=SCHEMA)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_an_older_row_fills_what_newer_rows_left_open(tmp_path: Path) -> None:
    run = started(tmp_path, ignore_nulls=True)
    assert listed(run.epoch(rows((1, "new", None, 10, False), (1, None, 9.5, 30, False))).rows) == [
        (1, "new", 9.5, 30, False)
    ]
    assert listed(run.epoch(rows((1, "sent", 1.0, 20, False))).rows) == [(1, "sent", 9.5, 30, False)]
    assert not run.epoch(rows((1, "old", 1.0, 15, False), (1, "sent", None, 20, False))).rows.num_rows


def test_a_delete_ends_the_values_before_it_wherever_it_arrives(tmp_path: Path) -> None:
    run = started(tmp_path, ignore_nulls=True)
    run.epoch(rows((1, "sent", None, 20, False), (1, None, 9.5, 30, False)))
    assert listed(run.epoch(rows((1, None, None, 25, True))).rows) == [(1, None, 9.5, 30, False)]
    assert listed(run.epoch(rows((1, "x", 7.0, 24, False), (1, "late", 7.0, 26, False))).rows) == [
        (1, "late", 9.5, 30, False)
    ]
    assert listed(run.epoch(rows((1, None, None, 30, True))).rows) == [(1, None, None, None, True)], "it wins a tie"
    assert not run.epoch(rows((1, "y", 1.0, 29, False), (1, None, None, 31, True))).rows.num_rows
    assert listed(run.epoch(rows((1, None, 2.0, 32, False))).rows) == [(1, None, 2.0, 32, False)]


def test_the_marker_leaves_a_text_as_it_is_and_null_is_a_value(tmp_path: Path) -> None:
    run = started(tmp_path, unchanged="__same")
    run.epoch(rows((1, "new", 1.0, 10, False)))
    assert listed(run.epoch(rows((1, "__same", None, 20, False))).rows) == [(1, "new", None, 20, False)]
    assert listed(run.epoch(rows((1, None, 3.0, 30, False), (2, "__same", 1.0, 1, False))).rows) in (
        [(1, None, 3.0, 30, False), (2, None, 1.0, 1, False)], [(2, None, 1.0, 1, False), (1, None, 3.0, 30, False)],
    )  # fmt: skip


def test_a_row_without_a_sequence_fails_the_epoch(tmp_path: Path) -> None:
    with wording.raises(OperatorFailed):
        started(tmp_path, ignore_nulls=True).epoch(rows((1, "new", 1.0, None, False)))


ROWS = st.tuples(
    st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", "=", None]), st.sampled_from([0.5, 2.0, None]),
    st.integers(0, 4), st.sampled_from([False, False, False, True]),
)  # fmt: skip
EXPECTED = """
WITH live AS (SELECT * FROM came c WHERE NOT gone AND NOT EXISTS (
    SELECT 1 FROM came d WHERE d.gone AND d.id IS NOT DISTINCT FROM c.id AND d.lsn >= c.lsn))
SELECT id, first(status ORDER BY lsn DESC, status DESC NULLS LAST) FILTER (WHERE {status}),
    first(paid ORDER BY lsn DESC, paid DESC NULLS LAST) FILTER (WHERE {paid}), max(lsn) FROM live GROUP BY id
"""
IGNORE = {"status": "status IS NOT NULL", "paid": "paid IS NOT NULL"}
MARKED = {"status": "status IS DISTINCT FROM '='", "paid": "true"}


def expected(came: list[tuple[Any, ...]], conditions: dict[str, str]) -> Counter[tuple[Any, ...]]:
    with duckdb.cursor() as connection:
        connection.execute("CREATE TEMP TABLE came (id BIGINT, status VARCHAR, paid DOUBLE, lsn BIGINT, gone BOOLEAN)")
        if came:
            connection.executemany("INSERT INTO came VALUES (?, ?, ?, ?, ?)", came)
        return Counter(connection.execute(EXPECTED.format(**conditions)).fetchall())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "conditions"), [({"ignore_nulls": True}, IGNORE), ({"unchanged": "="}, MARKED)], ids=["nulls", "marker"]
)
@profiles.examples(share=0.4)
@example(
    [[(1, "a", None, 1, False), (1, None, 0.5, 3, False)], [(1, "b", 2.0, 2, False), (1, None, None, 1, True)]], [1], 2
)
@given(
    st.lists(st.lists(ROWS, max_size=7), min_size=1, max_size=4),
    st.lists(st.integers(0, 7), max_size=2),
    st.integers(1, 3),
)
def test_the_table_has_the_newest_value_of_each_column_however_rows_arrive(
    options: dict[str, Any],
    conditions: dict[str, str],
    epochs: list[list[tuple[Any, ...]]],
    cuts: list[int],
    parallelism: int,
) -> None:
    """Changes and state are the same in one piece, backwards in several, and on several subtasks."""
    with tempfile.TemporaryDirectory() as folder:
        whole, cut, apart = (started(f"{folder}/{name}", **options) for name in ("whole", "cut", "apart"))
        came, table = list[Any](), dict[Any, tuple[Any, ...]]()
        for of_epoch in epochs:
            came += of_epoch
            emitted = listed(whole.epoch(rows(*of_epoch)).rows)
            assert Counter(emitted) == Counter(listed(cut.epoch(rows(*of_epoch[::-1]), cuts=sorted(cuts)).rows))
            assert Counter(emitted) == Counter(listed(apart.epoch(rows(*of_epoch), parallelism=parallelism).rows))
            for *row, deleted in emitted:
                if deleted:
                    del table[row[0]]
                else:
                    table[row[0]] = tuple(row)
            assert Counter(table.values()) == expected(came, conditions)
        assert whole.handles == cut.handles
