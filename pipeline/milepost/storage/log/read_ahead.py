"""Read entries of the log ahead of the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from milepost.errors import CommitConflict
from milepost.protocol.log import EVENT_BYTES, LoggedEvent, Tombstone, decode_event_from_prefix
from milepost.protocol.records import MANIFEST_PREFIX, ObjectStat, ObjectStore, manifest_key
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS
from milepost.storage.layout import listed_version
from milepost.storage.object_cache import OBJECT_CACHE

_STRETCH = 250
"""Keys of the first listing of a walk without a limit. A longer walk doubles it."""

_MOMENT_S = 5.0

T = TypeVar("T")


def read_ahead(
    listed: Iterator[ObjectStat], read: Callable[[ObjectStat], T]
) -> Generator[tuple[ObjectStat, Callable[[], T]]]:
    """Yield each object with a function that returns its value, in order. The first is read before any other.

    At most `MAX_PARALLEL_REQUESTS` are read ahead of the caller. Closing the generator starts no further read and waits
    a moment for those under way: what they read may be cached, which saves the next walk those requests. It waits no
    longer, so that a caller that found its entry does not wait for a slow store.
    """
    ahead: deque[tuple[ObjectStat, Callable[[], T]]] = deque()
    pending: deque[Future[T]] = deque(maxlen=MAX_PARALLEL_REQUESTS)
    pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
    try:
        for stat in islice(listed, 1):
            ahead.append((stat, partial(read, stat)))
        while ahead:
            yield ahead.popleft()
            for stat in islice(listed, MAX_PARALLEL_REQUESTS - len(ahead)):
                pending.append(pool.submit(read, stat))
                ahead.append((stat, pending[-1].result))
    finally:
        pool.shutdown(wait=False)
        wait(pending, _MOMENT_S)


def read_event(
    store: ObjectStore, stat: ObjectStat, whole: Callable[[int], LoggedEvent | Tombstone]
) -> LoggedEvent | Tombstone:
    """Return the event of a listed entry, from this process's cache if it was read before.

    Of a large entry, whose state is many times as long as its event, only the beginning is read.

    Args:
        whole: reads the event of a version from the whole entry.
    """

    def read() -> LoggedEvent | Tombstone:
        version = listed_version(stat.key)
        if stat.size > 2 * EVENT_BYTES and not store.config.is_local:
            with suppress(CommitConflict):  # it was compacted since it was listed
                begin = store.get_range(stat.key, stat.etag, 0, EVENT_BYTES)
                if (event := decode_event_from_prefix(begin, version, stat.key)) is not None:
                    return event
        return whole(version)

    return OBJECT_CACHE.read(store, ("event", stat.key, stat.etag), min(stat.size, EVENT_BYTES), read)


def list_log(store: ObjectStore, limit: int | None, before: int | None, newest: int) -> Iterator[ObjectStat]:
    """Yield the objects of a log, newest first. Without a limit, they are listed only as far as the caller goes.

    Args:
        limit: number of objects. None: all that the caller takes.
        before: only older versions. None: all.
        newest: version of the last head that was read, or 0.
    """
    after = "" if before is None else manifest_key(before)  # versions count down in the order of keys
    if limit is not None or store.config.is_local:
        return store.list(MANIFEST_PREFIX, start_after=after, limit=limit)
    return _stretches(store, after, 0 if before is None else max(0, newest - before + 1))


def _stretches(store: ObjectStore, after: str, newer: int) -> Iterator[ObjectStat]:
    """Yield the objects of the log after a key, listed in stretches of doubling length.

    Not every store can continue a listing from a key: some list from the start, or everything. So each listing starts
    at the beginning and ends one stretch after the last object that was yielded. A walk that ends soon does not list a
    log of years. Example: 1,000 objects, all wanted: listings of 250, 750 and 1,750 keys, of which the last is short.

    Args:
        newer: about how many objects precede that key.
    """
    stretch = _STRETCH
    while True:
        limit = newer + stretch
        listed = [*store.list(MANIFEST_PREFIX, limit=limit)]
        older = [stat for stat in listed if stat.key > after]
        yield from older
        if len(listed) < limit:
            return
        newer, stretch, after = len(listed), 2 * stretch, older[-1].key if older else after
