"""In-memory cache of values read from object versions.

A long-lived process such as the server of the Airflow pages answers the same question again and again. An entry is
identified by the store, the key and the version that a listing or a handle has just named, so no stale entry is used
after the store was restored from a backup, or emptied and filled again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar, cast

from milepost.protocol.records import ObjectStore, StoreConfig

MAX_BYTES = 16 << 20
"""Limit in stored bytes. The decoded values take several times as much memory."""

_OVERHEAD_BYTES = 512

T = TypeVar("T")

_Name = tuple[StoreConfig, str, str, str]


class ObjectCache:
    """Least-recently-used cache of values read from object versions. Safe for several threads.

    Args:
        max_bytes: limit of the stored bytes that the cached values were read from.
        min_entries: entries that stay whatever their size.
    """

    def __init__(self, max_bytes: int, *, min_entries: int = 0) -> None:
        self._max_bytes, self._min_entries, self._bytes = max_bytes, min_entries, 0
        self._entries: OrderedDict[_Name, tuple[object, int]] = OrderedDict()
        self._lock = Lock()

    def read(self, store: ObjectStore, version: tuple[str, str, str], size: int, read: Callable[[], T]) -> T:
        """Return the cached value of an object version, or call `read` and cache its result.

        An error of `read` is not cached. Two threads may read the same version: the first result is cached.

        Args:
            version: kind of value (``event``, ``metadata``, ...), key and version of the object.
            size: bytes that `read` reads.
        """
        name = (store.config, *version)
        with self._lock:
            if name in self._entries:
                self._entries.move_to_end(name)
                return cast(T, self._entries[name][0])
        value, size = read(), size + _OVERHEAD_BYTES
        with self._lock:
            if name not in self._entries:
                self._entries[name] = value, size
                self._bytes += size
            # An entry of 400 bytes counts as 912, so a limit of 2,000 holds two: reading a, b, a, c evicts b.
            while self._bytes > self._max_bytes and len(self._entries) > self._min_entries:
                self._bytes -= self._entries.popitem(last=False)[1][1]
        return value

    def has(self, store: ObjectStore, version: tuple[str, str, str]) -> bool:
        """Return whether a value is cached."""
        with self._lock:
            return (store.config, *version) in self._entries

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0


OBJECT_CACHE = ObjectCache(MAX_BYTES)
"""Cache of this process."""
