"""The object cache holds object versions up to a byte limit. Another version is another object."""

from __future__ import annotations

import pytest

from milepost.errors import StoreUnavailable
from milepost.storage.object_cache import ObjectCache
from milepost_testkit.stores.memory_store import MemoryStore

HERE, ELSEWHERE = MemoryStore("s3://here"), MemoryStore("s3://elsewhere")


def test_the_same_version_of_an_object_is_read_once_and_another_one_or_anothers_is_read() -> None:
    kept, reads = ObjectCache(10_000), list[str]()

    def read(store: MemoryStore, what: str, key: str, version: str) -> str:
        def made() -> str:
            reads.append(f"{store.config.url} {what} {key} {version}")
            return reads[-1]

        return kept.read(store, (what, key, version), 1, made)

    for again in range(2):
        told = [read(HERE, "event", "a", "1"), read(HERE, "event", "a", "2"), read(HERE, "event", "b", "1")]
        told += [read(HERE, "times", "a", "1"), read(ELSEWHERE, "event", "a", "1")]
        assert told == reads and len(set(reads)) == 5, again
    assert kept.has(HERE, ("event", "a", "1")) and not kept.has(ELSEWHERE, ("event", "b", "1"))


def test_the_least_recently_used_object_is_evicted() -> None:
    kept, reads = ObjectCache(2_000), list[str]()

    def read(key: str) -> None:
        kept.read(HERE, ("event", key, "1"), 400, lambda: reads.append(key))

    for key in ("a", "b", "a", "c", "a", "b"):
        read(key)
    assert reads == ["a", "b", "c", "b"], "two of 912 bytes have room; a was asked for between"


def test_the_minimum_number_of_objects_stays_cached_whatever_their_size() -> None:
    kept = ObjectCache(2_000, min_entries=1)
    for key in ("a", "b", "b"):
        kept.read(HERE, ("metadata", key, "1"), 5_000, str)
    assert not kept.has(HERE, ("metadata", "a", "1"))
    assert kept.has(HERE, ("metadata", "b", "1"))


def test_a_dropped_object_frees_its_share_of_the_cache() -> None:
    kept = ObjectCache(2_000, min_entries=1)
    for key in ("large", "a", "b"):
        kept.read(HERE, ("metadata", key, "1"), 5_000 if key == "large" else 400, str)
    assert [kept.has(HERE, ("metadata", key, "1")) for key in ("large", "a", "b")] == [False, True, True]


def test_a_failed_read_is_not_cached() -> None:
    kept = ObjectCache(2_000)

    def refuse() -> str:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        kept.read(HERE, ("event", "a", "1"), 1, refuse)
    assert kept.read(HERE, ("event", "a", "1"), 1, lambda: "there") == "there"
