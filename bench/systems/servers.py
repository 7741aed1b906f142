"""A running Spark Connect server for the systems that start a new process per epoch: on loopback, behind a token."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost.spark.driver.engines import connect_server
from milepost.spark.driver.engines.session import properties_text
from scripts.processes import PYTHON_PATH, free_port

_STARTED_WITHIN_S = 180.0


class Server:
    """One server process; ended by `stop`. Attributes: address: as `spark.remote` takes it."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None) -> None:
        """Start it and wait until it answers.

        Args:
            settings: of Spark; None: those of Milepost's own server, as `make demo` starts it.
        Raises: TimeoutError: it does not respond; its log is in `folder`.
        """
        folder.mkdir(parents=True)
        port = free_port()
        # Plain text needs the name: for an address of digits the client asks for TLS.
        self.address = f"sc://localhost:{port}"
        os.environ[TOKEN_VARIABLE] = secrets.token_urlsafe(32)
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYTHONPATH": PYTHON_PATH}
        os.environ["PYSPARK_PYTHON"] = sys.executable
        properties = folder / "spark.properties"
        if settings is None:
            connect_server.write_properties(properties, port, {})
        else:
            properties.write_text(properties_text({**settings, **_reached(port)}), encoding="ascii")
        with (folder / "server.log").open("wb") as log:
            command = connect_server.command(properties)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while not _listens(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"the Spark Connect server does not answer; its log is {folder / 'server.log'}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)


def _reached(port: int) -> dict[str, str]:
    return {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.port.maxRetries": "0",
    }


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
