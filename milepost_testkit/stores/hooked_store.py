"""A store that calls back around its operations: to hold one back, to count it, or to lose its reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from milepost.protocol.records.object_store import ObjectStore
from milepost_testkit.stores.called_store import CalledStore

T = TypeVar("T")

Hook = Callable[[str, str], None]
"""Called with (operation, key); what it raises is what the caller of the operation gets."""


def _nothing(operation: str, key: str) -> None:
    return None


@dataclass(eq=False)
class HookedStore(CalledStore):
    """The inner store, with `before` called before each operation takes effect and `after` once it has."""

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
    """Gives no whole object: only parts of one."""

    def get(self, key: str) -> bytes:
        raise AssertionError(f"{key} was asked for as a whole")
