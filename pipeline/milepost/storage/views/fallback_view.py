"""Read objects of one store, and those that it lacks from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from milepost.errors import NotFound
from milepost.protocol.records import ObjectStat, ObjectStore

_T = TypeVar("_T")


def with_fallback(store: ObjectStore, fallback: ObjectStore) -> ObjectStore:
    """Return a view of a store that reads an object it lacks from another store. It writes only to the first."""
    return cast(ObjectStore, _WithFallback(store, fallback))


class _WithFallback:
    def __init__(self, store: ObjectStore, fallback: ObjectStore) -> None:
        self._store, self._fallback = store, fallback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def stat(self, key: str) -> ObjectStat:
        return self._of_either(lambda store: store.stat(key))

    def get(self, key: str) -> bytes:
        return self._of_either(lambda store: store.get(key))

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self._of_either(lambda store: store.get_if_match(key, etag))

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self._of_either(lambda store: store.get_range(key, etag, start, stop))

    def _of_either(self, read: Callable[[ObjectStore], _T]) -> _T:
        try:
            return read(self._store)
        except NotFound:
            return read(self._fallback)
