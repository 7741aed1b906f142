"""The interface of a Spark session, in this process or on a Connect server.

DataFrames are the same for both. `classic.py` and `connect.py` hold all differences: how jobs are tagged and
interrupted, how many tasks run in parallel, and which errors mean that Spark has ended.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.epoch import EpochPlan
from milepost.errors import CheckpointError
from milepost.protocol.records import FencingToken

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""Errors of a Spark job. Both kinds of session raise the first; if its JVM ends, a session of this process also
raises the others."""


class Engine(Protocol):
    """One session, with the operations that the runner needs besides DataFrames."""

    session: SparkSession

    @property
    def name(self) -> str:
        """Kind and address of the session, for messages."""

    @property
    def is_own(self) -> bool:
        """Whether the session is `local[N]` in this process, so that its workers run this Python environment."""

    @property
    def is_here(self) -> bool:
        """Whether its tasks run on this machine and can open this process's folders."""

    def setting(self, key: str) -> str:
        """Return the value of a setting when the session was opened for the epoch; "" if unset."""

    @property
    def slots(self) -> int:
        """Number of tasks that run in parallel."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Tag the jobs that this thread starts in the block."""

    def interrupt(self, tag: str) -> None:
        """Cancel the running jobs with a tag, if any. Thread-safe."""

    def why_starved(self) -> str | None:
        """Return which applications hold the cores of a cluster that gave the session none.

        None if the session has executors, or if this engine cannot tell.
        """

    def lost(self, error: Exception) -> CheckpointError | None:
        """Return the error that reports a lost Spark; None if the job failed by itself."""


def epoch_tag(plan: EpochPlan, token: FencingToken) -> str:
    """Return the tag of an epoch's jobs under a token: `clicks/1/7`."""
    return f"{plan.spec.name}/{plan.timeline}/{token}"
