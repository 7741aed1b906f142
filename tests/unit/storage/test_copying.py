"""Copies match their handles, overwrite nothing, and stay within the memory budget."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage import copying, object_handles
from milepost.storage.copying import MAX_OBJECT_BYTES, Copy, copy_objects, create_same
from milepost.storage.open import open_store
from milepost.storage.views.prefixed_store import PrefixedStore
from milepost_testkit import wording
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.hooked_store import HookedStore, PiecesOnly


def opened(folder: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(folder)))


@pytest.fixture
def source(tmp_path: Path) -> ObjectStore:
    return opened(tmp_path / "from")


@pytest.fixture
def target(tmp_path: Path) -> ObjectStore:
    return opened(tmp_path / "to")


def put(store: ObjectStore, key: str, body: bytes) -> ObjectHandle:
    store.put(key, body)
    return ObjectHandle(key, len(body), hashlib.sha256(body).hexdigest())


def test_every_object_is_copied_and_reported(source, target) -> None:
    bodies = {f"a/{number}": bytes([number]) * number for number in range(40)}
    told: list[int] = []
    copies = [Copy(source, put(source, key, body), target, f"b/{key}") for key, body in bodies.items()]
    assert copy_objects(copies, told.append) == sum(map(len, bodies.values())) == sum(told)
    assert {stat.key: target.get(stat.key) for stat in target.list("")} == {
        f"b/{key}": body for key, body in bodies.items()
    }


@pytest.mark.parametrize("body", [b"other", b"longer body"])
def test_an_object_that_is_not_what_its_handle_says_is_not_copied(source, target, body) -> None:
    handle = put(source, "a", b"right")
    source.put("a", body)
    with pytest.raises(StateCorrupt):
        copy_objects([Copy(source, handle, target, "a")])
    assert not list(target.list(""))


def test_a_size_is_not_believed_before_the_store_has_confirmed_it(source, target) -> None:
    """A hostile size neither makes us wait for memory nor read: the object itself has another one."""
    put(source, "a", b"small")
    for size in (MAX_OBJECT_BYTES + 1, MAX_OBJECT_BYTES):
        with pytest.raises(StateCorrupt):
            copy_objects([Copy(source, ObjectHandle("a", size, "0" * 64), target, "a")])
    assert not list(target.list(""))


def test_an_existing_target_object_is_not_overwritten(source, target) -> None:
    handle = put(source, "a", b"mine")
    target.put("a", b"theirs")
    with pytest.raises(CommitConflict):
        copy_objects([Copy(source, handle, target, "a")])
    assert target.get("a") == b"theirs"


def test_a_lost_reply_of_our_own_write_is_no_conflict(source, target) -> None:
    handle = put(source, "a", b"mine")
    faulty = FaultyStore(target, [Fault(at("create", "a"), Effect.LOST_REPLY)])
    copy_objects([Copy(source, handle, faulty, "a")])
    assert target.get("a") == b"mine"


def test_a_lost_request_stays_unknown(target) -> None:
    faulty = FaultyStore(target, [Fault(at("create", "a"), Effect.LOST_REQUEST)])
    with pytest.raises(CommitOutcomeUnknown):
        create_same(faulty, "a", b"mine")


def test_the_first_failure_ends_the_rest(source, target) -> None:
    copies = [Copy(source, put(source, f"a/{number}", b"x"), target, f"{number}") for number in range(500)]
    faulty = FaultyStore(source, [Fault(at("get", ""), Effect.UNAVAILABLE, times=1000)])
    with pytest.raises(StoreUnavailable):
        copy_objects([Copy(faulty, one.handle, one.target, one.key) for one in copies])
    assert not list(target.list(""))


def test_bodies_in_memory_stay_within_the_budget(source, target, monkeypatch) -> None:
    monkeypatch.setattr(copying, "BUDGET_BYTES", 25)
    held: list[int] = [0]
    most: list[int] = [0]
    lock = threading.Lock()

    def reading(operation: str, key: str) -> None:
        if operation == "get":
            with lock:
                held[0] += 10
                most[0] = max(most[0], held[0])

    def written(operation: str, key: str) -> None:
        if operation == "create":
            with lock:
                held[0] -= 10

    handles = [put(source, f"{number}", b"0123456789") for number in range(60)]
    read, write = HookedStore(source, reading), HookedStore(target, after=written)
    copy_objects([Copy(read, handle, write, handle.key) for handle in handles])
    assert most[0] <= 20


def test_a_larger_object_than_the_budget_is_held_alone(source, target, monkeypatch) -> None:
    monkeypatch.setattr(copying, "BUDGET_BYTES", 4)
    copies = [Copy(source, put(source, f"{n}", b"0123456789"), target, f"{n}") for n in range(9)]
    assert copy_objects(copies) == 90


def test_a_large_object_is_copied_by_way_of_the_disk_and_compared_before_it_is_written(
    source, target, monkeypatch
) -> None:
    """It holds one piece at a time, on either side: it is never read or written as one body of bytes."""
    for module in (object_handles, copying):
        monkeypatch.setattr(module, "IN_MEMORY_BYTES", 8)
    monkeypatch.setattr(object_handles, "_REQUEST_BYTES", 3)
    good, bad = put(source, "good", b"0123456789"), put(source, "bad", b"0123456789")
    hooked = PiecesOnly(source)
    assert copy_objects([Copy(hooked, good, target, "good")]) == 10
    assert target.get("good") == b"0123456789"
    copy_objects([Copy(hooked, good, target, "good")])  # its reply was lost, say
    source.put("bad", b"9876543210")
    with wording.raises(StateCorrupt):
        copy_objects([Copy(hooked, bad, target, "bad")])
    target.put("good", b"9876543210")
    with pytest.raises(CommitConflict):
        copy_objects([Copy(hooked, good, target, "good")])
    assert [stat.key for stat in target.list("")] == ["good"]


def test_a_store_below_a_prefix_shows_nothing_else(tmp_path) -> None:
    whole = opened(tmp_path)
    below = PrefixedStore(whole, "savepoints/one/")
    whole.put("savepoints/two/x", b"other")
    below.create("a/b", b"1")
    below.put("c", b"2")
    assert [stat.key for stat in below.list("")] == ["a/b", "c"]
    assert [stat.key for stat in below.list("", start_after="a/b")] == ["c"]
    assert [stat.key for stat in below.list("a", limit=1)] == ["a/b"]
    assert below.stat("c").key == "c"
    assert whole.get("savepoints/one/c") == below.get("c") == below.get_if_match("c", below.stat("c").etag) == b"2"
    below.delete(["c"])
    assert [stat.key for stat in whole.list("")] == ["savepoints/one/a/b", "savepoints/two/x"]
    assert below.config.url == file_url(tmp_path / "savepoints" / "one")
    assert abs(below.clock_ms() - whole.clock_ms()) < 60_000


@pytest.mark.parametrize("key", ["../two/x", "/savepoints/two/x", "a//b", "."])
def test_no_key_of_a_store_below_a_prefix_leads_out_of_it(tmp_path, key) -> None:
    whole = opened(tmp_path)
    whole.put("savepoints/two/x", b"other")
    with pytest.raises(InvalidRequest):
        PrefixedStore(whole, "savepoints/one/").get(key)
