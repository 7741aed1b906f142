"""Rows in the order of a key are the same, no matter how many are held: in one piece, or run by run on disk."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import EnvironmentUnusable
from milepost.sinks.parquet_files.table_schema import latest_per_key
from milepost.spill import external_sort as module
from milepost.spill import spilled_rows
from milepost.spill.external_sort import align_by_key, ordered_rows, sorted_rows
from milepost.spill.spilled_rows import SpilledRows
from milepost_testkit import wording

SCHEMA = pa.schema([("k", pa.float64()), ("t", pa.string()), ("v", pa.int64())])
FLOATS = st.sampled_from([None, math.nan, -0.0, 0.0, -1.5, 2.0, math.inf])
TEXTS = st.sampled_from([None, "", "a", "b", "ä"])
TABLES = st.lists(st.lists(st.tuples(FLOATS, TEXTS), max_size=12), max_size=8)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a row or two, and no more than three runs at a time."""
    monkeypatch.setattr(spilled_rows, "_PIECE_BYTES", 100)
    monkeypatch.setattr(module, "_MERGED_RUNS", 3)


def tables_of(rows: list[list[tuple[Any, Any]]]) -> list[pa.Table]:
    """Tables of these keys, each row with its number."""
    number = iter(range(1_000))
    return [
        pa.Table.from_pylist([{"k": k, "t": t, "v": next(number)} for k, t in table], schema=SCHEMA) for table in rows
    ]


def plain(tables: list[pa.Table]) -> list[str]:
    return [repr(row) for table in tables for row in table.to_pylist()]


@pytest.mark.deep
@given(TABLES, st.sampled_from([0, 60, 300, 10_000]))
def test_rows_come_in_the_order_of_a_stable_sort_whatever_is_held(rows, held_bytes) -> None:
    tables = tables_of(rows)
    whole = sorted_rows(pa.concat_tables([SCHEMA.empty_table(), *tables]), ["k", "t"])
    assert plain(list(ordered_rows(tables, ["k", "t"], held_bytes=held_bytes))) == plain([whole])


@pytest.mark.deep
@given(TABLES, st.sampled_from([0, 60, 300, 10_000]))
def test_the_latest_row_of_each_key_is_the_same_whatever_is_held(rows, held_bytes) -> None:
    tables, key = tables_of(rows), ("k", "t")
    whole = sorted_rows(latest_per_key(pa.concat_tables([SCHEMA.empty_table(), *tables]), key), key)

    def newest(some: pa.Table) -> pa.Table:
        return sorted_rows(latest_per_key(some, key), key)

    assert plain(list(ordered_rows(tables, key, newest, held_bytes=held_bytes))) == plain([whole])


@given(st.lists(TABLES, min_size=1, max_size=4))
def test_of_each_step_are_all_rows_of_its_keys_and_steps_ascend(runs) -> None:
    whole = [sorted_rows(pa.concat_tables([SCHEMA.empty_table(), *tables_of(run)]), ["k"]) for run in runs]
    cut = [[rows.slice(at, 2) for at in range(0, rows.num_rows, 2)] for rows in whole]
    seen: list[list[pa.Table]] = [[] for _ in runs]
    before: set[str] = set()
    for step in align_by_key(cut, ["k"]):
        keys = {repr(key) for part in step if part is not None for key in _keys(part)}
        assert keys and not keys & before
        before |= keys
        for kept, part in zip(seen, step, strict=True):
            kept += [] if part is None else [part]
    assert [plain(parts) for parts in seen] == [plain([rows]) for rows in whole]


def _keys(rows: pa.Table) -> Iterator[float | None]:
    """Keys as the order has them: there is one zero."""
    return (0.0 if key == 0 else key for key in rows.column("k").to_pylist())


def test_steps_of_two_runs_have_the_rows_of_both_below_the_lower_of_their_ends() -> None:
    runs = [[pa.table({"k": list(piece)}) for piece in run] for run in (["ac", "df", "g"], ["bc", "ce", "g"])]
    steps = [
        ["" if part is None else "".join(part["k"].to_pylist()) for part in step] for step in align_by_key(runs, ["k"])
    ]
    assert steps == [["a", "b"], ["cd", "cc"], ["", "e"], ["f", ""], ["g", "g"]]


@pytest.mark.deep
def test_of_many_rows_only_so_many_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6 MB of rows, of which 40 kB are held: Arrow has only a small part of them at a time."""
    monkeypatch.setattr(spilled_rows, "_PIECE_BYTES", 4 << 10)
    monkeypatch.setattr(module, "_MERGED_RUNS", 16)
    pieces, rows = 100, 1_000

    def tables() -> Iterator[pa.Table]:
        for number in range(pieces):
            yield pa.table(
                {"k": [(number * rows + row) * 7919 % (pieces * rows) for row in range(rows)], "v": range(rows)}
            )

    base, peak, found = pa.total_allocated_bytes(), 0, 0
    for part in ordered_rows(tables(), ["k"], held_bytes=40 << 10):
        assert part["k"].to_pylist() == list(range(found, found + part.num_rows))
        found += part.num_rows
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert found == pieces * rows
    assert peak < 400 << 10


def test_a_full_disk_is_reported_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    full = partial(Path("/dev/full").open, "wb")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full())
    with wording.raises(EnvironmentUnusable) as raised:
        list(ordered_rows(tables_of([[(1.0, "a")], [(2.0, "b")]]), ["k"], held_bytes=0))
    assert "TMPDIR" in str(raised.value.hint)


@given(TABLES, st.none() | st.integers(0, 20), st.sampled_from([0, 200, 10_000]))
def test_kept_rows_are_the_same_in_memory_and_on_the_disk(rows, limit, held_bytes) -> None:
    tables = tables_of(rows)
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_rows, "HELD_BYTES", held_bytes)
        kept = SpilledRows(SCHEMA, tables, limit)
    assert kept.num_rows == whole.num_rows
    assert plain([kept.table()]) == plain([whole.slice(0, limit)])
    assert plain(list(kept.head(3))) == plain([whole.slice(0, min(3, whole.num_rows if limit is None else limit))])
