"""A cluster of which parts are lost, stopped, replaced or unlike: the epoch is right, or declined and right again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.jobs.connected_job import lake_connection
from tests.harness.jobs.keyed_job import KeyedJob
from tests.harness.jobs.spec_edits import edited
from tests.harness.servers.cluster_faults import PATIENCE_S, driver, held_at
from tests.harness.servers.proxies.holding_proxy import HoldingProxy
from tests.harness.servers.s3_servers import Seaweed
from tests.harness.servers.spark_cluster import SparkCluster, spark_cluster

LIMIT_MB = 512
"""Of a worker on one of the machines: it may hold 20 MB of rows until it folds them."""

KEYS, ROWS = 1_000, 1_200_000
"""Of each object; 29 MB in memory."""

PYTHON = """\
#!/bin/sh
[ -f "$HOME/limit" ] && ulimit -v "$(cat "$HOME/limit")"
exec {python} "$@"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def storage(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[HoldingProxy]:
    """What stands before the storage, for the driver and, as it tells them, for the workers."""
    with HoldingProxy(seaweed.port) as proxy:
        for name, value in lake_connection(seaweed, endpoint_url=proxy.endpoint_url).items():
            monkeypatch.setenv(name, value)
        yield proxy
        proxy.release_all()


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
    job.spec_path.write_text(edited(job.spec_path.read_text(), {"max_files: 1": "max_files: 2"}))
    for _ in range(2):
        job.land(seed, KEYS, ROWS)
    hold = storage.hold(lambda method, path, body: method == "PUT" and "/state/totals/" in path)
    with driver() as epochs:
        epoch = epochs.run(job.spec_path)
        at = {held_at(cluster, hold, epoch, number).address for number in range(2)}
        assert at == {gone.address, limited.address}, "a receiver on each"
        gone.stop(kill=True)
        hold.release()
        assert epoch.result(PATIENCE_S).exit_code == 0, epoch.result().stderr
    cluster.start_worker(gone)
    job.assert_tables_equal_the_oracle()
