"""Fetch a known sequence of objects ahead of their reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from milepost.protocol.records import ObjectStore
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS

MAX_PREFETCHED_OBJECTS = MAX_PARALLEL_REQUESTS
"""Limit of objects in flight or in memory beyond the one being read.

2,000 objects of 1 kB at a latency of 30 ms take half as long as with a limit of 8. A limit of 24 gains nothing more:
then the AWS library's own work of about 1 ms per object is the bottleneck.
"""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object, and its size in bytes."""

    key: str
    etag: str
    size: int


def prefetching_store(store: ObjectStore, objects: Iterable[ObjectVersion], max_bytes: int) -> ObjectStore:
    """Return a view of a store for a reader that gets these objects in this order.

    Each is fetched once, in its version. An error of the fetch is raised when the reader gets the object. An object
    larger than `max_bytes` is not prefetched. A local store is returned as it is.

    Args:
        max_bytes: limit of prefetched bodies in memory.
    """
    return store if store.config.is_local else cast(ObjectStore, _PrefetchingStore(store, objects, max_bytes))


class _PrefetchingStore:
    def __init__(self, store: ObjectStore, objects: Iterable[ObjectVersion], max_bytes: int) -> None:
        self._store, self._max_bytes = store, max_bytes
        self._waiting = deque(version for version in objects if version.size <= max_bytes)
        self._prefetched: dict[tuple[str, str], tuple[int, Callable[[], bytes]]] = {}
        # The threads end when this store is collected.
        self._pool = ThreadPoolExecutor(MAX_PREFETCHED_OBJECTS, "object-ahead")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_if_match(self, key: str, etag: str) -> bytes:
        """Return the prefetched body, or get it while the next ones are fetched."""
        _, body = self._prefetched.pop((key, etag), (0, partial(self._store.get_if_match, key, etag)))
        while self._waiting and (self._waiting[0].key == key or self._has_room(self._waiting[0])):
            version = self._waiting.popleft()
            if version.key != key:
                request = partial(self._store.get_if_match, version.key, version.etag)
                self._prefetched[version.key, version.etag] = version.size, self._pool.submit(request).result
        return body()

    def _has_room(self, version: ObjectVersion) -> bool:
        prefetched_bytes = sum(size for size, _ in self._prefetched.values())
        return len(self._prefetched) < MAX_PREFETCHED_OBJECTS and prefetched_bytes + version.size <= self._max_bytes
