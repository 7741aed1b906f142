"""A Python worker of Spark that stops itself right before a write, until it is resumed: a zombie writer."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import cloudpickle

from milepost.spark.driver import runner
from milepost.spark.driver.epoch_graph import Stage
from milepost.storage.local.store import LocalStore
from milepost_testkit.processes.processes import wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Freezes:
    """Does what a task does; of all workers the first that is about to write a matching object stops.

    Attributes:
        match: regular expression of the object's key. told: file that then records the worker and the write.
    """

    task: Callable[[Batches], Batches]
    match: str
    told: str

    def __call__(self, batches: Batches) -> Batches:
        put, create = LocalStore.put, LocalStore.create

        def put_later(store: LocalStore, key: str, body: bytes) -> Any:
            self._before(store, key)
            return put(store, key, body)

        def create_later(store: LocalStore, key: str, body: bytes) -> Any:
            self._before(store, key)
            return create(store, key, body)

        LocalStore.put, LocalStore.create = put_later, create_later  # type: ignore[method-assign, assignment]
        try:
            yield from self.task(batches)
        finally:
            LocalStore.put, LocalStore.create = put, create  # type: ignore[method-assign]

    def _before(self, store: LocalStore, key: str) -> None:
        place = f"{store.config.url}/{key}"
        if re.search(self.match, place):
            mine = Path(f"{self.told}.{os.getpid()}")
            mine.write_text(f"{os.getpid()} {place.removeprefix('file://')}")
            with suppress(FileExistsError):
                os.link(mine, self.told)  # the first one is told whole
                # To the process, another thread may take it a moment later, and this one has written by then.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def freeze_a_worker(match: str, told: str) -> None:
    """Let one worker of the epochs that this process runs stop so. Args: as of `Freezes`."""
    planned = runner.epoch_stages

    def stages(*arguments: Any) -> Sequence[Stage]:
        return [replace(stage, task=Freezes(stage.task, match, told)) for stage in planned(*arguments)]

    runner.epoch_stages = stages  # type: ignore[assignment]


@dataclass(frozen=True)
class FrozenWorker:
    """A worker that has stopped. Attributes: place: the file that it was about to write."""

    process: psutil.Process
    place: Path

    @classmethod
    def awaited(cls, told: Path, seconds: float) -> FrozenWorker:
        """Wait until one has stopped. Raises AssertionError: none has."""
        wait_until(told.exists, seconds=seconds, what="a worker that stops before its write")
        pid, _, place = told.read_text().partition(" ")
        worker = cls(psutil.Process(int(pid)), Path(place))
        wait_until(worker.is_stopped, seconds=seconds, what=f"the stop of worker {pid}")
        return worker

    def is_stopped(self) -> bool:
        return self.process.status() == psutil.STATUS_STOPPED

    def wake(self) -> None:
        self.process.resume()
