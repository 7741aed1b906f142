"""The versions of each key: rows in any order, deletes, tracked columns, and the changes of each epoch."""

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

from milepost.errors import InvalidRequest
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import ONLY_TABLE, OperatorFailed, OperatorInput
from milepost.operators.history.run import HistoryByKey
from milepost.operators.history.spec import HistoryOperator
from milepost.operators.rows.tombstones import TOMBSTONE_COLUMN
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

ORDERS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("lsn", pa.int64())])
MARKED = ORDERS.append(pa.field(DELETED_COLUMN, pa.bool_()))


def history(schema: pa.Schema = MARKED, **options: Any) -> HistoryByKey:
    value = {
        "uid": "versions",
        "kind": "history",
        "inputs": ["orders"],
        "key": ["id"],
        "sequence_by": ["lsn"],
        **options,
    }
    if DELETED_COLUMN in schema.names:
        value["delete_when"] = "op = 'D'"
    return HistoryByKey(HistoryOperator.model_validate(value), OperatorInput(schema, None))


def rows(*found: tuple[Any, ...], schema: pa.Schema = MARKED) -> pa.Table:
    return pa.table([list(one) for one in zip(*found, strict=True)] if found else [[] for _ in schema], schema=schema)


def started(folder: Path | str, operator: HistoryByKey) -> OperatorRun:
    return OperatorRun(operator, LocalStore(StoreConfig(Path(folder).as_uri())))


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def versions(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return city, begin and end of each emitted version, and "deleted" with the begin of each deleted one."""
    return [
        ("deleted", row["valid_from"])
        if row.get(DELETED_COLUMN)
        else (row["city"], row["valid_from"], row["valid_to"], row["is_current"])
        for row in table.to_pylist()
    ]


def test_each_row_begins_a_version_that_ends_where_the_next_row_begins_one(tmp_path: Path) -> None:
    run = started(tmp_path, history(ORDERS))
    first = run.epoch(rows((1, "rome", 10), (2, "bern", 5), (1, "oslo", 30), schema=ORDERS)).rows
    assert first.schema.names == ["id", "city", "lsn", "valid_from", "valid_to", "is_current"]
    assert listed(first) == [
        (1, "rome", 10, 10, 30, False), (1, "oslo", 30, 30, None, True), (2, "bern", 5, 5, None, True),
    ]  # fmt: skip
    assert versions(run.epoch(rows((1, "bonn", 20), schema=ORDERS)).rows) == [
        ("rome", 10, 20, False), ("bonn", 20, 30, False),
    ]  # fmt: skip
    assert not run.epoch(rows((1, "bonn", 20), (2, "bern", 5), schema=ORDERS)).rows.num_rows, "both are stored"


def test_a_delete_ends_a_version_wherever_it_arrives(tmp_path: Path) -> None:
    run = started(tmp_path, history())
    run.epoch(rows((1, "rome", 10, False), (1, "oslo", 30, False)))
    assert versions(run.epoch(rows((1, "", 20, True))).rows) == [("rome", 10, 20, False)]
    assert versions(run.epoch(rows((1, "", 40, True), (1, "", 50, True))).rows) == [("oslo", 30, 40, False)]
    assert not run.epoch(rows((1, "", 45, True), (1, "", 5, True))).rows.num_rows, "nothing is valid there"
    assert versions(run.epoch(rows((1, "riga", 60, False))).rows) == [("riga", 60, None, True)]
    assert run.state().filter(run.state().column(TOMBSTONE_COLUMN)).column("city").null_count == 5


def test_of_equal_sequences_the_greatest_row_counts_and_a_delete_wins(tmp_path: Path) -> None:
    run = started(tmp_path, history())
    assert versions(run.epoch(rows((1, "b", 1, False), (1, "c", 1, False), (1, "a", 1, False))).rows) == [
        ("c", 1, None, True)
    ]
    deleted = run.epoch(rows((1, "zz", 1, True), (1, "b", 2, False)))
    assert listed(deleted.rows) == [(1, "b", 2, 2, None, True, False), (1, None, None, 1, None, None, True)]
    assert not run.epoch(rows((1, "zz", 1, False))).rows.num_rows


def test_rows_with_equal_tracked_columns_are_one_version_until_a_late_row_splits_it(tmp_path: Path) -> None:
    schema = MARKED.insert(1, pa.field("note", pa.string()))
    run = started(tmp_path, history(schema, track=["city"]))
    first = rows((1, "x", "rome", 10, False), (1, "y", "rome", 20, False), (1, "z", "oslo", 40, False), schema=schema)
    assert listed(run.epoch(first).rows) == [
        (1, "y", "rome", 20, 10, 40, False, False), (1, "z", "oslo", 40, 40, None, True, False),
    ]  # fmt: skip
    assert not run.epoch(rows((1, "w", "rome", 15, False), schema=schema)).rows.num_rows, "the last row is as it was"
    assert listed(run.epoch(rows((1, "v", "bonn", 12, False), schema=schema)).rows) == [
        (1, "x", "rome", 10, 10, 12, False, False), (1, "v", "bonn", 12, 12, 15, False, False),
        (1, "y", "rome", 20, 15, 40, False, False),
    ]  # fmt: skip
    assert versions(run.epoch(rows((1, "", "", 12, True), (1, "", "rome", 5, False), schema=schema)).rows) == [
        ("rome", 5, 12, False), ("deleted", 10), ("deleted", 12),
    ]  # fmt: skip


def test_versions_that_changed_are_retracted_as_of_the_start_of_the_epoch(tmp_path: Path) -> None:
    run = started(tmp_path, history(track=["city"]))
    run.epoch(rows((1, "rome", 10, False), (1, "oslo", 30, False), (2, "bern", 1, False)))
    epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    for piece in (rows((1, "bonn", 40, False)), rows((1, "oslo", 40, False), (1, "", 10, True), (2, "bern", 2, False))):
        assert not list(epoch.rows(0, piece, None))
    epoch.finish(None)
    assert listed(epoch.retractions()) == [
        (1, "rome", 10, 10, 30, False, -1), (1, "oslo", 30, 30, None, True, -1), (1, "oslo", 40, 30, None, True, 1),
        (2, "bern", 1, 1, None, True, -1), (2, "bern", 2, 1, None, True, 1),
    ]  # fmt: skip


def test_a_row_without_a_sequence_fails_the_epoch(tmp_path: Path) -> None:
    with wording.raises(OperatorFailed):
        started(tmp_path, history()).epoch(rows((1, "rome", None, False), (1, "rome", 1, False)))


def test_one_zero_and_one_nan_are_one_sequence_and_one_key(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.float64()), ("city", pa.string()), ("lsn", pa.float64())])
    nan = float("nan")
    run = started(tmp_path, history(schema))
    found = run.epoch(rows((-0.0, "a", nan), (0.0, "b", nan), (0.0, "c", -0.0), (0.0, "d", 0.0), schema=schema)).rows
    assert [str(row) for row in listed(found)] == [
        "(0.0, 'd', 0.0, 0.0, nan, False)", "(0.0, 'b', nan, nan, None, True)",
    ]  # fmt: skip


def test_a_table_has_the_columns_that_are_named_and_versions_end_only_with_deletes_or_tracking(tmp_path: Path) -> None:
    run = started(tmp_path, history(columns=["city", "id"]))
    assert listed(run.epoch(rows((1, "rome", 7, False))).rows) == [("rome", 1, 7, None, True, False)]
    assert not history(ORDERS).deletes and history(ORDERS, track=["city"]).deletes and history().deletes


@pytest.mark.parametrize(
    "schema",
    [
        ORDERS.remove(2),
        ORDERS.set(2, pa.field("lsn", pa.list_(pa.int64()))),
        ORDERS.set(1, pa.field("valid_to", pa.int64())),
    ],
)
def test_columns_that_do_not_fit_are_refused(schema: pa.Schema) -> None:
    with wording.raises(InvalidRequest):
        history(schema)


ROWS = st.tuples(
    st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", None]), st.integers(0, 5), st.sampled_from([0, 0, 0, 1])
)
EXPECTED = """
WITH winner AS (
    SELECT id, CASE WHEN NOT gone THEN city END AS city, lsn, gone FROM came
    QUALIFY row_number() OVER (PARTITION BY id, lsn ORDER BY gone DESC, city DESC NULLS LAST) = 1),
marked AS (
    SELECT *, coalesce({same}, false) AND NOT gone AND NOT lag(gone) OVER each AS joins FROM winner
    WINDOW each AS (PARTITION BY id ORDER BY lsn)),
spans AS (
    SELECT *, sum((NOT coalesce(joins, false))::INT) OVER (PARTITION BY id ORDER BY lsn) AS span FROM marked),
ends AS (SELECT id, max_by(city, lsn) AS city, max(lsn) AS lsn, min(lsn) AS valid_from, any_value(gone) AS gone,
    FROM spans GROUP BY id, span)
SELECT * EXCLUDE (gone) FROM (
    SELECT id, city, lsn, valid_from, lead(valid_from) OVER each AS valid_to, lead(valid_from) OVER each IS NULL, gone
    FROM ends WINDOW each AS (PARTITION BY id ORDER BY valid_from))
WHERE NOT gone
"""


def expected(came: list[tuple[Any, ...]], *, tracked: bool) -> Counter[tuple[Any, ...]]:
    same = (
        "city IS NOT DISTINCT FROM lag(city) OVER each AND lag(id IS NULL) OVER each IS NOT NULL"
        if tracked
        else "false"
    )
    with duckdb.cursor() as connection:
        connection.execute("CREATE TEMP TABLE came (id BIGINT, city VARCHAR, lsn BIGINT, gone BOOLEAN)")
        if came:
            connection.executemany("INSERT INTO came VALUES (?, ?, ?, ?)", came)
        return Counter(connection.execute(EXPECTED.format(same=same)).fetchall())


@pytest.mark.long
@profiles.examples(share=0.5)
@example([[(1, "a", 1, 0), (1, "a", 3, 0)], [(1, None, 2, 0)], [(1, "a", 2, 1)]], True, [1], 2)
@example([[(1, None, 1, 0), (1, None, 2, 0)], [(1, "b", 2, 1), (1, None, 3, 0)]], True, [1], 3)
@example([[(1, "a", 1, 0), (2, "a", 2, 0)]], True, [], 2)
@given(
    st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=4),
    st.booleans(),
    st.lists(st.integers(0, 8), max_size=2),
    st.integers(1, 3),
)
def test_the_table_has_the_versions_of_duckdb_however_rows_arrive(
    epochs: list[list[tuple[Any, ...]]], tracked: bool, cuts: list[int], parallelism: int
) -> None:
    """Changes and state are the same in one piece, backwards in several, and on several subtasks."""
    options = {"track": ["city"]} if tracked else {}
    with tempfile.TemporaryDirectory() as folder:
        whole, cut, apart = (started(f"{folder}/{name}", history(**options)) for name in ("whole", "cut", "apart"))
        came, table = list[Any](), dict[Any, tuple[Any, ...]]()
        for of_epoch in epochs:
            came += of_epoch
            given_rows = rows(*((*row[:3], bool(row[3])) for row in of_epoch))
            emitted = listed(whole.epoch(given_rows).rows)
            backwards = given_rows.take(pa.array(range(given_rows.num_rows - 1, -1, -1), pa.int64()))
            assert emitted == listed(cut.epoch(backwards, cuts=sorted(cuts)).rows)
            assert Counter(emitted) == Counter(listed(apart.epoch(given_rows, parallelism=parallelism).rows))
            for *version, deleted in emitted:
                place = (version[0], version[3])
                assert (table.pop(place, None) != tuple(version)) and (not deleted or version[1] is None)
                if not deleted:
                    table[place] = tuple(version)
            assert Counter(table.values()) == expected(came, tracked=tracked)
        assert whole.handles == cut.handles
        results = whole.operator.results(whole.state())  # type: ignore[attr-defined]
        assert Counter(row[:-1] for row in listed(results)) == Counter(table.values())
