"""Rows to write are the difference of two contents: applied to what is shown, they give what is to be shown."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milepost.dataflow.sinks.files.table_files import TableFiles
from milepost.dataflow.sinks.formats.postgres.row_changes import RowChanges, row_changes
from milepost.dataflow.sinks.formats.postgres.row_lines import lines_of
from milepost.dataflow.sinks.records.committables import StagedFile
from milepost.dataflow.sinks.table_format import TableMove
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from tests.conformance.sinks.contract.case import deleting

GONE = "gone"
"""In place of a value: the key is deleted."""

Rows = dict[int, str | None]
"""Of one file: value by key."""

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = st.dictionaries(st.integers(0, 4), st.sampled_from([None, "", "a", "b", "\\N", GONE]), min_size=1, max_size=4)
HISTORIES = st.lists(ROWS, max_size=5)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TableFiles:
    return TableFiles("table", open_store(StoreConfig(file_url(tmp_path_factory.mktemp("table")))))


def staged(files: TableFiles, rows: Rows, at: int) -> StagedFile:
    table = pa.table({"k": list(rows), "v": list(rows.values())}, schema=SCHEMA)
    gone = [key for key, value in rows.items() if value == GONE]
    file = files.stage([deleting(table, gone) if gone else table], at, 1, "0", 1 << 20)
    assert file is not None
    return file


def shown(history: list[Rows]) -> dict[str, str]:
    """The line of each key's latest row, by the key's line."""
    latest = {key: value for rows in history for key, value in rows.items()}
    latest = {key: value for key, value in latest.items() if value != GONE}
    table = pa.table({"k": list(latest), "v": list(latest.values())}, schema=SCHEMA)
    return dict(zip(lines_of(table.select(["k"])).to_pylist(), lines_of(table).to_pylist(), strict=True))


def applied(changes: RowChanges, before: dict[str, str]) -> dict[str, str]:
    rows = {line.split("\t")[0] + "\n": line for line in changes.rows.to_pylist()}
    assert len(rows) == len(changes.rows), "one row per key"
    if changes.whole:
        return rows
    gone = changes.gone.to_pylist()
    assert len(set(gone)) == len(gone) and not set(gone) & rows.keys()
    return {key: line for key, line in (before | rows).items() if key not in gone}


def move_of(files: TableFiles, before: list[Rows] | None, after: list[Rows]) -> TableMove:
    def all_of(history: list[Rows]) -> tuple[StagedFile, ...]:
        return tuple(staged(files, rows, at) for at, rows in enumerate(history, 1))

    known = None if before is None else all_of(before)
    return TableMove(1, "0" * 32, (), (), SCHEMA, before=known, after=all_of(after))


@settings(max_examples=150)
@example(common=[], left=[{0: None}], entered=[{0: None}, {0: None}], is_known=True)
@given(common=HISTORIES, left=HISTORIES, entered=HISTORIES, is_known=st.booleans())
def test_the_changes_of_any_move_make_one_table_of_the_other(
    files: TableFiles, common: list[Rows], left: list[Rows],
    entered: list[Rows], is_known: bool,
) -> None:  # fmt: skip
    """Forth, back, aside, over a compaction, and where nobody knows what is shown.

    A move that only adds files reads no other: it may write a row that is there.
    """
    before, after = [*common, *left], [*common, *entered]
    changes = row_changes(files, move_of(files, before if is_known else None, after), ("k",))
    assert applied(changes, shown(before)) == shown(after)
    if is_known and before != after[: len(before)]:
        assert {*changes.gone.to_pylist()} <= shown(before).keys(), "no row goes that is not there"
        assert not {*changes.rows.to_pylist()} & {*shown(before).values()}, "no row is written that is there"


def test_a_move_that_adds_files_reads_no_other(files: TableFiles) -> None:
    """What an epoch costs does not grow with the table."""
    move = move_of(files, [{1: "a"}], [{1: "a"}, {2: "b"}])
    assert move.before is not None
    lost = StagedFile(move.before[0].key.replace("t1/", "t9/"), 1, 1, "0" * 64)
    alone = TableMove(1, "0" * 32, (), (), SCHEMA, before=(lost,), after=(lost, move.after[1]))
    assert row_changes(files, alone, ("k",)).rows.to_pylist() == ["2\tb\n"]


def test_a_file_that_is_left_may_be_gone_and_one_that_is_needed_may_not(files: TableFiles) -> None:
    """Going back is how a damaged table is mended: then all that it is to show is compared."""
    move = move_of(files, [{1: "a"}, {2: "b"}], [{1: "a"}])
    assert move.before is not None
    lost = StagedFile(move.before[1].key.replace("t1/", "t9/"), 1, 1, "0" * 64)
    back = TableMove(1, "0" * 32, (), (), SCHEMA, before=(move.before[0], lost), after=move.after)
    changes = row_changes(files, back, ("k",))
    assert changes.whole and changes.rows.to_pylist() == ["1\ta\n"]
    with pytest.raises(StateCorrupt, match="is missing"):
        row_changes(files, TableMove(1, "0" * 32, (), (), SCHEMA, before=move.before, after=(lost,)), ("k",))
