"""The Spark of those random jobs that run on it: one Connect server, and the Python workers that it loses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from tests.harness.servers.connect_server import ConnectServer, connect_server
from tests.harness.servers.s3_servers import S3Server

_WORKER = "pyspark"


def connection(endpoint_url: str, s3: S3Server) -> dict[str, str]:
    """Return the `store` of a spec whose credentials reach the tasks of Spark, and note what it names."""
    about = {"conn_type": "aws", "login": s3.access_key, "password": s3.secret_key}
    name = f"chaos_{endpoint_url.rpartition(':')[2]}"
    extra = {"endpoint_url": endpoint_url, "region_name": "us-east-1"}
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(about | {"extra": extra})
    return {"conn_id": name}


@dataclass(frozen=True)
class SparkServer:
    """A running server, and what its clients need."""

    server: ConnectServer

    @property
    def remote(self) -> str:
        return self.server.remote

    def kill_worker(self, random: Random) -> bool:
        """Kill one of its Python processes. Returns whether there was one."""
        with suppress(psutil.NoSuchProcess):
            found = [one for one in self.server.processes[1:] if _is_python(one)]
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
    """A server while the block runs; every process that begins meanwhile is told how to reach it."""
    with connect_server(folder) as server:
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
        yield SparkServer(server)
