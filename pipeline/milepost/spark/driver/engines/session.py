"""Open the Spark session of epochs, with required settings and a clean environment.

* `language/spark_settings.py` lists the settings that a spec cannot choose, with their reasons.
* Task retries: `local[N]` allows none, so it becomes `local[N,F]` with F attempts, and Spark replaces a lost worker.
* `spark.conf` may hold secrets. The JVM reads it from a private file, which is deleted once Spark is up, and never from
  the command line. Only Java options are on the command line.
* Python workers use sockets in a folder that only this user can enter. It is deleted when the JVM ends.
* Spark's log is shown only to users who enable logging. Errors are reported by `spark_errors.py`, in a few lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.jobspec.job import SparkSpec
from milepost.language import (
    JAVA_OPTIONS,
    PYTHON,
    SOCKET_FOLDER,
    SOCKETS,
    TASK_ATTEMPTS,
    local_cores,
    settings_of,
)
from milepost.spark.driver.engines.class_archive import archive_options
from milepost.spark.driver.engines.java import find_java, find_java_home
from milepost.spark.driver.engines.jvm_stderr import forwarded_stderr
from milepost.spark.driver.engines.shipped_code import FOLDER, shipped_code
from milepost.spark.driver.engines.standalone import require_master

_LOOPBACK = "127.0.0.1,localhost,::1"

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark loggers that log every SQL error with its Java stack trace before it is raised."""

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java option: compile quickly. The driver's JVM runs a few epochs, so optimised code costs more than it saves.

Measured on two cores: one small epoch takes 4 to 5 s of CPU time in the JVM instead of 10, eight epochs of a million
rows take 7.7 s instead of 15.4. A spec can override this in `spark.driver.extraJavaOptions` below `spark.conf`.
"""

_MASTER = "spark.master"

_opened: dict[str, str] = {}
"""Settings of the latest `open_session`; empty before Spark was started."""


def open_session(job: str, spec: SparkSpec) -> SparkSession:
    """Return the process's session with a job's settings. Start Spark if it does not run.

    A process has one Spark. Another job, or changed settings of the same job, can change the settings that Spark
    allows to change at runtime. The settings that are fixed at Spark's start must be the same.

    Raises:
        SparkLost: Spark or its master does not start or answer, although it did before in this process.
        EnvironmentUnusable: no usable Java, a host name that does not resolve, no master at its address, Spark did
            not start, or it runs with other settings that only a new process can have.
    """
    cores = local_cores(spec.master)
    settings = settings_of(spec.master, spec.conf)
    settings[_MASTER] = spec.master if cores is None else f"local[{cores},{TASK_ATTEMPTS}]"
    session = _running(settings)
    if session is None:
        prepare_environment(local=cores is not None, python=settings.get(PYTHON))
        require_master(spec.master, served_before=_opened.get(_MASTER) == spec.master)
        session = _start(job, settings, shipped_code() if cores is None else None)
    _opened.clear()
    _opened.update(settings)
    return session


def running_master(otherwise: str) -> str:
    """Return the master of this process's Spark as a spec writes it, or `otherwise` without a running Spark.

    A running `local[2,4]` is written `local[2]`.
    """
    context = SparkContext._active_spark_context
    if context is None or not is_alive(context):
        return otherwise
    cores, comma, _ = context.master.partition(",")
    return f"{cores}]" if comma and cores.startswith("local[") else str(context.master)


def is_alive(context: SparkContext) -> bool:
    """Return whether a session's JVM answers and its Spark was not stopped by a cluster or an error."""
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()  # None: its JVM ended during the start
    except (Py4JError, OSError):
        return False


def _running(settings: Mapping[str, str]) -> SparkSession | None:
    """Return this process's session with these settings; None if it has none, or its Spark has ended.

    Raises:
        EnvironmentUnusable: as `open_session`.
    """
    context = SparkContext._active_spark_context
    if context is None:
        return None
    if is_alive(context):
        try:
            session = SparkSession.builder.getOrCreate()
            _adapt(session, settings)
            return session
        except Exception:
            if is_alive(context):
                raise
    _forget()
    return None


def _forget() -> None:
    """Clear PySpark's references to a Spark that has ended, so that the next session starts a new one."""
    SparkContext._active_spark_context = SparkSession._instantiatedSession = SparkSession._activeSession = None
    jvm = SparkContext._jvm
    try:
        if jvm is not None:
            jvm.java.lang.System.currentTimeMillis()
    except (Py4JError, OSError):
        SparkContext._gateway = SparkContext._jvm = None


def _start(job: str, settings: Mapping[str, str], code: Path | None) -> SparkSession:
    """Start Spark.

    Args:
        code: archive of the code for its executors; None: they import this process's files.
    """
    options = (archive_options(find_java()), QUICK_COMPILER, _logging_options(), settings.get(JAVA_OPTIONS, ""))
    given = {**settings, JAVA_OPTIONS: " ".join(option for option in options if option)}
    folder = _socket_folder() if settings.get(SOCKETS) == "true" and SOCKET_FOLDER not in settings else None
    if folder is not None:
        given[SOCKET_FOLDER] = folder
    builder = SparkSession.builder.appName(f"milepost-{job}")
    starts = SparkContext._gateway is None
    if not starts:  # the JVM of a stopped session still runs: do not start another
        builder = builder.config(map=dict(given))
    before = {child.pid for child in psutil.Process().children()}
    try:
        with _handed_over(given), _own_interrupts():
            if starts:
                _launch()
            session = builder.getOrCreate()
        if code is not None:
            session.sparkContext.addArchive(f"{code.as_uri()}#{FOLDER}")
        _let_go_quietly(session.sparkContext)
        if folder is not None:  # an Airflow task skips Python's exit handlers, but the JVM always runs its hooks
            jvm: Any = session.sparkContext._jvm
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(folder))
        return session
    except BaseException as error:
        reason = _first_line(error)  # reads the text of a Java error from the JVM, so do it before the JVM is killed
        _end_started(before)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if starts:
            SparkContext._gateway = SparkContext._jvm = None
        if not isinstance(error, Exception):
            raise
        raise _not_started(settings, reason) from error


