"""Lists of a table's garbage: the stored format, what is refused, and how long a list is there (I8)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import StateCorrupt
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.tables.records.table_garbage import (
    TableGarbage,
    TableGarbageList,
    TableGarbageLists,
    list_from_bytes,
    list_to_bytes,
)
from milepost_testkit import wording

GOLDEN = Path(__file__).parent / "golden" / "garbage_list.json"
FILES = tuple(f"_milepost/data/chk-{number:020d}/t{number + 3}/0-{str(number) * 64}.parquet" for number in (1, 2))
LISTED = TableGarbageList(12, 1_790_000_000_000, FILES)


def test_a_list_is_read_and_written_as_it_was() -> None:
    body = GOLDEN.read_bytes().strip()
    assert list_from_bytes(LISTED.key, body) == LISTED
    assert list_to_bytes(LISTED) == body
    assert LISTED.key == f"_milepost/garbage/{12:020d}-{hashlib.sha256(body).hexdigest()}.json"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "milepost.table-garbage/3"},
        {"since_ms": "now"},
        {"more": 1},
        {"files": ["../../other/table/x"]},
        {"files": ["_milepost/heads/00000000000000000001.json"]},
        {"files": [3]},
        {"files": [*reversed(FILES)]},
        {"manifest_version": 0},
        {"since_ms": 0},
    ],
)
def test_what_is_no_list_is_refused(change: dict[str, Any]) -> None:
    """DESIGN 9: no delete ever takes what staging cannot have named."""
    body = json.dumps({**json.loads(list_to_bytes(LISTED)), **change}, sort_keys=True, separators=(",", ":")).encode()
    with wording.raises(StateCorrupt):
        list_from_bytes(LISTED.key, body)
    with wording.raises(StateCorrupt):
        list_from_bytes(LISTED.key, body[:-1])


def test_a_list_is_read_until_its_files_are_deleted(tmp_path: Path) -> None:
    store = open_store(StoreConfig(file_url(tmp_path)))
    garbage = TableGarbage(store)
    assert garbage.lists() == TableGarbageLists((), ())
    later = TableGarbageList(13, LISTED.since_ms, FILES[:1])
    for one in (later, LISTED):
        garbage.add(one)
    for file in FILES:
        store.put(file, b"rows")
    assert garbage.lists() == TableGarbageLists((LISTED, later), ())
    assert garbage.read([LISTED.key, f"_milepost/garbage/{1:020d}-{'0' * 64}.json"]).lists == (LISTED,), (
        "one is gone meanwhile"
    )
    garbage.delete(LISTED, FILES[1:])
    assert garbage.lists() == TableGarbageLists((later,), ())
    store.put(LISTED.key, list_to_bytes(LISTED)[:-1])
    (unreadable,) = garbage.lists().unreadable
    assert garbage.lists().lists == (later,), "one stops no other"
    assert unreadable.startswith(f"{LISTED.key}: expected JSON")
    assert [stat.key for stat in store.list("_milepost/data/")] == [FILES[0]]
