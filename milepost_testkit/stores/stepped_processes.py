"""Processes that a test steps from store call to store call, with a clock that the test sets.

Each process is a thread. It runs while the test waits, and waits before each store call until the test steps it.
So the same steps give the same interleaving. A crashed process has no further visible effect: its next store call
raises, even in an `except` or `finally` block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from milepost.errors import CommitConflict, CommitOutcomeUnknown, StoreUnavailable
from milepost.protocol.records.object_store import ObjectStat, ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.stores.called_store import WRITES, CalledStore

T = TypeVar("T")

WAIT_S = 240.0


class Crashed(BaseException):
    """`kill -9` of one process."""


class Fault(Enum):
    """A fault of a process's next write."""

    UNAVAILABLE = "it never reaches the store, and the process knows"
    LOST_REQUEST = "it never reaches the store, nobody knows"
    LOST_REPLY = "the store does it, nobody hears"
    LATE = "the process hears nothing; the store does it when the test says so"
    CRASH_BEFORE = "the process dies before it"
    CRASH_AFTER = "the process dies after it"
    CRASH_LATE = "the process dies, and the store does it when the test says so"


@dataclass(frozen=True)
class LateWrite:
    """A write in flight. `deliver` applies it; a create that arrives too late has no effect."""

    what: str
    act: Callable[[], object]

    def deliver(self) -> None:
        with suppress(CommitConflict):
            self.act()


@dataclass
class Watchers:
    """Callbacks for every applied write, in order. An error in one is stored, and raised at the end of the step."""

    written: Callable[[str, str, bytes], None]
    deleted: Callable[[str, str], None]
    broken: list[AssertionError] = field(default_factory=list)

    def tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except AssertionError as error:
            self.broken.append(error)

    def raise_broken(self) -> None:
        if self.broken:
            raise self.broken[0]


class Process:
    """One process: it runs `call` in steps.

    Attributes:
        result, error: how it ended. faults: that have struck it. writes: how many of its writes the store did.
        insists: whether its command takes over.
    """

    def __init__(self, name: str, call: Callable[[], object], insists: bool = False) -> None:
        self.name = name
        self.insists = insists
        self.result: object = None
        self.error: BaseException | None = None
        self.faults: list[Fault] = []
        self.writes = 0
        self.fault: Fault | None = None
        self.dead = False
        self.over = False
        self._calls_left: int | None = 0
        self._writes_left: int | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(call,), name=f"process {name}", daemon=True)
        self._thread.start()
        self._wait()

    def go_on(self, calls: int | None = None, *, writes: int | None = None, fault: Fault | None = None) -> None:
        """Do the call it waits before and so many in all, or up to so many writes further on; None: to the end.

        Args:
            fault: strikes the next write.
        """
        if self.over:
            return
        self._calls_left, self._writes_left = calls, writes
        self.fault = fault if fault is not None else self.fault
        self._go.release()
        self._wait()

    def crash(self) -> None:
        self.dead = True
        self.go_on()

    def at_call(self, operation: str) -> None:
        """Wait before a store call of this process until the test steps it."""
        if threading.current_thread() is not self._thread:  # a pool that reads for it; its heartbeat
            if threading.current_thread().name == "heartbeat":
                raise StoreUnavailable("no further heartbeat: the test's clock stands still meanwhile")
            return
        self._check_alive()
        write = operation in WRITES
        if self._calls_left == 0 or (write and self._writes_left == 0):
            self._stopped.release()
            assert self._go.acquire(timeout=WAIT_S)
            self._check_alive()
        if self._calls_left is not None:
            self._calls_left -= 1
        if self._writes_left is not None and write:
            self._writes_left -= 1

    def take_fault(self, operation: str) -> Fault | None:
        """Return the fault planned for this write, once."""
        if operation not in WRITES or self.fault is None:
            return None
        fault, self.fault = self.fault, None
        self.faults.append(fault)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_LATE):
            self.dead = True
        return fault

    def _check_alive(self) -> None:
        if self.dead:
            raise Crashed

    def _run(self, call: Callable[[], object]) -> None:
        _HERE.process = self
        try:
            self.at_call("begin")
            self.result = call()
        except BaseException as error:  # noqa: BLE001 - the test judges it
            self.error = error
        self.over = True
        self._stopped.release()

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=WAIT_S), f"process {self.name} neither stopped nor ended"


