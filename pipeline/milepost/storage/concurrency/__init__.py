"""Concurrent requests to stores."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.storage.concurrency.background import prefetch as prefetch
    from milepost.storage.concurrency.background import run_in_background as run_in_background
    from milepost.storage.concurrency.prefetch_store import ObjectVersion as ObjectVersion
    from milepost.storage.concurrency.prefetch_store import prefetching_store as prefetching_store
    from milepost.storage.concurrency.prefetching import prefetched_map as prefetched_map
    from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS as MAX_PARALLEL_REQUESTS
    from milepost.storage.concurrency.thread_pools import parallel_map as parallel_map
else:
    __getattr__, __dir__ = lazy_exports(__name__)
