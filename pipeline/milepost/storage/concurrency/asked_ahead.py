"""Requests ahead: while one answer is worked on, the next ones are on their way, of so many bytes together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.concurrency.parallel_map import MAX_PARALLEL_REQUESTS

T = TypeVar("T")
R = TypeVar("R")


def asked_ahead(
    store: ObjectStore, ask: Callable[[T], R], subjects: Iterable[tuple[T, int]], most_bytes: int
) -> Iterator[R]:
    """Yield the answers in the order of the subjects; the first error in that order is raised.

    A directory answers at once: there it is one after another.

    Args:
        store: the one that is asked. ask: called by several threads.
        subjects: each with the bytes of its answer. most_bytes: of answers that are ahead, one more is asked for.
    """
    if store.config.is_local:
        yield from (ask(subject) for subject, _ in subjects)
        return
    waiting, ahead = deque[tuple[Future[R], int]](), 0
    pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
    try:
        for subject, size in subjects:
            waiting.append((pool.submit(ask, subject), size))
            ahead += size
            while len(waiting) > MAX_PARALLEL_REQUESTS or ahead > most_bytes:
                answer, size = waiting.popleft()
                ahead -= size
                yield answer.result()
        for answer, _ in waiting:
            yield answer.result()
    finally:  # whoever interrupts, or has an error to tell, does not wait for requests that nobody needs any more
        pool.shutdown(wait=False, cancel_futures=True)
