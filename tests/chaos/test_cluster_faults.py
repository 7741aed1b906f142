"""A cluster of which parts are lost, stopped, replaced or unlike: the epoch is right, or declined and right again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from milepost_testkit.cluster.cluster_faults import (
    FAULTS,
    kill_executor,
    shuffled_is_lost,
    stands_still_for_an_epoch,
    strikes,
)
from milepost_testkit.cluster.cluster_runs import PATIENCE_S, Driver, Running, cut_lines, first, held_at, meets, running
from milepost_testkit.cluster.clustered_flights import COMMIT, PHASES
from milepost_testkit.jobs.keyed_job import KeyedJob
from milepost_testkit.proxies.holding_proxy import HoldingProxy
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import SparkCluster
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.deep

LIMIT_MB = 512
"""Of a worker on one of the machines: it may hold 20 MB of rows until it folds them."""

KEYS, ROWS = 1_000, 1_200_000
"""Of each object; 29 MB in memory."""

PYTHON = """\
#!/bin/sh
[ -f "$HOME/limit" ] && ulimit -v "$(cat "$HOME/limit")"
exec {python} "$@"
"""


def test_a_task_that_is_repeated_where_workers_have_other_memory_sends_the_same(
    cluster: SparkCluster, storage: HoldingProxy, seaweed: Seaweed, tmp_path: Path, seed: int
) -> None:
    """I12: buffers and runs are cut by the budget of the epoch, which its driver decides, not by that of a worker.

    Each machine has read an object and folded its rows, and a receiver on each has taken what both sent. The machine
    without a limit goes: what it had read is read again on the limited one, for the receiver that begins anew there.
    """
    gone, limited = cluster.machines
    limited.home.joinpath("limit").write_text(str(LIMIT_MB << 10))
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=cluster.python))
    python.chmod(0o755)
    conf = {"spark.executor.cores": "1", "spark.cores.max": "2", "spark.pyspark.python": str(python)}
    job = KeyedJob.create(tmp_path / "job", seaweed, cluster.spark(conf))
    edit_spec(job.spec_path, {"max_files: 1": "max_files: 2"})
    for _ in range(2):
        job.land(seed, KEYS, ROWS)
    hold = storage.hold(lambda method, path, body: method == "PUT" and "/state/totals/" in path)
    with closing(Driver({})) as driver:
        epoch = driver.run(job.spec_path)
        at = {held_at(cluster, hold, epoch, number).address for number in range(2)}
        assert at == {gone.address, limited.address}, "a receiver on each"
        gone.stop(kill=True)
        hold.release()
        assert epoch.result(PATIENCE_S).exit_code == 0, epoch.result().stderr
    cluster.start_worker(gone)
    job.assert_tables_equal_the_oracle()


LOSSES = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "60s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.network.timeoutInterval": "2s",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.shuffle.io.connectionTimeout": "10s",
    "spark.shuffle.io.maxRetries": "0",
}
"""With these a cluster moves what an executor has that is to go, and finds out in seconds that one does not answer."""


@pytest.fixture(scope="module")
def losing(
    cluster: SparkCluster, storage: HoldingProxy, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A job of which each test runs an epoch. It has every slot of the cluster: no other job runs behind it."""
    folder = tmp_path_factory.mktemp("losing")
    with cut_lines() as (conf, lines), running(cluster, storage, seaweed, folder, LOSSES | conf, lines) as one:
        yield one


def test_shuffle_files_that_are_lost_between_stages_are_made_again(losing: Running) -> None:
    """I12: the next stage cannot fetch them; Spark runs the lost tasks again, of this level and of those before it."""
    before = losing.puts("/metrics/1-")
    # One task of the level has not ended: those of the level before have, and the other one of this level.
    shuffled_is_lost(losing, PHASES["sent to the second level"], files=3)
    assert losing.puts("/metrics/1-") - before > 2, "tasks of the level ran again"


def test_before_the_commit_nothing_of_the_cluster_is_needed(losing: Running) -> None:
    """Its tasks are done: what they made is in the storage."""
    hold = losing.storage.hold(first(COMMIT))
    epoch = losing.begin()
    meets(epoch, hold)
    for machine in losing.cluster.machines:
        kill_executor(machine)
    hold.release()
    losing.complete(epoch)


def test_a_machine_that_stands_still_is_done_without_and_what_it_does_when_it_wakes_changes_nothing(
    losing: Running,
) -> None:
    """I3: its attempt goes on under the token of an epoch that has completed with another attempt of the same task."""
    stands_still_for_an_epoch(losing, PHASES["state of the second level uploaded"])


@pytest.mark.parametrize(("fault", "phase"), [*product(FAULTS, PHASES)])
def test_a_loss_in_a_cluster_at_any_phase_changes_nothing(losing: Running, fault: str, phase: str) -> None:
    """I12, I7: tasks and what they had shuffled are made again elsewhere, and are the same attempts."""
    losing.job.add_gate()
    strikes(losing, FAULTS[fault], PHASES[phase])
