"""The resources of one attempt of one task."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.spark.wire.epoch_clock import Clock
from milepost.spark.worker.task_memory import Memory
from milepost.storage import open_store


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def upload_threads(uploads: int) -> Executor:
    """Return a pool that runs up to `uploads` uploads in parallel with the task."""
    return ThreadPoolExecutor(max_workers=uploads, thread_name_prefix="snapshot")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task.

    Attributes:
        subtask: index in its level.
        number: Spark's attempt number, from 0. Never part of identity.
        open_store: opens the stores of the job, its sources and its sinks.
        executor: returns a thread pool for a given number of uploads.
        clock: wall clock in milliseconds, for deadlines.
    """

    subtask: int
    number: int
    memory: Memory
    open_store: Callable[[StoreConfig], ObjectStore] = open_store
    executor: Callable[[int], Executor] = upload_threads
    clock: Clock = wall_clock_ms
