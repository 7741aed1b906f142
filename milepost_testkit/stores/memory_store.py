"""Object stores in memory: the store contract without a disk or a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import IO
from weakref import WeakValueDictionary

from milepost.errors import CommitConflict, NotFound
from milepost.protocol.records.object_store import Names, ObjectStat, StoreConfig
from milepost.storage.bodies import body_pieces
from milepost.storage.keys import validate_key, validate_prefix

_SPACES: WeakValueDictionary[int, MemorySpace] = WeakValueDictionary()
_NUMBERS = count()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _space(number: int) -> MemorySpace:
    return _SPACES[number]


class MemorySpace:
    """The objects of any number of stores: a store also sees what stores rooted below it write, as on a disk.

    A pickled space leads to the same objects, in this process only.
    """

    def __init__(self, clock_ms: Callable[[], int] = _now_ms) -> None:
        self.clock_ms = clock_ms
        self._objects: dict[str, tuple[bytes, ObjectStat]] = {}
        self._lock = threading.Lock()
        self._writes = 0
        self._number = next(_NUMBERS)
        _SPACES[self._number] = self

    def __reduce__(self) -> tuple[Callable[[int], MemorySpace], tuple[int]]:
        return _space, (self._number,)

    def open(self, config: StoreConfig) -> MemoryStore:
        """Return the store that `config` names, as `open_store` does."""
        return MemoryStore(config.url, self)

    def find(self, name: str) -> tuple[bytes, ObjectStat] | None:
        return self._objects.get(name)

    def write(self, name: str, key: str, body: bytes, *, replace: bool) -> ObjectStat | None:
        """Write one object; return None if it exists and `replace` is false."""
        with self._lock:
            if not replace and name in self._objects:
                return None
            self._writes += 1
            stat = ObjectStat(key, len(body), f"{len(body)}-{self._writes}", self.clock_ms())
            self._objects[name] = body, stat
            return stat

    def named(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, in byte order: UTF-8 sorts as its code points do."""
        with self._lock:
            return sorted(name for name in self._objects if name.startswith(prefix))

    def remove(self, name: str) -> None:
        with self._lock:
            self._objects.pop(name, None)


class MemoryStore:
    """One root in a space. Without a space it creates its own."""

    def __init__(self, url: str, space: MemorySpace | None = None) -> None:
        self.config = StoreConfig(url)
        self._space = space or MemorySpace()
        self._root = url.rstrip("/") + "/"

    def get(self, key: str) -> bytes:
        return self._object(key)[0]

    def get_if_match(self, key: str, etag: str) -> bytes:
        body, stat = self._object(key)
        if stat.etag != etag:
            raise CommitConflict(
                f"object {key!r} of {self.config.url} was to be read as version {etag}, but is now {stat.etag}. "
                "Nothing was read.",
                key=key,
                expected=etag,
                got=stat.etag,
            )
        return body

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self.get_if_match(key, etag)[start:stop]

    def stat(self, key: str) -> ObjectStat:
        return self._object(key)[1]

    def put(self, key: str, body: bytes) -> ObjectStat:
        stat = self._space.write(self._name(key), key, bytes(body), replace=True)
        assert stat is not None
        return stat

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        stat = self._space.write(self._name(key), key, b"".join(body_pieces(body)), replace=False)
        if stat is None:
            raise CommitConflict(f"object {key!r} of {self.config.url} exists already; nothing was written.", key=key)
        return stat

    def list(
        self, prefix: str, *, start_after: str = "", limit: int | None = None, invalid_names: Names | None = None
    ) -> Iterator[ObjectStat]:
        validate_prefix(prefix)
        begin, after = self._root + prefix, self._root + start_after
        names = [name for name in self._space.named(begin) if name > after]
        for name in names[: None if limit is None else max(limit, 0)]:
            found = self._space.find(name)
            if found is not None:
                yield ObjectStat(name[len(self._root) :], found[1].size, found[1].etag, found[1].last_modified_ms)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._space.remove(self._name(key))

    def clock_ms(self) -> int:
        return self._space.clock_ms()

    def _name(self, key: str) -> str:
        return self._root + validate_key(key)

    def _object(self, key: str) -> tuple[bytes, ObjectStat]:
        found = self._space.find(self._name(key))
        if found is None:
            raise NotFound(f"object {key!r} does not exist in {self.config.url}.", key=key)
        return found
