"""Objects in this process: for tests that run thousands of epochs, where what a disk does is not the point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO

from milepost.protocol.records.errors import CommitConflict, NotFound
from milepost.protocol.records.object_store import Names, ObjectStat, StoreConfig


class MemoryStore:
    """An object store without prefixes, faults or bounds; its clock stands still."""

    def __init__(self, url: str) -> None:
        self.config = StoreConfig(url)
        self._objects: dict[str, tuple[bytes, ObjectStat]] = {}
        self._writes = 0

    def get(self, key: str) -> bytes:
        return self._found(key)[0]

    def get_if_match(self, key: str, etag: str) -> bytes:
        body, stat = self._found(key)
        if stat.etag != etag:
            raise CommitConflict(f"{key} is {stat.etag}, expected {etag}")
        return body

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self.get_if_match(key, etag)[start:stop]

    def stat(self, key: str) -> ObjectStat:
        return self._found(key)[1]

    def put(self, key: str, body: bytes) -> ObjectStat:
        self._writes += 1
        stat = ObjectStat(key, len(body), f"{len(body)}-{self._writes}", 0)
        self._objects[key] = bytes(body), stat
        return stat

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        if key in self._objects:
            raise CommitConflict(f"{key} exists")
        return self.put(key, body if isinstance(body, bytes) else body.read())

    def list(
        self, prefix: str, *, start_after: str = "", limit: int | None = None, unnamable: Names | None = None
    ) -> Iterator[ObjectStat]:
        keys = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
        return iter([self._objects[key][1] for key in keys[:limit]])

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)

    def clock_ms(self) -> int:
        return 0

    def _found(self, key: str) -> tuple[bytes, ObjectStat]:
        if key not in self._objects:
            raise NotFound(f"{key} is not there")
        return self._objects[key]