class _Here(threading.local):
    process: Process | None = None


_HERE = _Here()


class SteppedStores:
    """Opens the real store of each URL, with one shared clock. In a process, calls are stepped and can have faults.

    Attributes:
        now_ms: the stores' clock. late: writes that are on their way.
        down: (url, start of a key): what cannot be created now.
    """

    def __init__(self, watchers: Watchers, now_ms: int) -> None:
        self.watchers = watchers
        self.now_ms = now_ms
        self.late: list[LateWrite] = []
        self.down: set[tuple[str, str]] = set()
        self._clocked: dict[str, ClockedStore] = {}

    def open(self, config: StoreConfig) -> ObjectStore:
        store = self._clocked.get(config.url)
        if store is None:
            store = self._clocked[config.url] = ClockedStore(self, open_store(config))
        return store if _HERE.process is None else _ProcessStore(self, store, _HERE.process)


class ClockedStore(CalledStore):
    """The inner store with the test's clock. Reports every applied write to the watchers."""

    def __init__(self, stores: SteppedStores, inner: ObjectStore) -> None:
        self.inner = inner
        self._stores = stores
        self._modified: dict[str, int] = {}

    def stat(self, key: str) -> ObjectStat:
        return self._dated(self.inner.stat(key))

    def put(self, key: str, body: bytes) -> ObjectStat:
        return self._written(self.inner.put(key, body), body)

    def create(self, key: str, body: bytes) -> ObjectStat:
        return self._written(self.inner.create(key, body), body)

    def list(self, prefix: str, **options: Any) -> Iterator[ObjectStat]:
        return map(self._dated, self.inner.list(prefix, **options))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            watchers = self._stores.watchers
            watchers.tell(partial(watchers.deleted, self.config.url, key))
            self.inner.delete([key])

    def clock_ms(self) -> int:
        return self._stores.now_ms

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        return act()

    def _written(self, stat: ObjectStat, body: bytes) -> ObjectStat:
        self._modified[stat.key] = self._stores.now_ms
        watchers = self._stores.watchers
        watchers.tell(lambda: watchers.written(self.config.url, stat.key, body))
        return self._dated(stat)

    def _dated(self, stat: ObjectStat) -> ObjectStat:
        return replace(stat, last_modified_ms=self._modified.get(stat.key, stat.last_modified_ms))


class _ProcessStore(CalledStore):
    """The store as seen by one process."""

    def __init__(self, stores: SteppedStores, inner: ClockedStore, process: Process) -> None:
        self.inner = inner
        self._stores, self._process = stores, process

    def list(self, prefix: str, **options: Any) -> Iterator[ObjectStat]:
        return iter(self._call("list", prefix, lambda: [*self.inner.list(prefix, **options)]))

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        process = self._process
        process.at_call(operation)
        fault = process.take_fault(operation)
        down = any(self.config.url == url and key.startswith(at) for url, at in self._stores.down)
        if down and operation == "create":
            process.faults.append(Fault.UNAVAILABLE)
            fault = fault or Fault.UNAVAILABLE
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable(f"{operation} {key!r}: planned outage")
        if fault in (Fault.LATE, Fault.CRASH_LATE):
            self._stores.late.append(LateWrite(f"{operation} {key} of {process.name}", act))
        if fault in (None, Fault.LOST_REPLY, Fault.CRASH_AFTER):
            answer = act()
            process.writes += operation in WRITES
            if fault is None:
                return answer
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE):
            process.dead = True
            raise Crashed
        unknown = CommitOutcomeUnknown if operation == "create" else StoreUnavailable
        raise unknown(f"{operation} {key!r}: the reply is lost, as planned")
