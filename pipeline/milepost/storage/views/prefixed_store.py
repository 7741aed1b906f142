"""Present the objects below one prefix of a store as a store of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO

from milepost.protocol.records import Names, ObjectStat, ObjectStore, child_url
from milepost.storage.keys import validate_key


class PrefixedStore:
    """Passes every call to `inner` with a prefix before each key. No key leads outside that prefix.

    Attributes:
        prefix: ends in ``/``.
    """

    def __init__(self, inner: ObjectStore, prefix: str) -> None:
        self.inner = inner
        self.prefix = prefix
        self.config = replace(inner.config, url=child_url(inner.config.url, prefix.rstrip("/")))

    def get(self, key: str) -> bytes:
        return self.inner.get(self._key(key))

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self.inner.get_if_match(self._key(key), etag)

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self.inner.get_range(self._key(key), etag, start, stop)

    def stat(self, key: str) -> ObjectStat:
        return self._relative(self.inner.stat(self._key(key)))

    def put(self, key: str, body: bytes) -> ObjectStat:
        return self._relative(self.inner.put(self._key(key), body))

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        return self._relative(self.inner.create(self._key(key), body))

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        after = self.prefix + start_after if start_after else ""
        for stat in self.inner.list(self.prefix + prefix, start_after=after, limit=limit, invalid_names=invalid_names):
            yield self._relative(stat)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete([self._key(key) for key in keys])

    def clock_ms(self) -> int:
        return self.inner.clock_ms()

    def _key(self, key: str) -> str:
        return self.prefix + validate_key(key)

    def _relative(self, stat: ObjectStat) -> ObjectStat:
        return replace(stat, key=stat.key.removeprefix(self.prefix))
