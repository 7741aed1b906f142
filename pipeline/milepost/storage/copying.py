"""Copying moves immutable objects between stores: checked, in parallel, in bounded memory.

A body is compared with its handle before it is written, and written only where nothing is. Whoever copies therefore
either has what the handle says, or an error and nothing that looks like it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import CommitConflict, CommitOutcomeUnknown, NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.checked import IN_MEMORY_BYTES, check_handle, handle_file, handle_of, stat_handle

MAX_OBJECT_BYTES = 5 * 1024**3
"""The largest object that a store takes in one put; a handle that says more is not one of ours."""

BUDGET_BYTES = 64 * 1024**2
"""Bodies held in memory at once."""

DISK_BYTES = 4 * 1024**3
"""Bodies at once on the disk, where those are that are too large to be held; a larger one is there alone."""

_WORKERS = 8

Copied = Callable[[int], None]
"""Told the bytes of each object once it is there; called from several threads, one at a time."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One object to copy.

    Attributes:
        handle: of the object at `source`.
        key: where it goes at `target`.
    """

    source: ObjectStore
    handle: ObjectHandle
    target: ObjectStore
    key: str


def copy_objects(copies: Iterable[Copy], copied: Copied = lambda size: None) -> int:
    """Copy every object; return how many bytes that were.

    The first failure ends it: copies that have not begun are dropped, those that have are waited for.

    Raises:
        StateCorrupt: an object is missing, or not what its handle says. CommitConflict: another content lies at a
            target key. CommitOutcomeUnknown, StoreUnavailable, EnvironmentUnusable: from the stores.
    """
    wanted = list(copies)
    memory, disk, telling = _Budget(BUDGET_BYTES), _Budget(DISK_BYTES), threading.Lock()

    def run(one: Copy) -> None:
        _check_size(one.handle)
        stat_handle(one.source, one.handle)  # before anything is read: a size is not believed
        budget = memory if one.handle.size <= IN_MEMORY_BYTES else disk
        with budget.hold(one.handle.size), handle_file(one.source, one.handle) as body:
            _create_same(one.target, replace(one.handle, key=one.key), body)
        with telling:
            copied(one.handle.size)

    with ThreadPoolExecutor(_WORKERS) as pool:
        running = [pool.submit(run, one) for one in wanted]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
        finally:
            for future in running:
                future.cancel()
        for future in done:
            future.result()
    return sum(one.handle.size for one in wanted)


def create_same(store: ObjectStore, key: str, body: bytes) -> None:
    """Write a body where nothing is; what is there already with the same bytes is ours from a lost reply, and fine.

    Raises:
        CommitConflict: other bytes lie there; they were left as they are. CommitOutcomeUnknown: ask again.
    """
    _create_same(store, handle_of(key, body), body)


def _create_same(store: ObjectStore, handle: ObjectHandle, body: bytes | IO[bytes]) -> None:
    key = handle.key
    try:
        store.create(key, body)
        return
    except (CommitConflict, CommitOutcomeUnknown) as error:
        try:
            store.stat(key)
            check_handle(store, handle)
        except NotFound:
            raise CommitOutcomeUnknown(
                f"object {key!r} was not written to {store.config.url}, or may still be: {error}", key=key
            ) from error
        except StateCorrupt:
            raise CommitConflict(
                f"object {key!r} of {store.config.url} exists already with another content. It was left as it is.",
                key=key,
            ) from error


def _check_size(handle: ObjectHandle) -> None:
    if handle.size > MAX_OBJECT_BYTES:
        raise StateCorrupt(
            f"object {handle.key!r} is said to have {handle.size} bytes; none of ours has more than "
            f"{MAX_OBJECT_BYTES}. It was not read.",
            key=handle.key,
        )


class _Budget:
    """Counts the bytes that are held; who would exceed the limit waits, unless nobody else holds any."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + size <= self._limit)
            self._held += size
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()
