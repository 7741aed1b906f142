"""A session on a cluster that runs copies of slow tasks, that is lost, or whose driver is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.jobs.flights.clustered_flights import COMMIT, PHASES, Matches
from tests.harness.servers.cluster_faults import Running, first, held_at, killed_driver, lost_cluster, running
from tests.harness.servers.proxies.holding_proxy import HoldingProxy
from tests.harness.servers.s3_servers import Seaweed
from tests.harness.servers.spark_cluster import SparkCluster

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}
"""With these a task gets a copy on another machine soon after the others of its stage have ended."""


@pytest.fixture(scope="module")
def one(
    cluster: SparkCluster, storage: HoldingProxy, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A job of which each test runs an epoch."""
    with running(cluster, storage, seaweed, tmp_path_factory.mktemp("sessions"), SPECULATION) as one:
        yield one


def copies(one: Running) -> int:
    """How many copies of tasks Spark has begun."""
    return sum(begun["Task Info"]["Speculative"] for begun in one.logged("TaskStart"))


def test_a_slow_task_and_the_copy_of_it_that_spark_runs_are_the_same_attempt(one: Running) -> None:
    """I12: the epoch completes with the copy while the first attempt still waits for its storage."""
    hold, before = one.storage.hold(first(PHASES["sinks staged"])), copies(one)
    epoch = one.begin()
    held_at(one.cluster, hold, epoch)
    one.complete(epoch)
    assert not hold.forwarded.is_set(), "the first attempt had no part in it"
    assert copies(one) > before
    hold.release()
    one.complete(one.begin())


@pytest.mark.parametrize(
    ("whole", "phase"),
    [
        pytest.param(False, PHASES["sent to the second level"], id="its JVM, amid tasks", marks=pytest.mark.referee),
        pytest.param(True, PHASES["sent to the second level"], id="amid tasks", marks=pytest.mark.referee),
        pytest.param(True, COMMIT, id="before the commit", marks=pytest.mark.referee),
    ],
)
def test_the_run_after_one_whose_driver_was_killed_is_right_and_has_the_cluster(
    one: Running, whole: bool, phase: Matches
) -> None:
    """I3, I9: its executors end with it; a write of it that comes late lands below a token that leads no more."""
    killed_driver(one, phase, whole=whole)


@pytest.mark.referee
def test_a_cluster_that_is_not_back_when_the_epoch_is_run_again_is_waited_for(one: Running) -> None:
    """Its address was right: it is lost each time, which restarts try again, and what it was once it is back."""
    lost_cluster(one, PHASES["sent to the second level"])
