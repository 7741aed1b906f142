"""An engine is a Spark session, in this process or on a Spark Connect server, and what runs on it.

DataFrames are the same on both. What is not, is in `classic.py` and `connect.py`, and nowhere else: how jobs are tagged
and interrupted, how many tasks run at once, and which errors mean that there is no Spark any more.
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
"""What a Spark job raises: the first from both kinds of session, the others from one of this process, whose JVM may
have gone."""


class Engine(Protocol):
    """One session, and what the runner needs of it beside DataFrames."""

    session: SparkSession

    @property
    def name(self) -> str:
        """What it is and where, for messages."""

    @property
    def is_own(self) -> bool:
        """Whether it is `local[N]` of this process: then its workers have this Python, and what that has."""

    @property
    def is_here(self) -> bool:
        """Whether its tasks run on this machine, and so find the folders that this process names."""

    def setting(self, key: str) -> str:
        """Return a setting that the session had when it was opened for the epoch; "" without one."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Give the jobs that this thread starts in the block a tag."""

    def interrupt(self, tag: str) -> None:
        """Cancel the running jobs with a tag, from any thread; nothing when there are none."""

    def why_starved(self) -> str | None:
        """Return who has the cores of a cluster that has left the session none; None: it has some, or is not asked."""

    def lost(self, error: Exception) -> CheckpointError | None:
        """Return what it means when Spark itself is gone, or was taken away; None for an error of the job."""


def epoch_tag(plan: EpochPlan, token: FencingToken) -> str:
    """Return the tag of the jobs that an epoch runs under a token."""
    return f"{plan.spec.name}/{plan.timeline}/{token}"
