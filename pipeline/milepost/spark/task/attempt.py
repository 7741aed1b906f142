"""One attempt of one task of an epoch, and what it runs with."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.wire.epoch_clock import Clock
from milepost.spark.worker.task_memory import Memory
from milepost.storage.open import open_store


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def upload_threads(uploads: int) -> Executor:
    """Return a pool whose threads run so many uploads beside the task."""
    return ThreadPoolExecutor(max_workers=uploads, thread_name_prefix="snapshot")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task.

    Attributes:
        subtask: index in its level. number: of the attempt, from 0; never part of identity.
        open_store: opens the stores of the job, of its sources and of its sinks.
        executor: makes what runs so many uploads. clock: milliseconds, for deadlines.
    """

    subtask: int
    number: int
    memory: Memory
    open_store: Callable[[StoreConfig], ObjectStore] = open_store
    executor: Callable[[int], Executor] = upload_threads
    clock: Clock = wall_clock_ms
