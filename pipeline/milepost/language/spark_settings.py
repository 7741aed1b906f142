"""Spark settings that Milepost controls, and so refuses in `spark.conf`.

The spec checks and the code that opens a session both read this table, so they cannot drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

TASK_ATTEMPTS = 3
"""Attempts of a Spark task before the epoch is declined. The checkpoint itself is not retried."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""The only shared setting: the spec's options are appended to Milepost's."""

PYTHON = "spark.pyspark.python"
"""The Python interpreter of a cluster's workers: a path on the workers, or in an archive of `spark.archives`."""

SESSION_PYTHON = "spark.sql.execution.pyspark.python"
"""The same for a session on a running Spark Connect server."""

ARCHIVES = "spark.archives"

SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"

COMMAND_LINE = (
    JAVA_OPTIONS,
    "spark.driver.defaultJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
)
"""Settings that Spark puts on a command line, where a secret would be visible."""

FIXED: Mapping[str, tuple[str, str]] = {
    "spark.sql.adaptive.enabled": ("false", "one partition of an exchange is one subtask, and none may be merged"),
    "spark.sql.ansi.enabled": ("true", "a value that SQL cannot compute is an error, not a null"),
    "spark.sql.caseSensitive": ("false", "column names that differ only in case are the same"),
    "spark.sql.variable.substitute": ("false", "`${…}` in SQL is text, not a setting of Spark or of the machine"),
    "spark.sql.session.timeZone": ("UTC", "times mean the same on every machine"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("65536", "it bounds what a subtask holds at once"),
    "spark.sql.execution.arrow.maxBytesPerBatch": ("8388608", "it bounds what a subtask receives at once"),
    "spark.sql.execution.arrow.pyspark.enabled": ("true", "rows travel between Spark and Python as Arrow"),
    "spark.sql.execution.arrow.compression.codec": ("none", "compressed Arrow streams were seen to hang a large job"),
    "spark.sql.execution.arrow.useLargeVarTypes": ("false", "the recorded state has the small types"),
    "spark.python.daemon.module": ("milepost.spark.worker.worker_daemon", "workers are forked with their imports done"),
    "spark.python.worker.reuse": ("true", "a Python worker per task would cost seconds"),
    "spark.task.maxFailures": (str(TASK_ATTEMPTS), "a lost worker is repaired by trying its task again"),
    "spark.ui.enabled": ("false", "an epoch opens no port for other machines"),
    "spark.ui.showConsoleProgress": ("false", "it would write over the epoch's own progress"),
}
"""Setting -> (value, why the spec cannot change it)."""

LOOPBACK: Mapping[str, tuple[str, str]] = {
    "spark.shuffle.compress": ("false", "buffers that stay on this machine cost more to compress than to copy"),
    "spark.shuffle.checksum.enabled": ("false", "every channel's buffers have a digest of their own"),
    SOCKETS: ("true", "over TCP a task waits 40 ms for a delayed acknowledgement"),
    "spark.driver.host": ("127.0.0.1", "a local master is reachable only on this machine"),
    "spark.driver.bindAddress": ("127.0.0.1", "a local master is reachable only on this machine"),
}
"""Also fixed with a local master. With a cluster the spec may set them."""

DEFAULTS: Mapping[str, str] = {
    # With few receivers Spark would otherwise write each shuffle file twice. The price: a row has to fit into a task's
    # share of the memory.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    # Pass exchange buffers between the JVM and Python in few pieces.
    "spark.buffer.size": str(1 << 20),
}
"""Defaults with a local master; `spark.conf` overrides them."""

ELSEWHERE: Mapping[str, str] = {
    "spark.master": "it comes from the spec's key `spark.master`",
    "spark.app.name": "it is the job's name",
    "spark.submit.deployMode": "an epoch's driver is the process that runs it",
    "spark.remote": "it comes from the spec's key `spark.remote`",
    "spark.api.mode": "it follows from the spec's key `spark.remote`",
    "spark.connect.authenticate.token": "it comes from the environment variable SPARK_CONNECT_AUTHENTICATE_TOKEN",
}
"""Settings that are determined elsewhere -> where."""

_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)\])?")


def local_cores(master: str) -> str | None:
    """Return the number of cores of a local master, or ``*``; None if the master is not local."""
    match = _LOCAL_MASTER.fullmatch(master)
    return None if match is None else match[1] or "1"


def settings_of(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session with this master: defaults, then `spark.conf`, then the fixed ones."""
    local = local_cores(master) is not None
    fixed = {**FIXED, **(LOOPBACK if local else {})}
    return {**(DEFAULTS if local else {}), **conf, **{key: value for key, (value, _) in fixed.items()}}


def session_settings() -> dict[str, str]:
    """Return the settings to apply to a session on a running Spark Connect server."""
    return {key: value for key, (value, _) in FIXED.items() if key.startswith("spark.sql.")}


def conf_problems(master: str, conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each invalid key of `spark.conf`."""
    reasons = {key: why for key, (_, why) in FIXED.items()} | dict(ELSEWHERE)
    if local_cores(master) is not None:
        reasons |= {key: why for key, (_, why) in LOOPBACK.items()}
    for key, value in conf.items():
        if key in reasons:
            yield key, f"is set by Milepost ({reasons[key]}); remove it"
        elif not key.startswith("spark.") or any(c.isspace() for c in key):
            yield key, "Spark ignores settings whose name does not begin with `spark.`; correct or remove it"
        elif key in COMMAND_LINE and "${env:" in value:
            yield key, "is visible in the process list to every user of the machine: write it without ${env:…}"
