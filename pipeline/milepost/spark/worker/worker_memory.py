"""Worker memory is read from the limit that a Python worker runs under, and kept small where there is one.

`spark.executor.pyspark.memory`, divided by `spark.executor.cores`, limits a worker's *address space* (RLIMIT_AS): what
is mapped and reserved counts, used or not. Libraries and the interpreter take `RESERVED_BYTES` of it; what is left is
the budget for one task's rows and state.

The budget decides where buffers, runs and files are cut, and so what an attempt sends and stages. It is decided once
per epoch, by the driver: attempts on workers of different limits are the same attempt (I12).
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
"""Measured: 310 MiB when a task begins, and what the exchange, the store's client and the threads take besides."""

MIN_BUDGET_DIVISOR = 8
"""A limit that leaves less than this part of itself is tried with that part."""

UNLIMITED_BYTES = 4 << 30
"""The budget without a limit: a task of more rows and state than that works in slices too."""

_LIMIT_VARIABLE = "PYSPARK_EXECUTOR_MEMORY_MB"
"""Spark starts the daemon of limited workers with it."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8
_LARGE_BYTES = 256 << 10
_MAPPINGS = 1 << 16
_RETAINED_BYTES = 1 << 30
_GROWTH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """How much one task may hold.

    Attributes:
        bytes: of rows and state at work; the same for every attempt of an epoch.
        limit_bytes: of this worker's address space; None = unlimited. Only told, never worked with.
    """

    bytes: int = UNLIMITED_BYTES
    limit_bytes: int | None = None

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows may wait in memory; more wait on the disk."""
        return self.bytes // 8

    def exceeded(self, who: str, error: BaseException) -> EnvironmentUnusable:
        """Return what is said of a task that needed more than there is."""
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
    """Return how much the tasks of an epoch may hold whose workers have this limit; None = unlimited."""
    if limit_bytes is None:
        return UNLIMITED_BYTES
    return max(limit_bytes - RESERVED_BYTES, limit_bytes // MIN_BUDGET_DIVISOR)


def address_space_limit() -> int | None:
    """Return the limit of this process's address space; None = unlimited."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit_bytes == resource.RLIM_INFINITY else limit_bytes


def apply_worker_limit() -> int | None:
    """Return the limit of this worker. One that has one gives memory back at once from here on."""
    limit_bytes = address_space_limit()
    if limit_bytes is not None:
        _release_freed_memory()
    return limit_bytes


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the limit was met: no memory, no mapping, or no stack for a thread.

    A library that is imported then says of a part of it that it cannot be mapped.
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
    """Keep libraries from reserving address space for threads that do no work here. Call before they are imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no linear algebra is done, and each thread reserves 40 MB
    # One heap for all; the other pools reserve 128 MB and more at a time, and give large blocks back at once.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if _LIMIT_VARIABLE not in os.environ:
        _retain_freed_memory()
    _mallopt(_M_ARENA_MAX, 1)  # of 64 MB each, one per thread that ever asks


def _retain_freed_memory() -> None:
    """Keep freed memory for the next epoch: else each one has the system clear some hundred megabytes of pages again.

    Spark ends a worker that had nothing to do for a minute, and that gives it back.
    """
    _mallopt(_M_MMAP_MAX, 0)
    _mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)
    _mallopt(_M_TOP_PAD, _GROWTH_BYTES)


def _release_freed_memory() -> None:
    """Large arrays are mapped and unmapped one by one, so that none leaves a hole that counts for ever."""
    _mallopt(_M_MMAP_MAX, _MAPPINGS)
    _mallopt(_M_TOP_PAD, _LARGE_BYTES)
    _mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
    import pyarrow as pa  # imported by every worker, and not yet where `reduce_reserved_memory` is called

    if pa.default_memory_pool().backend_name != "system":
        pa.set_memory_pool(pa.system_memory_pool())
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)


def _mallopt(parameter: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # another libc than glibc: it has other habits
        libc.mallopt(parameter, value)
