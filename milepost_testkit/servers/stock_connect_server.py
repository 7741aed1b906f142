"""A Spark Connect server as Spark starts it: with none of our settings, in an environment without Milepost."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost_testkit.processes.processes import accepts, free_ports, wait_until
from milepost_testkit.servers.spark_cluster import SPARK, Machine

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class StockConnectServer:
    """A running server, on loopback."""

    machine: Machine
    remote: str
    token: str


@contextmanager
def stock_connect_server(
    folder: Path,
    python: Path,
    *,
    master: str = "local[2]",
    spark: Path = SPARK,
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[StockConnectServer]:
    """A server while the block runs.

    Args:
        python: what its tasks run in. master: of its Spark. spark: location of Spark. conf: further settings.
    """
    (port,) = free_ports(1)
    token = secrets.token_urlsafe(32)
    more = {TOKEN_VARIABLE: token, "PYSPARK_PYTHON": str(python), "SPARK_DAEMON_MEMORY": "1g"}
    machine = Machine(folder, "127.0.0.1", spark, more)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        **conf,
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    try:
        machine.start("spark-submit", "--master", master, *options, "--class", CLASS, "spark-internal")
        wait_until(lambda: accepts(port), seconds=240, what="the Connect server", process=machine.process)
        yield StockConnectServer(machine, f"sc://localhost:{port}", token)
    finally:
        machine.stop(kill=True)
