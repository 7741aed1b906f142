"""Requests at once: what does not wait for one another is asked side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from milepost.protocol.records.object_store import ObjectStore

AT_ONCE = 16
"""Requests of one process that do not wait for one another."""

T = TypeVar("T")
R = TypeVar("R")


def at_once(store: ObjectStore, ask: Callable[[T], R], subjects: Iterable[T], *, locally: int = 1) -> list[R]:
    """Return the answers, in the order of the subjects; the first error in that order is raised.

    A directory answers at once: there it is one after another, unless what is asked waits for the disk.

    Args:
        store: the one that is asked. ask: may be called by several threads.
        locally: how many at once where the store is a directory.
    """
    every = list(subjects)
    width = min(locally if store.config.is_local else AT_ONCE, len(every))
    if width < 2:
        return [ask(subject) for subject in every]
    pool = ThreadPoolExecutor(width)
    try:
        return list(pool.map(ask, every))
    finally:  # whoever interrupts, or has an error to tell, does not wait for requests that nobody needs any more
        pool.shutdown(wait=False, cancel_futures=True)
