"""The Spark that epochs run on, whatever kind of session it is: in this process, or on a Spark Connect server.

DataFrames are the same on both. What is not, is here and in `connect.py`, and nowhere else: how jobs are tagged and
interrupted, how many tasks run at once, and which errors mean that there is no Spark any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.planning import EpochPlan
from milepost.protocol.errors import CheckpointError, SparkLost
from milepost.protocol.ids import FencingToken
from milepost.spark.session import is_alive, open_session

_LOG = logging.getLogger(__name__)

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""What a Spark job raises: the first from both kinds of session, the others from one in this process only, whose JVM
may have gone."""


class Engine(Protocol):
    """One session, and what the runner needs of it beside DataFrames."""

    session: SparkSession

    @property
    def slots(self) -> int:
        """How many tasks run at once."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Give the jobs that this thread starts in the block a tag."""

    def interrupt(self, tag: str) -> None:
        """Cancel the running jobs with a tag, from any thread; nothing when there are none."""

    def lost(self, error: Exception) -> CheckpointError | None:
        """What it means when Spark itself is gone, or was taken away; None for an error of the job."""


class ClassicEngine:
    """A session whose driver is this process, on a local master or a cluster."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

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
            # Amid an interrupt the JVM may not answer; it is the interrupt that counts.
            with suppress(Py4JError, ConnectionError):
                context.removeJobTag(tag)
            raise
        context.removeJobTag(tag)

    def interrupt(self, tag: str) -> None:
        try:
            self.session.sparkContext.cancelJobsWithTag(tag)
        except (Py4JError, ConnectionError) as error:  # a JVM that is gone runs nothing
            _LOG.warning("the jobs of %s were not interrupted: %s", tag, error)

    def lost(self, error: Exception) -> CheckpointError | None:
        if is_alive(self.session.sparkContext):
            return None
        return SparkLost(
            f"the Spark of this process, with master {self.session.sparkContext.master}, ended amid the epoch. "
            "Nothing of this epoch is visible.",
            hint="it may have been killed for its memory, see the system's log and spark.driver.memory; run again",
        )


def epoch_tag(plan: EpochPlan, token: FencingToken) -> str:
    """The tag of the jobs that an epoch runs under a token."""
    return f"{plan.spec.name}/{plan.timeline}/{token}"


def load_engine(plan: EpochPlan) -> None:
    """Import the modules of the kind of session that a plan's spec asks for."""
    if plan.spec.spark.remote is not None:
        import milepost.spark.connect  # noqa: F401


def open_engine(plan: EpochPlan, kept: Engine | None = None) -> Engine:
    """Return the engine of a plan's spec, ready to run: the one that this process kept, if it still serves.

    Raises: EnvironmentUnusable.
    """
    if plan.spec.spark.remote is None:
        return ClassicEngine(open_session(plan.spec.name, plan.spec.spark))
    from milepost.spark.connect import RemoteEngine, open_remote  # they need gRPC, which the other kind does not

    return open_remote(plan, kept if isinstance(kept, RemoteEngine) else None)
