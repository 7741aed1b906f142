"""Read objects of other stores by their URIs, together with those of one store by their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from milepost.protocol.records import ObjectStat, ObjectStore, split_uri


def with_references(store: ObjectStore, stores: Mapping[str, ObjectStore]) -> ObjectStore:
    """Return a view of a store in which a URI is a key, too. It is only for reading.

    `a.parquet` is an object of `store`; `s3://lake/orders/b.parquet` is `orders/b.parquet` of the store `s3://lake`.

    Args:
        stores: of the URIs, by root URL.
    """
    return cast(ObjectStore, _WithReferences(store, stores)) if stores else store


class _WithReferences:
    def __init__(self, store: ObjectStore, stores: Mapping[str, ObjectStore]) -> None:
        self._store, self._stores = store, stores
        # Readers prefetch from stores that are not local.
        self.config = next((each.config for each in stores.values() if not each.config.is_local), store.config)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def stat(self, key: str) -> ObjectStat:
        store, key = self._place(key)
        return store.stat(key)

    def get(self, key: str) -> bytes:
        store, key = self._place(key)
        return store.get(key)

    def get_if_match(self, key: str, etag: str) -> bytes:
        store, key = self._place(key)
        return store.get_if_match(key, etag)

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        store, key = self._place(key)
        return store.get_range(key, etag, start, stop)

    def _place(self, key: str) -> tuple[ObjectStore, str]:
        if "://" not in key:
            return self._store, key
        root, below = split_uri(key)
        return self._stores[root], below
