"""Tables shared by the tasks of a node: built once, mapped by all, and never mistaken for another."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.protocol.subtask.subtask_commands import Notification
from milepost.state.cache.cache import StateCache
from milepost.state.cache.mapped_tables import MappedTables

TABLE = pa.table({"k": [1, 2, 3], "v": ["a", "b", None]})


def made(log: Path, table: pa.Table = TABLE) -> pa.Table:
    with log.open("a") as file:
        file.write("made\n")
    return table


def mapped_rows(directory: str, log: Path) -> int:
    rows: int = MappedTables(directory, "named", 0).mapped("1f0d", 4, partial(made, log)).num_rows
    return rows


def entries(directory: Path) -> list[Path]:
    return sorted(directory.glob("lookup-*/*.arrow"))


@pytest.mark.long
def test_of_several_processes_one_makes_it(tmp_path: Path) -> None:
    log, directory = tmp_path / "log", str(tmp_path / "cache")
    with ProcessPoolExecutor(3) as pool:
        assert [*pool.map(partial(mapped_rows, directory), [log] * 6)] == [3] * 6
    assert log.read_text() == "made\n" and len(entries(tmp_path / "cache")) == 1


def test_another_identity_takes_its_place_and_another_operator_has_its_own(tmp_path: Path) -> None:
    tables, log = MappedTables(str(tmp_path), "named", 0), tmp_path / "log"
    for identity in ("1f0d", "1f0d", "2e", "1f0d"):
        assert tables.mapped(identity, 4, partial(made, log)).equals(TABLE)
    assert log.read_text().count("made") == 3 and len(entries(tmp_path)) == 1
    MappedTables(str(tmp_path), "other", 0).mapped("1f0d", 4, partial(made, log))
    assert len(entries(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"ARROW1", None], ids=["empty", "torn", "altered"])
def test_a_file_that_does_not_match_its_name_is_rebuilt(damage: bytes | None, tmp_path: Path) -> None:
    tables, log = MappedTables(str(tmp_path), "named", 0), tmp_path / "log"
    tables.mapped("1f0d", 4, partial(made, log))
    (entry,) = entries(tmp_path)
    body = entry.read_bytes()
    entry.write_bytes(body[:200] + bytes([body[200] ^ 1]) + body[201:] if damage is None else damage)
    assert tables.mapped("1f0d", 4, partial(made, log)).equals(TABLE)
    assert log.read_text().count("made") == 2 and entries(tmp_path)[0].read_bytes() == body


def test_a_folder_that_is_not_private_or_not_writable_means_building_the_table_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    for directory in ("open", "file"):
        for _ in range(2):
            tables = MappedTables(str(tmp_path / directory), "named", 0)
            assert tables.mapped("1f0d", 4, partial(made, log)).equals(TABLE)
    assert log.read_text().count("made") == 4 and "cannot be cached" in caplog.text and not entries(tmp_path / "open")


def test_it_goes_with_the_checkpoint_that_used_it_last(tmp_path: Path) -> None:
    """As what the state cache has; the state cache tidies both."""
    cache, log = StateCache(tmp_path / "cache"), tmp_path / "log"
    for base in (0, 4, 9):
        MappedTables(str(tmp_path / "cache"), "named", base).mapped("1f0d", 4, partial(made, log))
    cache.notify("sums", range(4), 8, Notification.SUBSUMED)
    assert len(entries(tmp_path / "cache")) == 1
    cache.notify("sums", range(4), 9, Notification.COMPLETE)
    cache.notify("sums", range(4), 4, Notification.ABORTED)
    assert len(entries(tmp_path / "cache")) == 1
    cache.notify("sums", range(4), 10, Notification.SUBSUMED)
    assert not entries(tmp_path / "cache") and log.read_text() == "made\n"
