"""Start a Spark Connect server on loopback, with token and required settings."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from milepost.errors import EnvironmentUnusable
from milepost.language import JAVA_OPTIONS, TASK_ATTEMPTS, TOKEN_VARIABLE, settings_of
from milepost.spark.driver.engines.class_archive import archive_options
from milepost.spark.driver.engines.java import find_java
from milepost.spark.driver.engines.session import QUICK_COMPILER, prepare_environment, properties_text

LOOPBACK = "127.0.0.1"
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

SETTINGS: dict[str, str] = {
    "spark.app.name": "milepost-connect",
    # By default Spark listens on every interface.
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.grpc.port.maxRetries": "0",
    # End the jobs of a killed client soon. A live client that lost its connection reconnects within 17 s.
    "spark.connect.execute.manager.detachedTimeout": "30s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    # Retain little for the UI, which is off.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.connect.ui.retainedStatements": "20",
    "spark.sql.connect.ui.retainedSessions": "20",
}


_STARTED_WITHIN_S = 240.0
_ENDED_WITHIN_S = 30.0
_LOOK_S = 0.2
_TAIL = 15
"""Number of log lines that are shown when the server does not start."""


def write_properties(file: Path, port: int, more: Mapping[str, str], cores: int = 2) -> None:
    """Write the server's properties file. `more` overrides the defaults. The token is not in the file."""
    master = f"local[{cores}]"
    options = (archive_options(find_java()), QUICK_COMPILER, "-XX:+UseSerialGC")
    settings = {
        **SETTINGS,
        "spark.master": f"local[{cores},{TASK_ATTEMPTS}]",
        **settings_of(master, {}),
        **more,
        "spark.connect.grpc.binding.port": str(port),
        JAVA_OPTIONS: " ".join(option for option in options if option),
    }
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(properties_text(settings))


def command(properties: Path) -> list[str]:
    """Return the server's command line, which holds no secret."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(submit), "--properties-file", str(properties), "--class", CLASS, "spark-internal"]


def java_home() -> str:
    return str(find_java().home)


def connect_token(file: Path) -> str:
    """Return the server's token from a file, created once: clients keep using it after the server restarts."""
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(secrets.token_urlsafe(32))
    return file.read_text(encoding="ascii")


def require_free_port(port: int) -> None:
    """Raise EnvironmentUnusable if a process listens on a port of loopback."""
    if _listens(port):
        raise EnvironmentUnusable(
            f"port {port} is in use: no Spark Connect server was started.", hint="choose another port with --port"
        )


@contextmanager
def serve_connect(port: int, secret: str, cores: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, yield its process once it listens, and stop it at the end of the block.

    Args:
        port: port on loopback.
        secret: token that clients must present.
        cores: number of cores of its Spark.
        log: file of the server's output.

    Raises:
        EnvironmentUnusable: there is no Java, or the server does not start.
    """
    prepare_environment(local=True)
    with tempfile.TemporaryDirectory(prefix="milepost-server-") as folder, log.open("wb") as stream:
        properties = Path(folder) / "spark.properties"
        write_properties(properties, port, {}, cores)
        process = subprocess.Popen(
            command(properties),
            env={**os.environ, TOKEN_VARIABLE: secret},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # Ctrl-C reaches this process only, which stops the server
        )
        try:
            _wait_for(process, port, log)
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDED_WITHIN_S)
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _STARTED_WITHIN_S
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            log_end = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])
            raise EnvironmentUnusable(
                f"the Spark Connect server did not start; the end of its log:\n{log_end}",
                hint=f"see {log}; milepost doctor checks the environment",
            )
        time.sleep(_LOOK_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
