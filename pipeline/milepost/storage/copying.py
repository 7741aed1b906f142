"""Copy immutable objects between stores, verified, in parallel and in bounded memory.

A body is verified against its handle before it is written, and it never replaces another object. So a copy either has
the content that the handle names, or it fails and leaves nothing at the target key that could be taken for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

from milepost.errors import CommitConflict, CommitOutcomeUnknown, NotFound, StateCorrupt
from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.storage.object_handles import IN_MEMORY_BYTES, check_handle, handle_file, handle_of, stat_handle

MAX_OBJECT_BYTES = 5 * 1024**3
"""Largest object that a store accepts in one put. A handle with a larger size is corrupt."""

BUDGET_BYTES = 64 * 1024**2
"""Limit of all bodies in memory."""

DISK_BYTES = 4 * 1024**3
"""Limit of all bodies on the scratch disk. A larger body is copied alone."""

_WORKERS = 8

OnCopied = Callable[[int], None]
"""Called with the size of each copied object, from several threads but never concurrently."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One object to copy.

    Attributes:
        handle: of the object in `source`.
        key: of the copy in `target`.
    """

    source: ObjectStore
    handle: ObjectHandle
    target: ObjectStore
    key: str


def copy_objects(copies: Iterable[Copy], on_copied: OnCopied = lambda size: None) -> int:
    """Copy every object and return the number of bytes copied.

    On the first failure, copies that have not started are dropped, and those under way are waited for.

    Raises:
        StateCorrupt: an object is missing or does not match its handle.
        CommitConflict: a target key has another content.
        CommitOutcomeUnknown, StoreUnavailable, EnvironmentUnusable: from the stores.
    """
    todo = list(copies)
    memory, disk, reporting = _Budget(BUDGET_BYTES), _Budget(DISK_BYTES), threading.Lock()

    def run(copy: Copy) -> None:
        _check_size(copy.handle)
        # A corrupt handle may state any size: compare it with the object before reserving memory for it.
        stat_handle(copy.source, copy.handle)
        budget = memory if copy.handle.size <= IN_MEMORY_BYTES else disk
        with budget.hold(copy.handle.size), handle_file(copy.source, copy.handle) as body:
            _create_same(copy.target, replace(copy.handle, key=copy.key), body)
        with reporting:
            on_copied(copy.handle.size)

    with ThreadPoolExecutor(_WORKERS) as pool:
        running = [pool.submit(run, copy) for copy in todo]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
        finally:
            for future in running:
                future.cancel()
        for future in done:
            future.result()
    return sum(copy.handle.size for copy in todo)


def create_same(store: ObjectStore, key: str, body: bytes) -> None:
    """Create an object. An existing object with the same bytes is ours from a lost reply, and counts as success.

    Raises:
        CommitConflict: the key has other bytes, which are left unchanged.
        CommitOutcomeUnknown: try again.
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
    """Limits the bytes that all threads hold together. A thread that would exceed it waits, unless it is alone."""

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
