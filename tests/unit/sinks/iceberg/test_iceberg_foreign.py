"""Foreign commits to a table in Iceberg are reported, and our moves never undo them (contract 4, 7, 11)."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table.snapshots import Operation

from milepost.errors import CommitConflict, InvalidRequest
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import SCHEMA, IcebergLake, move
from milepost_testkit.formats.iceberg_writers import compact, delete_rows


def _rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": [f"foreign{key}" for key in keys]}, SCHEMA)


def test_foreign_rows_stay_and_are_reported(any_lake: IcebergLake) -> None:
    """Contract 7: foreign rows stay, also when going back; no conflict once they were seen."""
    ours, more = any_lake.made().staged(1), any_lake.staged(2)
    any_lake.move(1, (ours,))
    any_lake.foreign_table().append(_rows(10, 11))

    seen = any_lake.opened()
    (foreign,) = seen.foreign_commits()
    seen.commit(move(2, (more,), (ours,)))

    assert (foreign.operation, foreign.removed, foreign.keeps_rows) == ("append", frozenset(), False)
    assert [(file.rows, file.key in seen.live_files()) for file in foreign.added] == [(2, True)]
    assert (seen.number, any_lake.keys()) == (1, [2, 10, 11])
    assert any_lake.opened().foreign_commits() == ()


def test_a_foreign_commit_between_look_and_commit_is_a_conflict(lake: IcebergLake) -> None:
    """Contract 5: a commit lands on exactly what its handle showed."""
    handle, file = lake.made().opened(), lake.staged(1)
    lake.foreign_table().append(_rows(10))

    with wording.raises(CommitConflict):
        handle.commit(move(1, (file,)))

    assert lake.keys() == [10]


def test_foreign_deletes_of_our_rows_are_reported_by_file(lake: IcebergLake) -> None:
    """Contract 7: a foreign DELETE of our rows shows which of our files are gone, and what replaced them."""
    whole, part = lake.made().staged(1), lake.staged(2, 3)
    lake.move(4, (whole, part))
    lake.foreign_table().delete("k = 1")
    lake.foreign_table().delete("k = 3")

    table = lake.opened()
    deleted, rewritten = table.foreign_commits()

    assert table.number == 4
    assert (deleted.operation, deleted.removed, deleted.added) == ("delete", {whole.key}, ())
    assert (rewritten.operation, rewritten.removed) == ("overwrite", {part.key})
    assert [file.rows for file in rewritten.added] == [1]
    assert not deleted.keeps_rows and not rewritten.keeps_rows


def test_foreign_deletes_of_our_rows_outside_the_files_stop_every_move_until_undone(
    lake: IcebergLake,
) -> None:
    """Contract 7: a file of deletes changes no data file, so a rollback would show fewer rows than its checkpoint."""
    ours, more = lake.made().staged(1), lake.staged(2)
    lake.move(1, (ours,))
    lake.move(2, (more,))
    before = lake.foreign_table().current_snapshot()
    assert before is not None
    delete_rows(lake.foreign_table())
    handle = lake.opened()
    with wording.raises(InvalidRequest) as refused:
        handle.commit(move(3, (), (more,)))
    assert "rollback_to_snapshot" in refused.value.hint
    assert "delete files" in str(handle.rows_fault(()))

    with lake.foreign_table().manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(before.snapshot_id)

    lake.move(3, (), (more,))
    assert lake.keys() == [1] and lake.opened().rows_fault(()) is None


def test_a_foreign_compaction_is_reported_as_one(lake: IcebergLake) -> None:
    """Contract 7: a rewrite without change of data is recorded as such."""
    files = tuple(lake.made().staged(key) for key in (1, 2))
    lake.move(1, files)
    compact(lake.foreign_table())

    (compaction,) = lake.opened().foreign_commits()

    assert (compaction.operation, compaction.keeps_rows) == ("replace", True)
    assert compaction.removed == {file.key for file in files}
    assert [file.rows for file in compaction.added] == [2]


def test_our_own_compaction_says_that_rows_are_kept(lake: IcebergLake) -> None:
    """Contract 14: engines that follow changes of the table see none."""
    files = tuple(lake.made().staged(key) for key in (1, 2))
    lake.move(1, files)
    both = lake.staged(1, 2)
    lake.move(2, (both,), files, same_rows=frozenset(file.key for file in (both, *files)))

    snapshot = lake.foreign_table().current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert (snapshot.summary["total-records"], snapshot.summary["total-data-files"]) == ("2", "1")
    assert lake.keys() == [1, 2]


def test_files_that_keep_their_rows_are_a_snapshot_of_their_own_right_before_that_of_new_rows(
    lake: IcebergLake,
) -> None:
    """Readers of appended rows pass over what replaces files, and fail at an overwrite; no state between is shown."""
    files = tuple(lake.made().staged(key) for key in (1, 2))
    first = lake.move(1, files).version
    both = lake.staged(1, 2)
    opened = lake.move(2, (both, lake.staged(3)), files, same_rows=frozenset(file.key for file in (both, *files)))
    table = lake.foreign_table()
    said = [
        (snapshot.summary.operation, snapshot.summary["total-records"], snapshot.summary["total-data-files"])
        for snapshot in table.snapshots()
        if snapshot.summary is not None
    ]
    assert said == [(Operation.APPEND, "2", "2"), (Operation.REPLACE, "2", "1"), (Operation.APPEND, "3", "2")]
    assert [entry.snapshot_id for entry in table.history()] == [
        table.snapshots()[0].snapshot_id, table.snapshots()[2].snapshot_id,
    ]  # fmt: skip
    assert opened.version != first and (opened.number, opened.foreign_commits()) == (2, ())
    assert lake.keys() == [1, 2, 3]


def test_a_table_that_a_hand_rolled_back_shows_the_move_it_went_back_to(lake: IcebergLake) -> None:
    """Contract 4: the number counts only while its snapshot is in the history of `main`."""
    lake.made().move(1, (lake.staged(1),), write_id="first")
    before = lake.foreign_table().current_snapshot()
    assert before is not None
    lake.move(2, (lake.staged(2),), write_id="second")

    with lake.foreign_table().manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(before.snapshot_id)

    back = lake.opened()
    assert (back.number, back.write_id, len(back.live_files()), back.foreign_commits()) == (1, "first", 1, ())


def test_our_move_is_still_known_when_others_expire_all_they_may(lake: IcebergLake) -> None:
    """Contract 4: no engine expires a snapshot that has a tag, and later commits are reported as one change."""
    ours = lake.made().staged(1)
    lake.move(7, (ours,), write_id="ours")
    for key in (10, 11, 12):
        lake.foreign_table().append(_rows(key))
    lake.foreign_table().delete("k = 1")
    table = lake.foreign_table()
    needed = {ref.snapshot_id for ref in table.metadata.refs.values()}
    unneeded = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in needed]
    table.maintenance.expire_snapshots().by_ids(unneeded).commit()

    after = lake.opened()

    assert len(unneeded) == 3 and len(lake.foreign_table().metadata.snapshots) == 2
    assert (after.number, after.write_id) == (7, "ours")
    (change,) = after.foreign_commits()
    assert (change.removed, sum(file.rows for file in change.added)) == ({ours.key}, 3)
    assert "expired" in change.operation and not change.keeps_rows


def test_columns_are_added_and_files_of_both_widths_are_read(any_lake: IcebergLake) -> None:
    """Contract 11: new nullable columns come in a commit of their own, which carries no number."""
    any_lake.made().move(1, (any_lake.staged(1),))
    wider = pa.schema([*SCHEMA, ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.struct([("x", pa.int32())])))])
    any_lake.opened().widen(wider)

    table = any_lake.opened()
    table.check(wider)
    rows = pa.table({"tags": [[{"x": 5}]], "at": [0], "v": ["b"], "k": [2]}).cast(
        pa.schema([wider.field(name) for name in ("tags", "at", "v", "k")])
    )
    table.commit(move(2, (any_lake.stage(rows),)))

    assert (table.schema, table.number, table.foreign_commits()) == (wider, 1, ())
    found = sorted(any_lake.foreign_table().scan().to_arrow().to_pylist(), key=lambda row: row["k"])
    assert [(row["k"], row["tags"], row["at"] is None) for row in found] == [(1, None, True), (2, [{"x": 5}], False)]
