"""Faults in a job's store while the job master uses it: outages, lost replies, a clock ahead."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.stores.faulty_store import Fault, FaultyStore
from milepost_testkit.stores.hooked_store import Hook, HookedStore

_OPENER = "milepost.jobmaster.job.context.open_store"


@dataclass(eq=False)
class LaterStore(HookedStore):
    """The inner store with a clock that is `later_ms` ahead."""

    later_ms: int = 0

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + self.later_ms


def break_store(monkeypatch: pytest.MonkeyPatch, url: str, *faults: Fault) -> None:
    """Apply these faults, each as often as it says, to the store at `url` when the master opens it from now on."""

    def opener(config: StoreConfig) -> ObjectStore:
        store = open_store(config)
        return FaultyStore(store, faults) if config.url == url else store

    monkeypatch.setattr(_OPENER, opener)


def hook_stores(
    monkeypatch: pytest.MonkeyPatch, *, before: Hook | None = None, after: Hook | None = None, only: str = ""
) -> None:
    """Add callbacks to every store that the master opens from now on.

    Args:
        only: what the URL of a store has in it that is meant; "" for all.
    """

    def nothing(operation: str, key: str) -> None:
        return None

    def opener(config: StoreConfig) -> ObjectStore:
        store = open_store(config)
        return HookedStore(store, before or nothing, after or nothing) if only in config.url else store

    monkeypatch.setattr(_OPENER, opener)


def later(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    """Set the clock ahead in every store that the master opens from now on."""
    monkeypatch.setattr(_OPENER, lambda config: LaterStore(open_store(config), later_ms=milliseconds))
