"""Lookups of a local store's newest version: the cost of a head does not grow with the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.records.layout import MANIFEST_PREFIX, manifest_key, manifest_version
from milepost.protocol.records.object_store import ObjectStat, ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost.storage.version_search import latest_version
from milepost_testkit import profiles
from milepost_testkit.stores.called_store import CalledStore


class Told(CalledStore):
    """A store that tells which of its operations were called."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner, self.calls = inner, list[str]()

    def _call(self, operation: str, key: str, run: Callable[[], object]) -> object:
        self.calls.append(operation)
        return run()


def newest(store: ObjectStore) -> int | None:
    found = latest_version(store, MANIFEST_PREFIX, manifest_key, manifest_version)
    assert found is None or isinstance(found, ObjectStat)
    return None if found is None else manifest_version(found.key)


def local(folder: Path) -> Told:
    return Told(open_store(StoreConfig(folder.as_uri())))


def test_only_the_first_lookup_lists_and_later_ones_cost_only_the_new_versions(tmp_path: Path) -> None:
    store = local(tmp_path)
    assert newest(store) is None
    for version in range(1, 60):
        store.inner.put(manifest_key(version), b"x")
    assert newest(store) == 59
    store.calls.clear()
    assert (newest(store), store.calls) == (59, ["stat", "stat"])
    for version in range(60, 63):
        store.inner.put(manifest_key(version), b"x")
    store.calls.clear()
    assert (newest(store), store.calls) == (62, ["stat"] * 5)
    store.calls.clear()
    assert (newest(local(tmp_path)), store.calls) == (62, []), "another store knows nothing of it"


@profiles.examples(share=0.4)
@given(steps=st.lists(st.sampled_from([1, 2, 99, 100, 101, "began anew", "asked"]), max_size=8))
def test_it_is_what_a_listing_says_whatever_happened_since(
    steps: list[int | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also when the store was removed, and a shorter or longer log begins."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "manifest").mkdir()
    store, written = local(folder), 0
    for step in steps:
        if isinstance(step, int):
            for version in range(written + 1, written + step + 1):
                (folder / manifest_key(version)).write_bytes(b"x")
            written += step
        elif step == "began anew":
            for path in (folder / "manifest").iterdir():
                path.unlink()
            written = 0
        else:
            assert newest(store) == (written or None)
    assert newest(store) == (written or None)


def test_an_object_store_is_listed_for_one_key() -> None:
    """Where a listing of one key is one request, it stays that."""

    class Remote(Told):
        @property
        def config(self) -> StoreConfig:
            return StoreConfig("s3://bucket/job")

    class One:
        def list(self, prefix: str, **options: object) -> list[ObjectStat]:
            assert (prefix, options["limit"]) == (MANIFEST_PREFIX, 1)
            return []

    store = Remote(One())  # type: ignore[arg-type]
    for _ in range(2):
        assert newest(store) is None
    assert store.calls == ["list", "list"]
