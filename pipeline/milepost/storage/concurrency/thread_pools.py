"""Send independent requests in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from milepost.protocol.records import ObjectStore

MAX_PARALLEL_REQUESTS = 16
"""Concurrent requests of one process."""

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(store: ObjectStore, request: Callable[[T], R], subjects: Iterable[T], *, locally: int = 1) -> list[R]:
    """Return the answers in the order of the subjects. The first error in that order is raised.

    A local store answers without a round trip, so there the requests run one after another, unless `locally` says
    that they wait for the disk.

    Args:
        store: the store that `request` reads or writes.
        request: called from several threads.
        locally: requests in parallel on a local store.
    """
    every = list(subjects)
    width = min(locally if store.config.is_local else MAX_PARALLEL_REQUESTS, len(every))
    if width < 2:
        return [request(subject) for subject in every]
    pool = ThreadPoolExecutor(width)
    try:
        return list(pool.map(request, every))
    finally:  # an interrupt or an error must not wait for requests whose answers are no longer needed
        pool.shutdown(wait=False, cancel_futures=True)
