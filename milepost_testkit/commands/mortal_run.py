"""`milepost` as a process that dies by plan: the real command line, its driver's stores hooked.

    python -m milepost_testkit.commands.mortal_run '{"die": {…}}' run JOB --until-caught-up

The plan, JSON: `die`: kill -9 of this process right after the store did the write it describes; `hold`: wait for ever
before that write, to be killed from outside; `freeze`: stop this process (SIGSTOP) right before a write of its epoch,
once it has told which that is in a file; `freeze_worker`: one of its Python workers stops so, see `freeze_a_worker`;
`clock_ahead_ms`: the store's clock, for what needs time to pass; `spark`: false runs epochs in this process.
Spark's JVM keeps its own standard input open, so it lives on as an orphan whatever happens to its driver.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from milepost.__main__ import main
from milepost.jobmaster.job import context as job_context
from milepost.jobmaster.job.input import next_input
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.hooked_store import HookedStore

PROBES = "_probe/"
"""What a process tries a store with, before it uses it."""


@dataclass
class WritePoint:
    """One write of the driver.

    Attributes:
        operation: put, create or delete. store: end of the store's URL. key: regular expression of the whole key.
        event: for manifest entries, the type of the event. skip: how many such writes pass first.
    """

    operation: str
    store: str
    key: str
    event: str | None = None
    skip: int = 0

    def struck(self, store: ObjectStore, operation: str, key: str) -> bool:
        """Whether this is the write; a manifest entry must have landed to be known by its event."""
        if operation != self.operation or not store.config.url.endswith(self.store) or not re.fullmatch(self.key, key):
            return False
        if self.event is not None and json.loads(store.get(key))["event"]["type"] != self.event:
            return False
        self.skip -= 1
        return self.skip < 0


@dataclass
class Freeze:
    """The write before which this process stops, until it is resumed.

    Attributes:
        told: file that says what it is. write: its number, from 0, among those whose store and key have a match.
    """

    told: str
    write: int = 0
    match: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def before(self, store: ObjectStore, operation: str, key: str) -> None:
        place = f"{store.config.url}/{key}"
        if operation not in WRITES or key.startswith(PROBES) or not re.search(self.match, place):
            return
        with self._lock:
            self.write -= 1
            if self.write == -1:
                Path(self.told).write_text(f"{operation} {place}", encoding="utf-8")
                # To the process, another thread may take it a moment later, and this one has written by then.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


@dataclass(eq=False)
class MortalStore(HookedStore):
    """The inner store under the process's plan."""

    clock_ahead_ms: int = 0

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + self.clock_ahead_ms


def plan_stores(plan: dict[str, Any]) -> None:
    """Let every store that the driver opens follow the plan; those of the Python workers stay as they are."""
    die = WritePoint(**plan["die"]) if "die" in plan else None
    hold = WritePoint(**plan["hold"]) if "hold" in plan else None
    freeze = Freeze(**plan["freeze"]) if "freeze" in plan else None

    def opened(config: StoreConfig) -> ObjectStore:
        inner = open_store(config)

        def before(operation: str, key: str) -> None:
            if hold is not None and hold.struck(inner, operation, key):
                threading.Event().wait()
            if freeze is not None:
                freeze.before(inner, operation, key)

        def after(operation: str, key: str) -> None:
            if die is not None and die.struck(inner, operation, key):
                os.kill(os.getpid(), signal.SIGKILL)

        return MortalStore(inner, before, after, plan.get("clock_ahead_ms", 0))

    job_context.open_store = next_input.open_store = opened  # type: ignore[assignment]


def independent(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start the JVM with a standard input whose other end it holds itself: our death is no end of file for it."""
    reading, writing = os.pipe()
    try:
        return subprocess.Popen(command, **{**options, "stdin": reading, "pass_fds": (writing,)})
    finally:
        os.close(reading)
        os.close(writing)


def run_under(plan: dict[str, Any]) -> NoReturn:
    """Run the command line of `sys.argv` under a plan, and end the process."""
    plan_stores(plan)
    if plan.get("spark", True):
        from pyspark import java_gateway

        java_gateway.Popen = independent
        if "freeze_worker" in plan:
            from milepost_testkit.tasks.faults.frozen_worker import freeze_a_worker

            freeze_a_worker(**plan["freeze_worker"])
    else:
        from milepost.spark.driver import runner
        from milepost_testkit.runners.sparkless_runner import SparklessRunner

        runner.SparkEpochRunner = SparklessRunner  # type: ignore[misc, assignment]
    main()
    raise AssertionError("unreachable: the command line ends the process")


if __name__ == "__main__":
    run_under(json.loads(sys.argv.pop(1)))
