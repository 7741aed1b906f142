"""A bound on the memory that one step of a reader may take, whatever the data says of itself."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_PROCESS_LIMIT = threading.Lock()


class MemoryLimitExceeded(Exception):
    """A step needed more memory than it was given."""


@contextmanager
def limit_memory(size_bytes: int) -> Iterator[None]:
    """Let this process map at most so many bytes more in the block, one block at a time.

    No library that decodes Parquet takes a limit, and what a page expands to is known only when it has been decoded: a
    run of one value takes the same few bytes for a row as for a million. So it is the system that says no. An allocator
    may use what it reserved before, too; a worker's reserves little.

    Raises:
        TooLarge: the block needed more. MemoryError: the process has a limit of its own, and that was met first.
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
