"""Kept objects: what was read of one version of an object is kept in memory, and that version is not read again.

For reports of a process that lives long and is asked the same again and again, as the server of the pages is, and for
the metadata of an opened job. What is kept is named by its store, its key and its version, as a listing or a handle has
just told it: a storage that was put back, or begun anew, is told as it is now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar, cast

from milepost.protocol.records.object_store import ObjectStore, StoreConfig

MOST_BYTES = 16 << 20
"""Of stored objects: what is made of them takes several times as much memory."""

_OVERHEAD_BYTES = 512

T = TypeVar("T")

_Name = tuple[StoreConfig, str, str, str]


class KeptObjects:
    """What was read last, up to so many bytes; several threads may ask.

    Args:
        most_bytes: of the objects that what is kept was made of. at_least: how many are kept, whatever they weigh.
    """

    def __init__(self, most_bytes: int, *, at_least: int = 0) -> None:
        self._most_bytes, self._at_least, self._bytes = most_bytes, at_least, 0
        self._kept: OrderedDict[_Name, tuple[object, int]] = OrderedDict()
        self._lock = Lock()

    def read(self, store: ObjectStore, named: tuple[str, str, str], size: int, read: Callable[[], T]) -> T:
        """Return what `read` returned for this version of an object; what it raises is not kept.

        Args:
            named: what is made of the object, its key, and its version. size: bytes that are read for it.
        """
        name = (store.config, *named)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return cast(T, self._kept[name][0])
        made, size = read(), size + _OVERHEAD_BYTES
        with self._lock:
            if name not in self._kept:
                self._kept[name] = made, size
                self._bytes += size
            while self._bytes > self._most_bytes and len(self._kept) > self._at_least:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return made

    def has(self, store: ObjectStore, named: tuple[str, str, str]) -> bool:
        """Say whether this is kept by now."""
        with self._lock:
            return (store.config, *named) in self._kept

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


KEPT = KeptObjects(MOST_BYTES)
"""Those of the process."""
