"""A cluster of a file's own, and what stands before the storage of its jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost_testkit.jobs.connected_job import lake_connection
from milepost_testkit.proxies.holding_proxy import HoldingProxy
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import SparkCluster, spark_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def storage(seaweed: Seaweed) -> Iterator[HoldingProxy]:
    """What stands before the storage, for the driver and, as it tells them, for the workers."""
    with HoldingProxy(seaweed.port) as proxy, pytest.MonkeyPatch.context() as environment:
        for name, value in lake_connection(seaweed, endpoint_url=proxy.endpoint_url).items():
            environment.setenv(name, value)
        yield proxy
        proxy.release_all()
