"""A commit to a Delta table is a compare-and-set on what the handle shows, and is known as ours afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

from milepost.errors import CommitConflict, InvalidRequest, StateCorrupt
from milepost.sinks.table_format import TableMove
from milepost.tables.records.reservation import TableOwner
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import OWNER, SCHEMA, DeltaTableUnderTest, rows, write_id


@pytest.fixture
def table(tmp_path: Path) -> DeltaTableUnderTest:
    under_test = DeltaTableUnderTest.in_folder(tmp_path / "a table, 50%")
    under_test.create()
    return under_test


def test_a_new_table_is_its_owners_and_shows_no_mark(table: DeltaTableUnderTest) -> None:
    """Rule: the owner is in the table from its first version on; numbers begin with the first move."""
    opened = table.open()
    assert (opened.owner, opened.number, opened.write_id, opened.foreign_commits()) == (OWNER, 0, None, ())
    assert opened.schema == SCHEMA and opened.live_files() == {}
    opened.check(SCHEMA)


def test_an_empty_location_has_no_table_and_one_with_other_files_is_refused(tmp_path: Path) -> None:
    """Rule: files that were staged do not make a table; what is no table of the format is named."""
    empty = DeltaTableUnderTest.in_folder(tmp_path / "empty")
    assert empty.format.open() is None
    empty.stage(rows(1))
    assert empty.format.open() is None
    empty.store.put("part-0.parquet", b"somebody's")
    with wording.raises(InvalidRequest):
        empty.format.open()


def test_what_another_made_meanwhile_is_left_alone(table: DeltaTableUnderTest) -> None:
    """Rule: making a table is atomic; whose it became is seen by opening it."""
    before = table.open()
    table.format.create(TableOwner("orders", "another", "totals"), SCHEMA)
    assert (table.open().owner, table.open().table_id) == (OWNER, before.table_id)


def test_of_six_who_make_a_table_one_does(tmp_path: Path) -> None:
    """Rule: a table has one owner, however many made it at the same time."""
    table = DeltaTableUnderTest.in_folder(tmp_path)
    owners = [TableOwner("orders", f"identity-{number}", "totals") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda owner: table.format.create(owner, SCHEMA), owners))
    assert table.open().owner in owners and table.others.version() == 0


def test_of_six_racers_one_wins(table: DeltaTableUnderTest) -> None:
    """Rule: a commit compares with the version of its handle (TABLES 1.5)."""
    won = table.race(6)
    assert won.count(True) == 1
    assert table.open().number == won.index(True) + 1 and table.keys() == [won.index(True)]


FOREIGN: dict[str, Callable[[DeltaTableUnderTest], object]] = {
    "append": lambda table: table.append_by_others(9),
    "optimize": lambda table: table.others.optimize.compact(),
    "delete": lambda table: table.others.delete("k = 1"),
    "restore": lambda table: table.others.restore(1),
    "properties": lambda table: table.others.alter.set_table_properties({"delta.checkpointInterval": "7"}),
    "ours": lambda table: table.move(3),
}


@pytest.mark.deep
@pytest.mark.parametrize("act", FOREIGN.values(), ids=FOREIGN)
def test_a_commit_on_an_outdated_handle_is_refused(
    table: DeltaTableUnderTest, act: Callable[[DeltaTableUnderTest], object]
) -> None:
    """Rule: a commit lands only if the table is still as its handle shows it, no matter who changed it."""
    table.move(1, [table.stage(rows(1))])
    table.move(2, [table.stage(rows(2))])
    outdated, late = table.open(), table.stage(rows(3))
    act(table)
    now = table.open()
    with pytest.raises(CommitConflict):
        table.move(3, [late], table=outdated)
    assert (table.open().live_files(), table.open().number) == (now.live_files(), now.number)


def test_an_empty_move_makes_a_version(table: DeltaTableUnderTest) -> None:
    """Rule: every move of the mark makes a version, or the next one would compare with nothing (TABLES 1.5)."""
    outdated = table.open()
    table.move(1)
    assert (table.others.version(), table.open().number, table.open().write_id) == (1, 1, write_id(1))
    with pytest.raises(CommitConflict):
        table.move(2, table=outdated)


def test_files_go_back_and_forth(table: DeltaTableUnderTest) -> None:
    """Rule: going back is a commit forward; a file that was taken out is put in again (TABLES 1.6)."""
    old, new = table.stage(rows(1)), table.stage(rows(1, 2))
    table.move(1, [old])
    for number in range(2, 8):
        there, other = (old, new) if number % 2 == 0 else (new, old)
        table.move(number, [other], [there])
        assert table.open().live_files() == {other.key: other.size}
    assert table.keys() == [1] and table.open().number == 7


def test_a_repeated_commit_is_refused_and_known_by_its_write_id(table: DeltaTableUnderTest) -> None:
    """Rule: an error of a commit is an unknown outcome; opened again, the table says whether it was ours."""
    file, first, again = table.stage(rows(1)), table.open(), table.open()
    table.move(1, [file], table=first)
    with wording.raises(CommitConflict):
        table.move(1, [file], table=again)
    assert (table.open().number, table.open().write_id) == (1, write_id(1)) and table.keys() == [1]


def test_a_table_that_was_dropped_and_made_anew_has_another_id(table: DeltaTableUnderTest, tmp_path: Path) -> None:
    """Rule: the table's own id is compared at every commit (TABLES 1.9); a handle on the old one commits nothing."""
    table.move(1, [table.stage(rows(1))])
    old = table.open()
    shutil.rmtree(tmp_path / "a table, 50%" / "_delta_log")
    new = table.create()
    assert new.table_id != old.table_id and (new.number, new.write_id) == (0, None)


