"""Stores that count their calls. On S3 each call is at least one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.stores.called_store import CalledStore

T = TypeVar("T")

_OPENERS = ("milepost.jobmaster.job.context.open_store", "milepost.jobmaster.job.input.next_input.open_store")


@dataclass
class Requests:
    """The driver's calls to all stores of a job, by step.

    Attributes:
        step: current step, set by the caller. Calls are counted for it.
    """

    step: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def __call__(self, step: str) -> None:
        self.step = step

    def add(self, operation: str, key: str) -> None:
        self.calls.append((self.step, operation, key))

    def clear(self) -> None:
        self.calls.clear()

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(operation, key) of every call, in order."""
        return [(operation, key) for _, operation, key in self.calls]

    @property
    def by_step(self) -> dict[str, int]:
        return dict(Counter(step for step, _, _ in self.calls))

    def told(self) -> str:
        """Return one line per call, for the message of a failing test."""
        return "\n".join(" ".join(call) for call in self.calls)


@dataclass(eq=False)
class CountedStore(CalledStore):
    """Counts each call to the inner store. Reading its clock counts as well."""

    inner: ObjectStore
    requests: Requests

    def clock_ms(self) -> int:
        self.requests.add("clock", "")
        return self.inner.clock_ms()

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        self.requests.add(operation, key)
        return act()


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Count every call to the stores that the driver opens from now on."""
    requests = Requests()

    def opener(config: StoreConfig) -> ObjectStore:
        return CountedStore(open_store(config), requests)

    for name in _OPENERS:
        monkeypatch.setattr(name, opener)
    return requests
