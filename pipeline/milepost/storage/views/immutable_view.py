"""Read objects that never change by handle, for readers that ask for a version of an object."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any, cast

from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.storage.object_handles import read_handle, stat_handle


def immutable_objects(store: ObjectStore, handles: Iterable[ObjectHandle]) -> ObjectStore:
    """Return a view of a store in which the version of an object is its SHA-256.

    Etags and modification times change when a job's storage is moved or copied. What an object has to contain does not.
    An object that is missing, or has other contents, raises StateCorrupt; of one that is read in ranges only the size
    is checked.
    """
    return cast(ObjectStore, _ImmutableObjects(store, handles))


class _ImmutableObjects:
    def __init__(self, store: ObjectStore, handles: Iterable[ObjectHandle]) -> None:
        self._store = store
        self._handles = {handle.key: handle for handle in handles}
        self._etag = cache(partial(_etag, store))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_if_match(self, key: str, etag: str) -> bytes:
        return read_handle(self._store, self._handles[key])

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self._store.get_range(key, self._etag(self._handles[key]), start, stop)


def _etag(store: ObjectStore, handle: ObjectHandle) -> str:
    return stat_handle(store, handle).etag