def test_another_sink_of_the_job_and_another_life_of_it_are_other_owners(table: DeltaTableUnderTest) -> None:
    """Rule: the identity is the job's, not its name; numbers of one owner say nothing of another's (TABLES 1.9)."""
    table.move(5, [table.stage(rows(1))])
    table.others.alter.set_table_properties({"milepost.identity": "another"}, raise_if_not_exists=False)
    taken = table.open()
    assert taken.owner == TableOwner("orders", "another", "totals") and (taken.number, taken.write_id) == (0, None)
    table.others.alter.set_table_properties({"milepost.identity": OWNER.identity}, raise_if_not_exists=False)
    assert (table.open().number, table.open().write_id) == (5, write_id(5))


def test_files_that_keep_their_rows_are_no_change_for_those_who_follow_changes(table: DeltaTableUnderTest) -> None:
    """Rule: a rewrite of our own files is flagged as no change of data, next to rows that are new (TABLES 1.14)."""
    one, two, both, new = (table.stage(rows(*keys)) for keys in ((1,), (2,), (1, 2), (3,)))
    table.move(1, [one, two])
    opened = table.open()
    same = frozenset(file.key for file in (one, two, both))
    opened.commit(TableMove(2, write_id(2), (both, new), (one, two), SCHEMA, same))
    log = table.store.get("_delta_log/00000000000000000002.json").decode()
    changes = [action for line in log.splitlines() for action in json.loads(line).values() if "dataChange" in action]
    assert {unquote(action["path"]): action["dataChange"] for action in changes} == {
        one.key: False, two.key: False, both.key: False, new.key: True,
    }  # fmt: skip
    assert table.keys() == [1, 2, 3]


def test_a_log_whose_commit_and_transaction_differ_is_refused(table: DeltaTableUnderTest) -> None:
    """Rule: the number is what our last commit says and the table's transaction together."""
    table.move(1)
    key = "_delta_log/00000000000000000001.json"
    table.store.put(key, table.store.get(key).replace(b'"number":1', b'"number":2'))
    with wording.raises(StateCorrupt):
        table.open().foreign_commits()


def test_new_columns_come_by_a_commit_of_their_own_that_moves_nothing(table: DeltaTableUnderTest) -> None:
    """Rule: the schema is widened before the data; going back keeps it (TABLES 1.11)."""
    old = table.stage(rows(1))
    table.move(1, [old])
    wider = pa.schema([*SCHEMA, ("at", pa.timestamp("us")), ("tags", pa.list_(pa.string()))])
    outdated = table.open()
    table.open().widen(wider)
    widened = table.open()
    assert (widened.schema, widened.number, widened.foreign_commits()) == (wider, 1, ())
    with pytest.raises(CommitConflict):
        outdated.widen(wider)
    table.move(2, [table.stage(rows(2, schema=wider))])
    table.open().check(wider)
    assert table.keys() == [1, 2]
