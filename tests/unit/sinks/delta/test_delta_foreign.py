"""Foreign commits to a Delta table since our newest move are reported, whatever they did, and change no mark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import StateCorrupt
from milepost.sinks.formats.delta.delta_log import read_log_tail
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import OWNER, DeltaTableUnderTest, rows, write_id


@pytest.fixture
def table(tmp_path: Path) -> DeltaTableUnderTest:
    under_test = DeltaTableUnderTest.in_folder(tmp_path / "table")
    under_test.create()
    return under_test


def test_an_append_is_reported_with_its_files_and_stays_when_ours_are_deleted(table: DeltaTableUnderTest) -> None:
    """Rule: rows that others appended stay, also when going back (TABLES 1.7)."""
    ours = table.stage(rows(1))
    table.move(1, [ours])
    table.append_by_others(7, 8)
    opened = table.open()
    (append,) = opened.foreign_commits()
    assert (append.version, append.operation, append.removed, append.keeps_rows) == (2, "WRITE", frozenset(), False)
    (theirs,) = append.added
    assert theirs.rows == 2 and opened.live_files() == {ours.key: ours.size, theirs.key: theirs.size}
    table.move(2, [], [ours])
    assert table.keys() == [7, 8] and table.open().foreign_commits() == ()


def test_a_compaction_of_ours_keeps_the_rows_and_goes_back(table: DeltaTableUnderTest) -> None:
    """Rule: of a rewrite whose inputs were all ours, outputs are removed and inputs added again (TABLES 1.7)."""
    one, two = table.stage(rows(1)), table.stage(rows(2))
    table.move(1, [one, two])
    table.others.optimize.compact()
    (rewrite,) = table.open().foreign_commits()
    assert rewrite.operation == "OPTIMIZE" and rewrite.keeps_rows
    assert rewrite.removed == {one.key, two.key} and [file.rows for file in rewrite.added] == [2]
    table.move(2, [one], rewrite.added)
    assert table.keys() == [1] and table.open().live_files() == {one.key: one.size}


def test_a_delete_of_our_rows_is_reported_as_a_change(table: DeltaTableUnderTest) -> None:
    """Rule: a foreign DELETE of our rows is found, and by which files (TABLES 1.7)."""
    ours = table.stage(rows(1, 2))
    table.move(1, [ours])
    table.others.delete("k = 1")
    (delete,) = table.open().foreign_commits()
    assert (delete.operation, delete.removed, delete.keeps_rows) == ("DELETE", {ours.key}, False)


def test_a_restore_takes_files_back_and_no_mark(table: DeltaTableUnderTest) -> None:
    """Rule: RESTORE does not move the transaction: number and write id are of our newest move, whatever was done."""
    old, new = table.stage(rows(1)), table.stage(rows(2))
    table.move(1, [old])
    table.move(2, [new], [old])
    table.others.restore(1)
    opened = table.open()
    assert (opened.number, opened.write_id) == (2, write_id(2))
    (restore,) = opened.foreign_commits()
    assert (restore.operation, restore.removed, restore.keeps_rows) == ("RESTORE", {new.key}, False)
    assert [file.key for file in restore.added] == [old.key] == [*opened.live_files()]
    table.move(3, [new], [old])
    assert table.keys() == [2]


def test_foreign_commits_are_reported_oldest_first_without_ours_that_move_nothing(
    table: DeltaTableUnderTest,
) -> None:
    """Rule: all commits since our newest move, however many, and none of our own."""
    table.move(1, [table.stage(rows(1))])
    for key in range(10, 17):
        table.append_by_others(key)
    wider = rows(1).append_column("more", [[1]]).schema
    table.open().widen(wider)
    table.others.alter.set_table_properties({"delta.checkpointInterval": "7"})
    foreign = table.open().foreign_commits()
    assert [commit.version for commit in foreign] == [*range(2, 9), 10]
    assert [commit.operation for commit in foreign] == ["WRITE"] * 7 + ["SET TBLPROPERTIES"]
    assert foreign[-1].keeps_rows and table.open().write_id == write_id(1)


def test_names_of_files_are_reported_as_they_are_not_as_the_log_encodes_them(table: DeltaTableUnderTest) -> None:
    """Rule: keys are relative to the table's root, and equal to those that were staged."""
    staged = table.stage(rows(1))
    body = table.store.get(staged.key)
    odd = [f"_milepost/data/chk 1/100%/ü+#=&{number}.parquet" for number in range(2)]
    files = [replace(staged, key=key) for key in odd]
    for key in odd:
        table.store.put(key, body)
    table.move(1, files)
    assert table.open().live_files() == dict.fromkeys(odd, staged.size) and table.keys() == [1, 1]
    table.move(2, [], files[:1])
    assert [*table.open().live_files()] == odd[1:]
    table.others.optimize.compact()
    table.others.delete()
    assert table.open().foreign_commits()[0].removed == {odd[1]}


def test_a_log_that_has_lost_our_commit_still_has_the_mark(tmp_path: Path) -> None:
    """Rule: a mark is known for as long as the table is; what others did, for as long as the log is."""
    table = DeltaTableUnderTest.in_folder(tmp_path / "table", retention_ms=0)
    table.create()
    table.move(1, [table.stage(rows(1))])
    for key in range(3):
        table.append_by_others(key)
    table.others.create_checkpoint()
    table.others.cleanup_metadata()
    table.append_by_others(9)
    opened = table.open()
    assert (opened.number, opened.write_id) == (1, write_id(1))
    lost, *known = opened.foreign_commits()
    assert (lost.version, lost.removed, lost.added, lost.keeps_rows) == (3, frozenset(), (), False)
    wording.matches("problems", lost.operation)
    assert [commit.version for commit in known] == [4, 5]
    table.move(2)
    assert (table.open().number, table.open().write_id) == (2, write_id(2))


def test_an_object_of_the_log_that_is_no_commit_is_named(table: DeltaTableUnderTest) -> None:
    """Rule: what cannot be read is StateCorrupt, never taken for a commit of others."""
    table.move(1)
    table.store.put("_delta_log/00000000000000000001.json", b'{"commitInfo":{}}\n[1]\n')
    with wording.raises(StateCorrupt):
        read_log_tail(table.store, 1, OWNER)
