"""Run epochs in a Spark session with this process as its driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from milepost.errors import CheckpointError, SparkLost
from milepost.spark.driver.engines.session import is_alive
from milepost.spark.driver.engines.standalone import who_has_cores

_LOG = logging.getLogger(__name__)


class ClassicEngine:
    """A session with this process as its driver, on a local master or a cluster."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    @property
    def name(self) -> str:
        return f"the cluster at {self.session.sparkContext.master}"

    @property
    def is_own(self) -> bool:
        return str(self.session.sparkContext.master).startswith("local[")

    @property
    def is_here(self) -> bool:
        return self.is_own

    def setting(self, key: str) -> str:
        return self.session.conf.get(key, "") or ""

    @property
    def slots(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        context = self.session.sparkContext
        context.addJobTag(tag)
        try:
            yield
        except BaseException:
            # During an interrupt the JVM may not answer. Raise the interrupt, not that error.
            with suppress(Py4JError, ConnectionError):
                context.removeJobTag(tag)
            raise
        context.removeJobTag(tag)

    def interrupt(self, tag: str) -> None:
        try:
            self.session.sparkContext.cancelJobsWithTag(tag)
        except (Py4JError, ConnectionError) as error:  # a JVM that has ended runs no jobs
            _LOG.warning("the jobs of %s were not interrupted: %s", tag, error)

    def why_starved(self) -> str | None:
        context = self.session.sparkContext
        with suppress(Py4JError, ConnectionError):  # a JVM that has ended needs no cores
            jvm: Any = context._jsc
            executors = jvm.sc().getExecutorMemoryStatus().size() - 1  # the driver is included
            return None if self.is_own or executors else who_has_cores(context)
        return None

    def lost(self, error: Exception) -> CheckpointError | None:
        if is_alive(self.session.sparkContext):
            return None
        return SparkLost(
            f"the Spark of this process, with master {self.session.sparkContext.master}, ended during the epoch. "
            "Nothing of this epoch is visible.",
            hint="it may have run out of memory: see the system's log, raise spark.driver.memory, and run again",
        )
