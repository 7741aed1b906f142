"""The Spark session that epochs run in: settings that the protocol relies on, and a clean environment.

Set here and nowhere else:
* `spark.sql.adaptive.enabled=false`: one exchange has exactly `parallelism` partitions; a partition is a subtask.
* ANSI mode and UTC: SQL gives the same answer on every machine.
* task retries: `local[N]` allows none, so it becomes `local[N, F]`; a lost worker is then repaired by Spark itself.
* `spark.sql.execution.arrow.compression.codec` stays off: it was seen to hang a large job.
* what Spark logs goes to those who ask for logs: an error reaches its user as ours, in a few lines (`refusals.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipeline.config.spec import SparkSpec
from pipeline.protocol.errors import EnvironmentUnusable
from pipeline.spark.java import find_java_home

TASK_ATTEMPTS = 3
"""How often Spark tries a task before the epoch is declined; the checkpoint itself is tried once."""

_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)\])?$")
_LOOPBACK = "127.0.0.1,localhost,::1"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark logs every SQL error with its Java stack trace through these, before it raises it."""

_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.task.maxFailures": str(TASK_ATTEMPTS),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def open_session(job: str, spec: SparkSpec) -> SparkSession:
    """Return the process's session for a job's settings, starting Spark when there is none.

    Raises:
        EnvironmentUnusable: no usable Java, a host name that does not resolve, or Spark did not start.
    """
    master = _LOCAL_MASTER.match(spec.master)
    _prepare_environment(local=master is not None)
    name = spec.master
    if master is not None:
        name = f"local[{master.group(1) or 1},{TASK_ATTEMPTS}]"
    builder = SparkSession.builder.appName(f"milepost-{job}").master(name)
    settings = dict(_SETTINGS)
    if master is not None:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= spec.conf
    settings[_JAVA_OPTIONS] = f"{_logging_options()} {settings.get(_JAVA_OPTIONS, '')}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    before = {child.pid for child in psutil.Process().children()}
    try:
        return builder.getOrCreate()
    except BaseException as error:
        _end_started(before)
        if not isinstance(error, Exception):
            raise
        raise EnvironmentUnusable(
            f"Spark did not start with master {spec.master}: {str(error).splitlines()[0] if str(error) else error!r}",
            hint="milepost doctor shows which part of the environment is missing",
        ) from error


def _end_started(before: set[int]) -> None:
    """End the JVM of a start that failed or was interrupted: nobody holds its gateway, so nobody else ever would."""
    for child in psutil.Process().children():
        if child.pid not in before:
            for process in [*child.children(recursive=True), child]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _logging_options() -> str:
    """Java options of a JVM that logs errors if this process logs, and else nothing; quiets PySpark alike."""
    asked = logging.getLogger("pipeline").isEnabledFor(logging.INFO)
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.WARNING if asked else logging.CRITICAL + 1)
    configuration = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"-Dlog4j2.configurationFile={configuration} -Dmilepost.log.level={'error' if asked else 'off'}"


def _prepare_environment(*, local: bool) -> None:
    """Give the JVM and the Python workers what they need, whatever the caller's shell had."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)
    for name in ("NO_PROXY", "no_proxy"):
        present = os.environ.get(name, "")
        if "127.0.0.1" not in present.split(","):
            os.environ[name] = f"{present},{_LOOPBACK}" if present else _LOOPBACK
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_LOCAL_HOSTNAME"] = "localhost"
        return
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise EnvironmentUnusable(
            f"host name {socket.gethostname()} does not resolve, and Spark needs it to reach this driver",
            hint="add it to /etc/hosts, or use a local[N] master",
        ) from error
