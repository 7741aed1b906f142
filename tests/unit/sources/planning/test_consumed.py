"""The consumed set as runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sources.contract import SourceObject
from milepost.sources.planning.consumed import MAX_RUNS, append, load
from milepost.storage.open import open_store
from milepost_testkit import wording


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(f"file://{tmp_path}"))


def obj(name: str) -> SourceObject:
    return SourceObject(name, f"etag-{name}", 7, 1_000)


def prefix(epoch: int) -> str:
    return f"chk-{epoch:020}/t{epoch:020}/consumed/"


def test_every_epoch_adds_one_small_run_and_the_ninth_makes_a_base(store: ObjectStore) -> None:
    handles: tuple[ObjectHandle, ...] = ()
    for epoch in range(1, MAX_RUNS + 1):
        before, handles = handles, append(store, prefix(epoch), handles, [obj(f"{epoch}.csv")], epoch)[0]
        assert handles[:-1] == before
        assert handles[-1].key.startswith(prefix(epoch))
    assert len(handles) == MAX_RUNS
    handles = append(store, prefix(9), handles, [obj("9.csv")], 9)[0]
    assert len(handles) == 1
    rows = load(store, handles).table.to_pylist()
    assert [(row["key"], row["checkpoint_id"]) for row in rows] == [(f"{n}.csv", n) for n in range(1, 10)]
    assert rows[0] == {"key": "1.csv", "etag": "etag-1.csv", "size": 7, "last_modified_ms": 1_000, "checkpoint_id": 1}


def test_an_epoch_without_objects_writes_nothing(store: ObjectStore) -> None:
    handles = append(store, prefix(1), (), [obj("a")], 1)[0]
    assert append(store, prefix(2), handles, [], 2)[0] == handles
    assert [stat.key for stat in store.list("")] == [handles[0].key]


def test_a_repeated_attempt_writes_the_same_object(store: ObjectStore) -> None:
    first = append(store, prefix(1), (), [obj("a"), obj("b")], 1)[0]
    body = store.get(first[0].key)
    assert append(store, prefix(1), (), [obj("a"), obj("b")], 1)[0] == first
    assert store.get(first[0].key) == body


@pytest.mark.parametrize("fault", ["missing", "cut", "flipped", "not a run"])
def test_a_run_that_does_not_match_its_handle_is_corrupt(store: ObjectStore, fault: str) -> None:
    """I7, exit 7: nothing is planned from a consumed set that is not whole."""
    (handle,) = append(store, prefix(1), (), [obj("a")], 1)[0]
    body = store.get(handle.key)
    if fault == "missing":
        store.delete([handle.key])
    elif fault == "cut":
        store.put(handle.key, body[:-1])
    elif fault == "flipped":
        store.put(handle.key, body[:-9] + bytes([body[-9] ^ 1]) + body[-8:])
    else:
        (other,) = append(store, prefix(2), (), [obj("b")], 1)[0]
        store.put(other.key, b"hello")
        handle = replace(other, size=5, sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    with wording.raises(StateCorrupt):
        load(store, [handle])
