"""Limit the memory that one step of a reader may allocate."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_PROCESS_LIMIT = threading.Lock()


class MemoryLimitExceeded(Exception):
    """A step needed more memory than its limit."""


@contextmanager
def limit_memory(size_bytes: int) -> Iterator[None]:
    """Let this process map at most `size_bytes` more while the block runs. One block runs at a time.

    No Parquet library takes a memory limit, and the size of a page is known only once it is decoded: a run of one
    value takes the same few bytes for one row as for a million. So the operating system enforces the limit
    (RLIMIT_AS). An allocator may also use memory that it reserved before, but a worker's reserves little.

    Raises:
        MemoryLimitExceeded: the block needed more.
        MemoryError: the process has a lower limit of its own.
    """
    with _PROCESS_LIMIT:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = psutil.Process().memory_info().vms + size_bytes
        if soft != resource.RLIM_INFINITY and soft <= limit:
            yield
            return
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        except MemoryError as error:
            raise MemoryLimitExceeded(f"more than {size_bytes >> 20:,} MiB were needed at once") from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
