"""A store that calls back around its operations: to hold one back, to count it, or to lose its reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pipeline.protocol.object_store import ObjectStat, ObjectStore, StoreConfig

T = TypeVar("T")

Hook = Callable[[str, str], None]
"""Called with (operation, key); what it raises is what the caller of the operation gets."""


def _nothing(operation: str, key: str) -> None:
    return None


@dataclass
class HookedStore:
    """The inner store, with `before` called before each operation takes effect and `after` once it has."""

    inner: ObjectStore
    before: Hook = _nothing
    after: Hook = _nothing

    @property
    def config(self) -> StoreConfig:
        return self.inner.config

    def get(self, key: str) -> bytes:
        return self._around("get", key, lambda: self.inner.get(key))

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self._around("get", key, lambda: self.inner.get_if_match(key, etag))

    def stat(self, key: str) -> ObjectStat:
        return self._around("stat", key, lambda: self.inner.stat(key))

    def put(self, key: str, body: bytes) -> ObjectStat:
        return self._around("put", key, lambda: self.inner.put(key, body))

    def create(self, key: str, body: bytes) -> ObjectStat:
        return self._around("create", key, lambda: self.inner.create(key, body))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectStat]:
        return self._around("list", prefix, lambda: self.inner.list(prefix, start_after=start_after, limit=limit))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._around("delete", key, partial(self.inner.delete, [key]))

    def clock_ms(self) -> int:
        return self.inner.clock_ms()

    def _around(self, operation: str, key: str, act: Callable[[], T]) -> T:
        self.before(operation, key)
        result = act()
        self.after(operation, key)
        return result
