"""The Spark settings that Milepost makes itself: what `spark.conf` may not say, and why.

Read by the check of specs and by what opens the session, so that neither can drift from the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

TASK_ATTEMPTS = 3
"""How often Spark tries a task before the epoch is declined; the checkpoint itself is tried once."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""The one setting that is shared: the spec's options follow ours."""

PYTHON = "spark.pyspark.python"
"""The interpreter of a cluster's workers: a path there, or below an archive of `spark.archives`."""

SESSION_PYTHON = "spark.sql.execution.pyspark.python"
"""The same for one session on a running Spark Connect server."""

ARCHIVES = "spark.archives"

SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"

COMMAND_LINE = (
    JAVA_OPTIONS,
    "spark.driver.defaultJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
)
"""Settings that Spark itself puts on the command line of a process: no place for a secret."""

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
"""Setting -> its value, and why it is not the spec's to choose."""

LOOPBACK: Mapping[str, tuple[str, str]] = {
    "spark.shuffle.compress": ("false", "buffers that stay on this machine cost more to compress than to copy"),
    "spark.shuffle.checksum.enabled": ("false", "every channel's buffers have a digest of their own"),
    SOCKETS: ("true", "over TCP a task waits 40 ms for a delayed acknowledgement"),
    "spark.driver.host": ("127.0.0.1", "a local master is reached on this machine alone"),
    "spark.driver.bindAddress": ("127.0.0.1", "a local master is reached on this machine alone"),
}
"""Fixed too where the master is local; beside a cluster they are the spec's to choose."""

DEFAULTS: Mapping[str, str] = {
    # For few receivers Spark would write each shuffle file twice, but needs no memory for a row; now a row has to fit
    # into a task's share.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    # Buffers of the exchange pass between the JVM and Python in few pieces.
    "spark.buffer.size": str(1 << 20),
}
"""What a session on a local master has where `spark.conf` says nothing else."""

ELSEWHERE: Mapping[str, str] = {
    "spark.master": "it is `spark.master` of the spec, beside `conf`",
    "spark.app.name": "it is the job's name",
    "spark.submit.deployMode": "an epoch's driver is the process that runs it",
    "spark.remote": "it is `spark.remote` of the spec, beside `conf`",
    "spark.api.mode": "`spark.remote` of the spec decides it",
    "spark.connect.authenticate.token": "it comes from the environment variable SPARK_CONNECT_AUTHENTICATE_TOKEN",
}
"""Settings that the session gets from elsewhere."""

_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)\])?")


def local_cores(master: str) -> str | None:
    """Return how many cores a local master has, a number or ``*``; None for a master that is no local one."""
    match = _LOCAL_MASTER.fullmatch(master)
    return None if match is None else match[1] or "1"


def settings_of(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session with this master: ours, and what a `spark.conf` says that is its to choose."""
    local = local_cores(master) is not None
    fixed = {**FIXED, **(LOOPBACK if local else {})}
    return {**(DEFAULTS if local else {}), **conf, **{key: value for key, (value, _) in fixed.items()}}


def session_settings() -> dict[str, str]:
    """Return the settings that a session on a running Spark Connect server is given."""
    return {key: value for key, (value, _) in FIXED.items() if key.startswith("spark.sql.")}


def conf_problems(master: str, conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key of a `spark.conf` that cannot stand there, and why."""
    reasons = {key: why for key, (_, why) in FIXED.items()} | dict(ELSEWHERE)
    if local_cores(master) is not None:
        reasons |= {key: why for key, (_, why) in LOOPBACK.items()}
    for key, value in conf.items():
        if key in reasons:
            yield key, f"is set by Milepost ({reasons[key]}); remove it"
        elif not key.startswith("spark.") or any(c.isspace() for c in key):
            yield key, "Spark leaves out every setting whose name does not begin with `spark.`; correct or remove it"
        elif key in COMMAND_LINE and "${env:" in value:
            yield key, "is shown by the process list to everybody on the machine: no ${env:…} here; write it out"
