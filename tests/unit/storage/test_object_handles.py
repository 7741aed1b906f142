"""A read by handle returns the written bytes or raises StateCorrupt (I7)."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable, StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage import object_handles
from milepost.storage.object_handles import check_handle, handle_file, read_handle, stat_handle, write_content_addressed
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.stores.hooked_store import HookedStore, PiecesOnly


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path)))


def test_a_body_is_stored_under_its_hash_and_reads_back(store) -> None:
    handle = write_content_addressed(store, "inputs/", ".json", b"plan")
    assert handle.key == f"inputs/{hashlib.sha256(b'plan').hexdigest()}.json"
    assert write_content_addressed(store, "inputs/", ".json", b"plan") == handle
    assert read_handle(store, handle) == b"plan"
    stat_handle(store, handle)
    assert [stat.key for stat in store.list("")] == [handle.key]


def test_another_body_of_the_same_size_is_corrupt(store) -> None:
    handle = write_content_addressed(store, "chk/", "", b"metadata")
    store.put(handle.key, b"Metadata")
    with wording.raises(StateCorrupt):
        read_handle(store, handle)


@pytest.mark.parametrize("body", [b"", b"pla", b"planet"])
def test_another_size_is_corruption(store, body) -> None:
    handle = write_content_addressed(store, "inputs/", ".json", b"plan")
    store.put(handle.key, body)
    for read in (read_handle, stat_handle):
        with wording.raises(StateCorrupt) as refused:
            read(store, handle)
        assert str(len(body)) in str(refused.value)


def test_a_missing_object_is_corruption_not_absence(store) -> None:
    handle = replace(write_content_addressed(store, "inputs/", ".json", b"plan"), key="inputs/gone.json")
    for read in (read_handle, stat_handle):
        with wording.raises(StateCorrupt) as raised:
            read(store, handle)
        assert raised.value.details["key"] == "inputs/gone.json"


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read objects of more than 8 bytes in pieces of 3."""
    monkeypatch.setattr(object_handles, "IN_MEMORY_BYTES", 8)
    monkeypatch.setattr(object_handles, "_REQUEST_BYTES", 3)


def read_file(store: ObjectStore, handle: ObjectHandle) -> bytes:
    with handle_file(store, handle) as body:
        return body.read()


READERS = {"as a file": read_file, "to be checked": check_handle}


@pytest.mark.parametrize("body", [b"12345678", b"123456789", b"1234567890"])
@pytest.mark.usefixtures("in_pieces")
def test_a_file_of_an_object_has_its_bytes_whatever_its_size(store, body) -> None:
    handle = write_content_addressed(store, "a/", "", body)
    check_handle(store, handle)
    with handle_file(store, handle) as file:
        assert file.read() == body
        assert (file.seek(2), file.read(3)) == (2, body[2:5])


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("body", [b"1234567890A", b"12345678901x", b"12345678"])
@pytest.mark.usefixtures("in_pieces")
def test_a_large_object_is_compared_with_its_handle_piece_by_piece(store, read, body) -> None:
    handle = write_content_addressed(store, "a/", "", b"12345678901")
    store.put(handle.key, body)
    with wording.raises(StateCorrupt):
        read(store, handle)
    store.delete([handle.key])
    with wording.raises(StateCorrupt):
        read(store, handle)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.usefixtures("in_pieces")
def test_an_object_that_is_replaced_while_it_is_read_is_corrupt(store, read) -> None:
    handle = write_content_addressed(store, "a/", "", b"12345678901")

    def replaced(operation: str, key: str) -> None:
        if operation == "stat":
            store.put(key, b"10987654321")

    with wording.raises(StateCorrupt):
        read(HookedStore(store, after=replaced), handle)


@pytest.mark.usefixtures("in_pieces")
def test_a_large_object_is_never_requested_as_a_whole(store) -> None:
    handle = write_content_addressed(store, "a/", "", b"12345678901")

    pieces = PiecesOnly(store)
    check_handle(pieces, handle)
    assert read_file(pieces, handle) == b"12345678901"


@pytest.mark.usefixtures("in_pieces")
def test_a_full_disk_is_reported_with_a_hint(store, monkeypatch) -> None:
    """Of the last few bytes as well, which a buffer would hold back until the file is read or closed."""
    handle = write_content_addressed(store, "a/", "", b"12345678901")
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(Path("/dev/full").open, "w+b"))
    with wording.raises(EnvironmentUnusable) as raised:
        read_file(store, handle)
    assert "TMPDIR" in str(raised.value.hint)
