"""Stores that count what they are asked for: on S3 each of it is at least one request."""

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
    """What the driver asked of all stores of a job, by the step that it was at.

    Attributes:
        step: set by whoever follows the steps; what is asked is counted for it.
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
        """One line per call, for the message of a test that fails."""
        return "\n".join(" ".join(call) for call in self.calls)


@dataclass(eq=False)
class CountedStore(CalledStore):
    """The inner store, each call counted; a reading of its clock is a request as well."""

    inner: ObjectStore
    requests: Requests

    def clock_ms(self) -> int:
        self.requests.add("clock", "")
        return self.inner.clock_ms()

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        self.requests.add(operation, key)
        return act()


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """From now on, every call to a store that is opened for the driver is counted."""
    requests = Requests()

    def opener(config: StoreConfig) -> ObjectStore:
        return CountedStore(open_store(config), requests)

    for name in _OPENERS:
        monkeypatch.setattr(name, opener)
    return requests
