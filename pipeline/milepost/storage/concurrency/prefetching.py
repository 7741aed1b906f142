"""Send the next requests while the caller works on one answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from milepost.protocol.records import ObjectStore
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS

T = TypeVar("T")
R = TypeVar("R")


def prefetched_map(
    store: ObjectStore, request: Callable[[T], R], subjects: Iterable[tuple[T, int]], max_bytes: int
) -> Iterator[R]:
    """Yield the answers in the order of the subjects. The first error in that order is raised.

    A local store answers without a round trip, so there the requests run one after another.

    Args:
        store: the store that `request` reads.
        request: called from several threads.
        subjects: each with the size of its answer in bytes.
        max_bytes: limit of prefetched answers. The request that exceeds it is still sent.
    """
    if store.config.is_local:
        yield from (request(subject) for subject, _ in subjects)
        return
    waiting, prefetched_bytes = deque[tuple[Future[R], int]](), 0
    pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
    try:
        for subject, size in subjects:
            waiting.append((pool.submit(request, subject), size))
            prefetched_bytes += size
            while len(waiting) > MAX_PARALLEL_REQUESTS or prefetched_bytes > max_bytes:
                answer, size = waiting.popleft()
                prefetched_bytes -= size
                yield answer.result()
        for answer, _ in waiting:
            yield answer.result()
    finally:  # an interrupt or an error must not wait for requests whose answers are no longer needed
        pool.shutdown(wait=False, cancel_futures=True)
