"""Entries read ahead: some are on their way while the one before them is looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

from milepost.storage.concurrency.at_once import AT_ONCE

T = TypeVar("T")


def read_ahead(versions: Iterator[int], read: Callable[[int], T]) -> Generator[tuple[int, Callable[[], T]]]:
    """Yield each version with what reads its entry, in order; the first is read before any other is asked for.

    At most `AT_ONCE` beyond the one that is asked for are read; closing the generator ends that.
    """
    ahead: deque[tuple[int, Callable[[], T]]] = deque()
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for version in islice(versions, 1):
            ahead.append((version, partial(read, version)))
        while ahead:
            yield ahead.popleft()
            for version in islice(versions, AT_ONCE - len(ahead)):
                ahead.append((version, pool.submit(read, version).result))
    finally:
        pool.shutdown(cancel_futures=True)
