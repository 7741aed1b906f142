"""A walk that ends early keeps prefetched entries, and does not wait for a slow store."""

from __future__ import annotations

import threading
import time

import pytest

from milepost.protocol.records.object_store import ObjectStat
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS
from milepost.storage.log.read_ahead import read_ahead

FOUND = [
    ObjectStat(key=str(number), etag="e", size=1, last_modified_ms=0) for number in range(3 * MAX_PARALLEL_REQUESTS)
]


def test_prefetched_entries_are_read_even_when_the_walk_has_ended() -> None:
    read: list[str] = []
    begun = threading.Barrier(MAX_PARALLEL_REQUESTS + 1, timeout=60)

    def slowly(stat: ObjectStat) -> None:
        if stat.key != "0":
            begun.wait()
        read.append(stat.key)

    walk = read_ahead(iter(FOUND), slowly)
    first = next(walk)
    first[1]()
    next(walk)
    threading.Thread(target=begun.wait).start()
    walk.close()
    assert sorted(read, key=int) == [stat.key for stat in FOUND[: MAX_PARALLEL_REQUESTS + 1]]


@pytest.mark.deep
def test_a_walk_that_ends_does_not_wait_for_a_store_that_does_not_answer() -> None:
    answered = threading.Event()

    def read(stat: ObjectStat) -> bool:
        return stat.key == "0" or answered.wait(60)

    walk = read_ahead(iter(FOUND), read)
    try:
        next(walk)
        next(walk)
        began = time.monotonic()
        walk.close()
        assert time.monotonic() - began < 30
    finally:
        answered.set()
