"""The Spark Connect server of a stack: on loopback only, behind a token, with the settings that epochs rely on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from milepost.spark.driver.class_archive import archive_options
from milepost.spark.driver.java import find_java
from milepost.spark.driver.session import QUICK_COMPILER, properties_text
from milepost.spec.values.spark_settings import JAVA_OPTIONS, TASK_ATTEMPTS, local_cores, settings_of
from scripts.processes import LOOPBACK

MASTER = "local[2]"
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

SETTINGS: dict[str, str] = {
    "spark.app.name": "milepost-connect",
    "spark.master": f"local[{local_cores(MASTER)},{TASK_ATTEMPTS}]",
    # Spark's own default is every interface, for everybody.
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.grpc.port.maxRetries": "0",
    # What a killed client left running ends soon; a live one that lost its connection asks again within 17 s.
    "spark.connect.execute.manager.detachedTimeout": "30s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    # What is kept for a UI that is off.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.connect.ui.retainedStatements": "20",
    "spark.sql.connect.ui.retainedSessions": "20",
}


def write_properties(file: Path, port: int, more: Mapping[str, str]) -> None:
    """Write what the server is started with, `more` over our own settings; the token is not in it."""
    options = (archive_options(find_java()), QUICK_COMPILER, "-XX:+UseSerialGC")
    settings = {
        **SETTINGS,
        **settings_of(MASTER, {}),
        **more,
        "spark.connect.grpc.binding.port": str(port),
        JAVA_OPTIONS: " ".join(option for option in options if option),
    }
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(properties_text(settings))


def command(properties: Path) -> list[str]:
    """Return the command line of the server; it holds no secret."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(submit), "--properties-file", str(properties), "--class", CLASS, "spark-internal"]


def java_home() -> str:
    return str(find_java().home)


def token(file: Path) -> str:
    """Return the token of a stack's server, made once: clients that were started with it outlive a server."""
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(secrets.token_urlsafe(32))
    return file.read_text(encoding="ascii")
