"""A store with planned faults: before a write, after it (lost reply), slow, or ending the process.

It wraps any real store, and calls that reach the inner store are real.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from milepost.errors import CommitConflict, CommitOutcomeUnknown, StoreUnavailable
from milepost.protocol.records.object_store import ObjectStore
from milepost_testkit.stores.called_store import WRITES, CalledStore

T = TypeVar("T")

Point = Callable[[str, str], bool]
"""Whether a fault applies to (operation, key). Operations: get, stat, list, put, create, delete, clock."""


class Effect(Enum):
    """What happens at the point."""

    UNAVAILABLE = "the request never reaches the store"
    LOST_REPLY = "the store does it, nobody hears"
    LOST_REQUEST = "the store never does it, nobody knows"
    LATE = "the store does it when `release` is set, the caller was told 'unknown' at once"
    HOLD = "the caller waits for `release`, then the store does it"
    KILL_BEFORE = "kill -9 of this process before the store does it"
    KILL_AFTER = "kill -9 of this process after the store did it"


@dataclass
class Fault:
    """One planned fault.

    Attributes:
        point: where. effect: what. skip: how many matching calls pass first. times: how often it strikes.
        reached: set when it strikes. release: what HOLD and LATE wait for.
        error: raised instead of the effect's own error.
    """

    point: Point
    effect: Effect
    skip: int = 0
    times: int = 1
    error: Exception | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


def at(operation: str, key_prefix: str = "") -> Point:
    """Match one operation on keys with a prefix."""
    return lambda called, key: called == operation and key.startswith(key_prefix)


class FaultyStore(CalledStore):
    """Passes every call to `inner`, unless a planned fault applies.

    Attributes:
        writes: (operation, key) of each write that the inner store finished, in order.
        late: threads of LATE writes, to join after their release.
    """

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.plan = list(plan)
        self.writes: list[tuple[str, str]] = []
        self.late: list[threading.Thread] = []
        self._lock = threading.Lock()

    def clock_ms(self) -> int:
        return self._call("clock", "", self.inner.clock_ms)

    def _call(self, operation: str, key: str, call: Callable[[], T]) -> T:
        fault = self._strike(operation, key)
        if fault is None:
            return self._done(operation, key, call)
        where = f"{operation} {key!r}"
        match fault.effect:
            case Effect.KILL_BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
            case Effect.KILL_AFTER:
                self._done(operation, key, call)
                os.kill(os.getpid(), signal.SIGKILL)
            case Effect.HOLD:
                assert fault.release.wait(240), f"{where} was held and never released"
                return self._done(operation, key, call)
            case Effect.UNAVAILABLE:
                raise fault.error or StoreUnavailable(f"{where}: planned outage")
            case Effect.LOST_REPLY:
                self._done(operation, key, call)
            case Effect.LATE:
                thread = threading.Thread(target=self._later, args=(fault, operation, key, call), daemon=True)
                self.late.append(thread)
                thread.start()
        raise fault.error or CommitOutcomeUnknown(f"{where}: planned loss of the reply")

    def _later(self, fault: Fault, operation: str, key: str, call: Callable[[], T]) -> None:
        assert fault.release.wait(240), f"late {operation} {key!r} was never released"
        with suppress(CommitConflict):  # somebody else was first: nobody is left to be told
            self._done(operation, key, call)

    def _strike(self, operation: str, key: str) -> Fault | None:
        with self._lock:
            for fault in self.plan:
                if fault.times > 0 and fault.point(operation, key):
                    if fault.skip > 0:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    fault.reached.set()
                    return fault
        return None

    def _done(self, operation: str, key: str, call: Callable[[], T]) -> T:
        answer = call()
        if operation in WRITES:
            with self._lock:
                self.writes.append((operation, key))
        return answer
