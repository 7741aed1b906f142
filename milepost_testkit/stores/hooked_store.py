"""A store with callbacks around its operations: to delay one, count it, or lose its reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from milepost.protocol.records.object_store import ObjectStore
from milepost_testkit.stores.called_store import CalledStore

T = TypeVar("T")

Hook = Callable[[str, str], None]
"""Called with (operation, key). An error that it raises reaches the caller of the operation."""


def _nothing(operation: str, key: str) -> None:
    return None


@dataclass(eq=False)
class HookedStore(CalledStore):
    """Calls `before` ahead of each operation on the inner store, and `after` once it took effect."""

    inner: ObjectStore
    before: Hook = _nothing
    after: Hook = _nothing

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        self.before(operation, key)
        result = act()
        self.after(operation, key)
        return result


@dataclass(eq=False)
class PiecesOnly(HookedStore):
    """Refuses to read a whole object; only ranges can be read."""

    def get(self, key: str) -> bytes:
        raise AssertionError(f"{key} was asked for as a whole")
