"""Rows to write are the difference of two contents: applied to what is shown, they give what is to be shown."""

from __future__ import annotations

from itertools import pairwise, takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import StateCorrupt
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.contract import SinkMode
from milepost.sinks.formats.postgres import row_changes as changes_of_rows
from milepost.sinks.formats.postgres.row_changes import RowChanges, row_changes
from milepost.sinks.formats.postgres.row_lines import lines_of
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.staging import compaction, small_files
from milepost.sinks.table_format import TableMove
from milepost.storage.open import open_store
from milepost.tables.records.committables import StagedFile, StagingContext
from milepost_testkit import profiles, wording
from milepost_testkit.stores.hooked_store import HookedStore
from tests.conformance.sinks.contract.case import deleting, rows
from tests.conformance.sinks.formats.local_cases import LocalParquet


class Upsert(LocalParquet):
    mode = SinkMode.UPSERT


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
    file = files.stage([deleting(table, gone) if gone else table], StagingContext(at, 1, 0, 1 << 20), "0")
    assert file is not None
    return file


def shown(history: list[Rows]) -> dict[str, str]:
    """The line of each key's latest row, by the key's line."""
    latest = {key: value for rows in history for key, value in rows.items()}
    latest = {key: value for key, value in latest.items() if value != GONE}
    table = pa.table({"k": list(latest), "v": list(latest.values())}, schema=SCHEMA)
    return dict(zip(lines_of(table.select(["k"])).to_pylist(), lines_of(table).to_pylist(), strict=True))


def applied(changes: RowChanges, before: dict[str, str]) -> dict[str, str]:
    found = {} if changes.whole else before
    for piece in changes.pieces:
        lines, gone = piece.rows.to_pylist(), piece.deleted.to_pylist()
        rows = {line.split("\t")[0] + "\n": line for line in lines}
        assert len(rows) == len(lines), "one row per key"
        assert len(set(gone)) == len(gone) and not set(gone) & rows.keys()
        found = {key: line for key, line in (found | rows).items() if key not in gone}
    return found


def written(changes: RowChanges) -> tuple[list[str], list[str]]:
    """What it writes, and which keys go."""
    pieces = list(changes.pieces)
    return [line for one in pieces for line in one.rows.to_pylist()], [
        key for one in pieces for key in one.deleted.to_pylist()
    ]


def move_of(files: TableFiles, before: list[Rows] | None, after: list[Rows]) -> TableMove:
    def all_of(history: list[Rows]) -> tuple[StagedFile, ...]:
        return tuple(staged(files, rows, at) for at, rows in enumerate(history, 1))

    known = None if before is None else all_of(before)
    return TableMove(1, "0" * 32, (), (), SCHEMA, before=known, after=all_of(after))


@pytest.mark.long
@profiles.examples(share=1.5)
@example(common=[], left=[{0: None}], entered=[{0: None}, {0: None}], is_known=True, most=9)
@example(common=[{0: "a"}], left=[], entered=[{0: None}], is_known=True, most=9)
@example(common=[{0: "a"}], left=[], entered=[{0: GONE}], is_known=True, most=9)
@given(common=HISTORIES, left=HISTORIES, entered=HISTORIES, is_known=st.booleans(), most=st.sampled_from([1, 100]))
def test_the_changes_of_any_move_make_one_table_of_the_other(
    files: TableFiles, common: list[Rows], left: list[Rows],
    entered: list[Rows], is_known: bool, most: int,
) -> None:  # fmt: skip
    """Forward, back, to a sibling, over a compaction, and when it is unknown what is shown.

    A move that only adds files reads no other: it may write a row that is there.
    """
    before, after = [*common, *left], [*common, *entered]
    move = move_of(files, before if is_known else None, after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_of_rows, "MOST_ROWS", most)
        changes = row_changes(files, move, ("k",))
        assert changes.whole == (not is_known or _is_too_much(move, most))
        assert applied(changes, shown(before)) == shown(after)
    if is_known and before != after[: len(before)]:
        rows, gone = written(row_changes(files, move, ("k",)))
        assert {*gone} <= shown(before).keys(), "no row goes that is not there"
        assert not {*rows} & {*shown(before).values()}, "no row is written that is there"


def _is_too_much(move: TableMove, most: int) -> bool:
    """Rows of files that only one of the two tables has, where something goes, are not held in memory then."""
    assert move.before is not None
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(move.before, move.after, strict=False)))
    others = (*move.before[same:], *move.after[same:])
    return len(move.before) > same and sum(file.rows for file in others) > most


def test_a_move_over_a_compaction_reads_what_the_epoch_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forth as back: what was compacted shows the same rows, and neither has to be read for that."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 3)
    monkeypatch.setattr(small_files, "GROWTH", 2)
    job = Upsert().begin(tmp_path)
    every = [job.publish(rows(*((key, f"{number}") for key in range(40 if number < 3 else 2)))) for number in range(12)]
    read: list[str] = []

    def note(operation: str, key: str) -> None:
        if operation == "get":
            read.append(key)

    files = TableFiles("table", HookedStore(Upsert().table_store(tmp_path), before=note))
    rewrote = 0
    for earlier, later in pairwise(every):
        before, after = job.sink.files(earlier.contents), job.sink.files(later.contents)
        rewrote += not {file.key for file in before} <= {file.key for file in after}
        read.clear()
        move = TableMove(1, "0" * 32, (), (), SCHEMA, before=before, after=after)
        lines, gone = written(row_changes(files, move, ("k",)))
        assert read == [after[-1].key] and len(lines) == after[-1].rows and gone == []
    assert rewrote >= 3, "buckets, and joined changes"
    latest, first = job.sink.files(every[-1].contents), job.sink.files(every[2].contents)
    back = row_changes(files, TableMove(1, "0" * 32, (), (), SCHEMA, before=latest, after=first), ("k",))
    assert written(back) == (["0\t2\n", "1\t2\n"], [])


def test_a_move_that_adds_files_reads_no_other(files: TableFiles) -> None:
    """What an epoch costs does not grow with the table."""
    move = move_of(files, [{1: "a"}], [{1: "a"}, {2: "b"}])
    assert move.before is not None
    lost = StagedFile(move.before[0].key.replace("t1/", "t9/"), 1, 1, "0" * 64)
    alone = TableMove(1, "0" * 32, (), (), SCHEMA, before=(lost,), after=(lost, move.after[1]))
    assert written(row_changes(files, alone, ("k",))) == (["2\tb\n"], [])


def test_an_abandoned_file_may_be_missing_and_a_needed_one_may_not(files: TableFiles) -> None:
    """A rollback repairs a damaged table: everything that it is to show is then compared."""
    move = move_of(files, [{1: "a"}, {2: "b"}], [{1: "a"}])
    assert move.before is not None
    lost = StagedFile(move.before[1].key.replace("t1/", "t9/"), 1, 1, "0" * 64)
    back = TableMove(1, "0" * 32, (), (), SCHEMA, before=(move.before[0], lost), after=move.after)
    changes = row_changes(files, back, ("k",))
    assert changes.whole and written(changes) == (["1\ta\n"], [])
    with wording.raises(StateCorrupt):
        row_changes(files, TableMove(1, "0" * 32, (), (), SCHEMA, before=move.before, after=(lost,)), ("k",))
