"""Derive a task's memory budget from its worker's limit, and return freed memory.

`spark.executor.pyspark.memory`, divided by `spark.executor.cores`, limits a worker's *address space* (RLIMIT_AS).
Mapped and reserved memory counts, whether it is used or not. The interpreter and the libraries take `RESERVED_BYTES`.
The rest is the budget for one task's rows and state.

The budget decides the boundaries of buffers, runs and files, and so the bytes that an attempt sends and stages. The
driver decides it once per epoch, so that attempts under different limits send the same bytes (I12).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
from dataclasses import dataclass
from typing import Any

from milepost.errors import EnvironmentUnusable

RESERVED_BYTES = 352 << 20
"""Measured: 310 MiB when a task starts, plus the exchange, the client of the store and the threads."""

MIN_BUDGET_DIVISOR = 8
"""The budget is at least the limit divided by this."""

UNLIMITED_BYTES = 4 << 30
"""The budget without a limit. A task with more rows and state than this also works in slices."""

_LIMIT_VARIABLE = "PYSPARK_EXECUTOR_MEMORY_MB"
"""Spark sets this variable for the daemon of limited workers."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8
_LARGE_BYTES = 256 << 10
_MAPPINGS = 1 << 16
_RETAINED_BYTES = 1 << 30
_GROWTH_BYTES = 64 << 20
_STACK_BYTES = 2 << 20
_ATTRIBUTE_BYTES = 64
"""Size of glibc's `pthread_attr_t`, or more."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory budget of one task.

    Attributes:
        bytes: budget for rows and state, the same for every attempt of an epoch.
        limit_bytes: limit of this worker's address space; None: unlimited. Used in messages only.
    """

    bytes: int = UNLIMITED_BYTES
    limit_bytes: int | None = None

    @property
    def held_bytes(self) -> int:
        """Maximum size of the rows that are buffered in memory. Further rows are spilled."""
        return self.bytes // 8

    def exceeded(self, who: str, error: BaseException) -> EnvironmentUnusable:
        """Return the error for a task that ran out of memory."""
        limit = "no limit is set" if self.limit_bytes is None else f"limit of its worker: {self.limit_bytes >> 20} MiB"
        if budget_bytes(self.limit_bytes) < self.bytes:
            limit += ", less than the epoch was planned for: give every executor the same"
        return EnvironmentUnusable(
            f"{who} ran out of memory ({limit}; {str(error).splitlines()[0] if str(error) else 'no more given'}). "
            "Nothing of this epoch is visible.",
            hint="Raise `spark.executor.pyspark.memory` (each worker gets it divided by `spark.executor.cores`; at "
            "least 512m), raise `spark.parallelism`, or take less per epoch (`limits_per_epoch`).",
            limit_bytes=self.limit_bytes,
        )


UNLIMITED = MemoryBudget()


def budget_bytes(limit_bytes: int | None) -> int:
    """Return the budget of tasks in workers with this limit; None: unlimited.

    A limit of 1,024 MiB leaves 1,024 - 352 = 672 MiB. A limit of 384 MiB leaves 32, so the budget is 384 / 8 = 48 MiB.
    """
    if limit_bytes is None:
        return UNLIMITED_BYTES
    return max(limit_bytes - RESERVED_BYTES, limit_bytes // MIN_BUDGET_DIVISOR)


def address_space_limit() -> int | None:
    """Return the limit of this process's address space in bytes; None: unlimited."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit_bytes == resource.RLIM_INFINITY else limit_bytes


def apply_worker_limit() -> int | None:
    """Return the limit of this worker. A limited worker returns freed memory immediately from now on."""
    limit_bytes = address_space_limit()
    if limit_bytes is not None:
        _release_freed_memory()
    return limit_bytes


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the limit was reached: no memory, no mapping, or no stack for a thread.

    The import of a library then fails with "failed to map segment".
    """
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error)
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    message = str(error)
    is_thread_refused = isinstance(error, RuntimeError) and "start new thread" in message
    return (
        isinstance(error, MemoryError) or is_thread_refused or "Failed to launch worker thread" in message
    )  # by Arrow


def reduce_reserved_memory() -> None:
    """Keep libraries from reserving address space for idle threads. Call it before they are imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no linear algebra is used; each thread reserves 40 MB
    # One heap for everything. Arrow's other pools reserve 128 MB or more at a time, and free large blocks immediately.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if _LIMIT_VARIABLE in os.environ:
        _reduce_stacks()
    else:
        _retain_freed_memory()
    _mallopt(_M_ARENA_MAX, 1)  # otherwise one arena of 64 MB per thread


def _retain_freed_memory() -> None:
    """Retain freed memory for the next epoch. Otherwise the kernel clears some 100 MB of pages again in each epoch.

    Spark ends a worker that was idle for a minute, which frees the memory.
    """
    _mallopt(_M_MMAP_MAX, 0)
    _mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)
    _mallopt(_M_TOP_PAD, _GROWTH_BYTES)


def _release_freed_memory() -> None:
    """Map and unmap large arrays one by one, so that none leaves a hole that counts against the limit permanently."""
    _mallopt(_M_MMAP_MAX, _MAPPINGS)
    _mallopt(_M_TOP_PAD, _LARGE_BYTES)
    _mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
    import pyarrow as pa  # too early for an import in `reduce_reserved_memory`

    if pa.default_memory_pool().backend_name != "system":
        pa.set_memory_pool(pa.system_memory_pool())
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)


def _reduce_stacks() -> None:
    """Reserve 2 MiB for the stack of each new thread instead of 8. A task has about five, so it has 30 MiB more."""
    libc: Any = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    with contextlib.suppress(AttributeError):  # not glibc
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        libc.pthread_setattr_default_np(attributes)


def _mallopt(parameter: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # not glibc
        libc.mallopt(parameter, value)