def _not_started(settings: Mapping[str, str], error_text: str) -> EnvironmentUnusable:
    """Return the error of a failed start. It is SparkLost if the same settings started Spark before.

    Args:
        error_text: first line of Spark's error.
    """
    if settings == _opened:
        return SparkLost(
            f"Spark no longer starts with master {settings[_MASTER]}, although it did earlier in this process: "
            f"{error_text.rstrip('.')}. Nothing was run.",
            hint="see the logs of the cluster and of the system, then run again",
        )
    return EnvironmentUnusable(
        f"Spark did not start with master {settings[_MASTER]}: {error_text.rstrip('.')}. Nothing was run.",
        hint="correct `spark.conf` if that is the cause; milepost doctor checks the environment",
    )


def _let_go_quietly(context: Any) -> None:
    """Keep PySpark's accumulator thread from printing a stack trace when the JVM ends, which is reported elsewhere."""
    context._accumulatorServer.handle_error = lambda request, address: None


def _launch() -> None:
    """Start the JVM as PySpark does, with its stderr filtered."""
    with forwarded_stderr() as stderr:
        SparkContext._gateway = launch_gateway(popen_kwargs={"stderr": stderr})
    SparkContext._jvm = SparkContext._gateway.jvm


def _first_line(error: BaseException) -> str:
    try:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    except Py4JError:
        return "its JVM ended before it could say why"
    return text.splitlines()[0] if text else repr(error)


def _adapt(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Change a running session's settings. Raises EnvironmentUnusable, without any change, if one of them is fixed."""
    before = _opened
    if not before:  # a session that this module did not open; reading its settings takes 9 ms
        started = dict(session.sparkContext.getConf().getAll())
        before = {key: started.get(key, "") for key in settings}
    changed = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
    fixed = sorted(key for key in changed if not session.conf.isModifiable(key))
    if fixed:
        raise EnvironmentUnusable(
            f"this process already runs Spark, and {', '.join(fixed)} cannot be changed while it does. "
            "Nothing was run.",
            hint="run the job in a process of its own",
            settings=fixed,
        )
    for key in changed:
        if key in settings:
            session.conf.set(key, settings[key])
        else:
            session.conf.unset(key)


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restore the Ctrl-C handler after PySpark replaced it. PySpark's handler calls the JVM during another call.

    The runner cancels the epoch's job when it is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _handed_over(settings: Mapping[str, str]) -> Iterator[None]:
    """Pass these settings to a JVM that is started in the block, in a file that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="milepost-spark-") as folder:  # its mode is 0700
        file = Path(folder) / "spark.properties"
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(properties_text(settings), encoding="ascii")
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(str(file))} pyspark-shell"
        try:
            yield
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings in Java's properties format, ASCII only."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    """Escape text for Java's properties format: `a b` is `a\\u0020b`. Only letters, digits and `._-/` stay."""
    plain = "._-/"
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(c) if c < 128 and (chr(c).isalnum() or chr(c) in plain) else f"\\u{c:04x}" for c in codes)


def _socket_folder() -> str:
    """Create a folder for sockets, mode 0700. Its path is short, because a socket path has at most 107 characters."""
    return tempfile.mkdtemp(prefix="milepost-sockets-", dir="/tmp" if os.access("/tmp", os.W_OK) else None)


def _end_started(before: set[int]) -> None:
    """Kill the JVM of a failed or interrupted start. Nothing else would end it, because its gateway is lost."""
    for child in psutil.Process().children():
        if child.pid not in before:
            for process in [*child.children(recursive=True), child]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _logging_options() -> str:
    """Return Java options that let the JVM log errors if this process logs, and nothing otherwise."""
    is_logging = quiet_pyspark()
    configuration = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"-Dlog4j2.configurationFile={configuration} -Dmilepost.log.level={'error' if is_logging else 'off'}"


def quiet_pyspark() -> bool:
    """Let PySpark log query errors only if this process logs, and py4j never. Return whether this process logs.

    Whatever py4j logs, with a stack trace and partly on the root logger, it also raises. Spark Connect also raises the
    error that it warns of after its last retry.
    """
    warnings.filterwarnings("ignore", re.escape("[RETRIES_EXCEEDED]"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    is_logging = logging.getLogger("milepost").isEnabledFor(logging.INFO)
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.WARNING if is_logging else logging.CRITICAL + 1)
    return is_logging


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def prepare_environment(*, local: bool, python: str | None = None) -> None:
    """Set the environment variables of the JVM and the Python workers, and clear those of the caller's shell.

    Args:
        python: interpreter on a cluster's workers; None: the same path as this process.
    """
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_API_MODE"):
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
            f"host name {socket.gethostname()} does not resolve, and Spark needs it to reach this driver. "
            "Nothing was run.",
            hint="add it to /etc/hosts, or use a local[N] master",
        ) from error
