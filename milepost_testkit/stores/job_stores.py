"""What may be wrong with the store of a job while the job master works on it: outages, lost replies, another hour."""

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
    """The same objects, `later_ms` later by the store's clock."""

    later_ms: int = 0

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + self.later_ms


def break_store(monkeypatch: pytest.MonkeyPatch, url: str, *faults: Fault) -> None:
    """From now on, whoever opens the store at `url` for the master meets the faults, as often as each says."""

    def opener(config: StoreConfig) -> ObjectStore:
        store = open_store(config)
        return FaultyStore(store, faults) if config.url == url else store

    monkeypatch.setattr(_OPENER, opener)


def hook_stores(
    monkeypatch: pytest.MonkeyPatch, *, before: Hook | None = None, after: Hook | None = None, only: str = ""
) -> None:
    """From now on every store that is opened for the master calls back around its operations.

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
    """From now on, every store that is opened for the master has a clock that is so much ahead."""
    monkeypatch.setattr(_OPENER, lambda config: LaterStore(open_store(config), later_ms=milliseconds))
