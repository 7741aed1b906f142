"""What is read by handle is what was written, or StateCorrupt (I7)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.checked import read_handle, stat_handle, write_content_addressed
from milepost.storage.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path)))


def test_a_body_lies_under_its_hash_and_comes_back(store) -> None:
    handle = write_content_addressed(store, "inputs/", ".json", b"plan")
    assert handle.key == f"inputs/{hashlib.sha256(b'plan').hexdigest()}.json"
    assert write_content_addressed(store, "inputs/", ".json", b"plan") == handle
    assert read_handle(store, handle) == b"plan"
    stat_handle(store, handle)
    assert [stat.key for stat in store.list("")] == [handle.key]


def test_another_body_of_the_same_size_is_corrupt(store) -> None:
    handle = write_content_addressed(store, "chk/", "", b"metadata")
    store.put(handle.key, b"Metadata")
    with pytest.raises(StateCorrupt, match="expected SHA-256"):
        read_handle(store, handle)


@pytest.mark.parametrize("body", [b"", b"pla", b"planet"])
def test_another_size_is_corruption(store, body) -> None:
    handle = write_content_addressed(store, "inputs/", ".json", b"plan")
    store.put(handle.key, body)
    for read in (read_handle, stat_handle):
        with pytest.raises(StateCorrupt, match=f"expected 4 bytes, got {len(body)}"):
            read(store, handle)


def test_a_missing_object_is_corruption_not_absence(store) -> None:
    handle = replace(write_content_addressed(store, "inputs/", ".json", b"plan"), key="inputs/gone.json")
    for read in (read_handle, stat_handle):
        with pytest.raises(StateCorrupt, match="the object is missing") as raised:
            read(store, handle)
        assert raised.value.details["key"] == "inputs/gone.json"
