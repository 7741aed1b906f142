"""A store whose operations all go through one method, which a subclass can delay, count or fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, TypeVar

from milepost.protocol.records.object_store import Names, ObjectStat, ObjectStore, StoreConfig

T = TypeVar("T")

WRITES = ("put", "create", "delete")
"""Operations that change what is stored."""


class CalledStore:
    """Reaches the inner store through `_call` only, except for its clock."""

    inner: ObjectStore

    @property
    def config(self) -> StoreConfig:
        return self.inner.config

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key))

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self._call("get", key, lambda: self.inner.get_if_match(key, etag))

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self._call("get", key, lambda: self.inner.get_range(key, etag, start, stop))

    def stat(self, key: str) -> ObjectStat:
        return self._call("stat", key, lambda: self.inner.stat(key))

    def put(self, key: str, body: bytes) -> ObjectStat:
        return self._call("put", key, lambda: self.inner.put(key, body))

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        return self._call("create", key, lambda: self.inner.create(key, body))

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        listed = partial(self.inner.list, prefix, start_after=start_after, limit=limit, invalid_names=invalid_names)
        return self._call("list", prefix, listed)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._call("delete", key, partial(self.inner.delete, [key]))

    def clock_ms(self) -> int:
        return self.inner.clock_ms()

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        """Perform one operation, or not. Args: act: the operation on the inner store."""
        raise NotImplementedError
