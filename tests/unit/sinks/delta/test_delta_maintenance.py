"""The log of a Delta table stays short, and what a table was is still known."""

from __future__ import annotations

from pathlib import Path

from milepost_testkit.formats.delta_table import DAY_MS, OWNER, DeltaTableUnderTest, rows


def log_of(table: DeltaTableUnderTest) -> list[str]:
    return [stat.key.rpartition("/")[2] for stat in table.store.list("_delta_log/")]


def test_within_the_retention_nothing_goes_but_readers_begin_at_a_checkpoint(tmp_path: Path) -> None:
    """Rule: engines can time travel as far as configured; a reader fetches at most ten commits one by one."""
    table = DeltaTableUnderTest.in_folder(tmp_path, retention_ms=DAY_MS)
    table.create()
    for number in range(1, 26):
        table.move(number)
        table.format.maintain(DAY_MS)
    names = log_of(table)
    assert [name for name in names if name.endswith(".json")] == [f"{version:020d}.json" for version in range(26)]
    checkpoints = [int(name.partition(".")[0]) for name in names if ".checkpoint." in name]
    assert checkpoints == [9, 19] and table.others.version() == 25


def test_a_log_that_others_set_to_less_is_not_cut_to_that(tmp_path: Path) -> None:
    """Rule: what goes belongs to nothing that is kept, whatever the table's property says meanwhile."""
    table = DeltaTableUnderTest.in_folder(tmp_path, retention_ms=DAY_MS)
    table.create()
    table.others.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for number in range(1, 12):
        table.move(number)
        table.format.maintain(DAY_MS)
    assert "00000000000000000000.json" in log_of(table)
    day = f"interval {DAY_MS // 1000} seconds"
    assert table.open().missing_properties(OWNER) == {"delta.logRetentionDuration": day}, "the next epoch puts it right"


def test_a_hint_of_the_newest_checkpoint_that_is_spoilt_costs_one_checkpoint(tmp_path: Path) -> None:
    """Rule: any writer may leave the hint out or spoil it; nothing depends on it."""
    table = DeltaTableUnderTest.in_folder(tmp_path)
    table.create()
    for number in range(1, 12):
        table.move(number)
    table.store.put("_delta_log/_last_checkpoint", b"[]")
    table.format.maintain(table.retention_ms)
    assert "00000000000000000011.checkpoint.parquet" in log_of(table)
    assert table.open().number == 11


def test_there_is_nothing_to_keep_short_where_there_is_no_table(tmp_path: Path) -> None:
    """Rule: maintenance of a table that does not exist does nothing."""
    DeltaTableUnderTest.in_folder(tmp_path / "none").format.maintain(0)
    assert not (tmp_path / "none" / "_delta_log").exists()


def test_files_that_the_table_no_longer_shows_outlive_a_vacuum(tmp_path: Path) -> None:
    """Rule: all data files are where vacuum does not look (TABLES 1.10)."""
    table = DeltaTableUnderTest.in_folder(tmp_path, retention_ms=0)
    table.create()
    old, new, never = (table.stage(rows(key)) for key in (1, 2, 3))
    table.move(1, [old])
    table.move(2, [new], [old])
    table.others.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.others.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    there = {stat.key for stat in table.store.list("_milepost/data/")}
    assert there == {old.key, new.key, never.key}
    table.move(3, [old], [new])
    assert table.keys() == [1]
