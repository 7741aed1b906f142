"""Spark for random jobs: a Connect server and a cluster whose processes get killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import psutil

from milepost_testkit.servers.connect_server import ConnectServer, connect_server
from milepost_testkit.servers.s3_servers import S3Server
from milepost_testkit.servers.spark_cluster import SparkCluster, spark_cluster

_WORKER = "pyspark"
_OF_CLUSTER = {"spark.cores.max": "1", "spark.executor.cores": "1", "spark.executor.memory": "500m"}
"""Several commands run side by side, and a frozen one keeps what it has."""


def connection(endpoint_url: str, s3: S3Server) -> dict[str, str]:
    """Return a spec's `store` whose credentials reach Spark tasks, and set the variables that it names."""
    about = {"conn_type": "aws", "login": s3.access_key, "password": s3.secret_key}
    name = f"chaos_{endpoint_url.rpartition(':')[2]}"
    extra = {"endpoint_url": endpoint_url, "region_name": "us-east-1"}
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(about | {"extra": extra})
    return {"conn_id": name}


class Spark(Protocol):
    """A running Spark. name: its name in the log. section: the `spark` section of a spec."""

    @property
    def name(self) -> str: ...

    @property
    def section(self) -> Mapping[str, Any]: ...

    def kill_worker(self, random: Random) -> bool:
        """Kill one of the processes that run tasks. Returns whether there was one."""


@dataclass(frozen=True)
class SparkServer:
    """A Connect server whose Python workers are killed."""

    server: ConnectServer
    name: str = "Spark Connect"

    @property
    def section(self) -> Mapping[str, Any]:
        return {"remote": self.server.remote}

    def kill_worker(self, random: Random) -> bool:
        return _kill_one([one for one in self.server.processes[1:] if _is_python(one)], random)


@dataclass(frozen=True)
class ClusterOfJobs:
    """A standalone cluster whose executors and Python workers are killed. Drivers run in the commands' processes."""

    cluster: SparkCluster
    name: str = "a cluster"

    @property
    def section(self) -> Mapping[str, Any]:
        return {"master": self.cluster.url, "conf": self.cluster.conf(_OF_CLUSTER)}

    def kill_worker(self, random: Random) -> bool:
        machines = self.cluster.machines
        workers = [one for machine in machines for one in machine.tree() if _is_python(one)]
        executors = [one for machine in machines for one in machine.executors]
        return _kill_one(random.choice((workers, executors)), random)


def _kill_one(found: Sequence[psutil.Process], random: Random) -> bool:
    with suppress(psutil.NoSuchProcess):
        if found:
            random.choice(found).kill()
            return True
    return False


def _is_python(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "python" in process.name() and any(_WORKER in word for word in process.cmdline())
    return False


@contextmanager
def spark_server(folder: Path) -> Iterator[SparkServer]:
    """Run a server during the block. Processes that begin in it have its address in their environment."""
    with connect_server(folder) as server:
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
        yield SparkServer(server)


@contextmanager
def cluster_of_jobs(folder: Path) -> Iterator[ClusterOfJobs]:
    """Run a cluster during the block."""
    with spark_cluster(folder) as cluster:
        yield ClusterOfJobs(cluster)
