"""The Spark session that epochs run in: settings that the protocol relies on, and a clean environment.

* Settings that are not the spec's to choose are listed, with their reasons, in `jobspec/values/spark_settings.py`.
* task retries: `local[N]` allows none, so it becomes `local[N, F]`; a lost worker is then repaired by Spark itself.
* what `spark.conf` says may hold secrets: it reaches the JVM through a private file that lives until Spark is up, never
  through a command line. Only the Java options are on one, because that is what they are.
* Python workers are reached through sockets in a folder that only this user can enter, deleted when the JVM ends.
* what Spark logs goes to those who ask for logs: an error reaches its user as ours, in a few lines (`spark_errors.py`).
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
from milepost.jobspec.values import (
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
"""PySpark logs every SQL error with its Java stack trace through these, before it raises it."""

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""The driver's JVM passes buffers on and lives for some epochs: optimising its code costs more than it saves.

Measured on two cores: a process that runs one small epoch spends 4 to 5 s of CPU time in the JVM instead of 10, one
that runs eight of a million rows 7.7 s instead of 15.4. The spec's `spark.conf` may say otherwise, in
`spark.driver.extraJavaOptions`.
"""

_MASTER = "spark.master"

_opened: dict[str, str] = {}
"""What this process's Spark was asked for last; empty before it was started."""


def open_session(job: str, spec: SparkSpec) -> SparkSession:
    """Return the process's session with a job's settings, starting Spark when it does not run.

    A process has one Spark. For another job, or other settings of the same one, what can change while it runs is
    changed; what is fixed when Spark starts must be what it is.

    Raises:
        SparkLost: the master, or all that Spark needs to start, was there when this process started it before.
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
    """Return the master of the Spark that this process runs, as a spec has it; of one that runs none another one."""
    known = SparkContext._active_spark_context
    if known is None or not is_alive(known):
        return otherwise
    cores, comma, _ = known.master.partition(",")
    return f"{cores}]" if comma and cores.startswith("local[") else str(known.master)


def is_alive(context: SparkContext) -> bool:
    """Whether a session's JVM answers and its Spark has not been stopped, by a cluster or by an error of its own."""
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()  # None: its JVM ended while it began
    except (Py4JError, OSError):
        return False


def _running(settings: Mapping[str, str]) -> SparkSession | None:
    """Return the session that this process runs, with these settings; None: it runs none, or none any more.

    Raises: EnvironmentUnusable: as `open_session`.
    """
    known = SparkContext._active_spark_context
    if known is None:
        return None
    if is_alive(known):
        try:
            session = SparkSession.builder.getOrCreate()
            _adapt(session, settings)
            return session
        except Exception:
            if is_alive(known):
                raise
    _forget()
    return None


def _forget() -> None:
    """Let the next session start anew: what Python knows is of a Spark that has ended."""
    SparkContext._active_spark_context = SparkSession._instantiatedSession = SparkSession._activeSession = None
    jvm = SparkContext._jvm
    try:
        if jvm is not None:
            jvm.java.lang.System.currentTimeMillis()
    except (Py4JError, OSError):
        SparkContext._gateway = SparkContext._jvm = None


def _start(job: str, settings: Mapping[str, str], code: Path | None) -> SparkSession:
    """Start Spark. Args: code: what its executors are sent; None: they have what this process has."""
    options = (archive_options(find_java()), QUICK_COMPILER, _logging_options(), settings.get(JAVA_OPTIONS, ""))
    given = {**settings, JAVA_OPTIONS: " ".join(option for option in options if option)}
    folder = _socket_folder() if settings.get(SOCKETS) == "true" and SOCKET_FOLDER not in settings else None
    if folder is not None:
        given[SOCKET_FOLDER] = folder
    builder = SparkSession.builder.appName(f"milepost-{job}")
    starts = SparkContext._gateway is None
    if not starts:  # the JVM of a session that was stopped: nothing is started, none is shown
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
        if folder is not None:  # a task of Airflow ends without what Python does at its exit; the JVM never does
            jvm: Any = session.sparkContext._jvm
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(folder))
        return session
    except BaseException as error:
        said = _first_line(error)  # a Java error asks its JVM for it
        _end_started(before)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if starts:
            SparkContext._gateway = SparkContext._jvm = None
        if not isinstance(error, Exception):
            raise
        raise _not_started(settings, said) from error


def _not_started(settings: Mapping[str, str], said: str) -> EnvironmentUnusable:
    """Return what to raise for a start that failed: by settings that were good for one before, it is no fault of them.

    Args: said: by Spark.
    """
    if settings == _opened:
        return SparkLost(
            f"Spark does not start any more with master {settings[_MASTER]}, as it did in this process before: "
            f"{said.rstrip('.')}. Nothing was run.",
            hint="see the logs of the cluster and the system's; once it can start, run again",
        )
    return EnvironmentUnusable(
        f"Spark did not start with master {settings[_MASTER]}: {said.rstrip('.')}. Nothing was run.",
        hint="correct `spark.conf` if it is about that; milepost doctor shows whether the environment lacks a part",
    )


def _let_go_quietly(context: Any) -> None:
    """Keep the thread that counts for Spark from a stack trace on stderr when its JVM is gone: that is told once."""
    context._accumulatorServer.handle_error = lambda request, address: None


def _launch() -> None:
    """Start the JVM that PySpark would start, with its stderr filtered."""
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
    """Give a running session other settings. Raises EnvironmentUnusable, and changes nothing, for a fixed one."""
    before = _opened
    if not before:  # somebody else's session; asking for its settings takes 9 ms
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
    """Keep Ctrl-C what it was: PySpark's handler asks the JVM amid whatever else is being asked of it, and fails.

    The runner cancels the epoch's job on its way out.
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
    """Have the JVM that is started meanwhile read these settings from a file that only this user can read."""
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
    """Return a text as Java's properties format writes it: everything but letters, digits and `._-/` escaped."""
    plain = "._-/"
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(c) if c < 128 and (chr(c).isalnum() or chr(c) in plain) else f"\\u{c:04x}" for c in codes)


def _socket_folder() -> str:
    """Make a folder, mode 0700, for sockets. Its path is short: the name of a socket has 107 characters at most."""
    return tempfile.mkdtemp(prefix="milepost-sockets-", dir="/tmp" if os.access("/tmp", os.W_OK) else None)


def _end_started(before: set[int]) -> None:
    """End the JVM of a start that failed or was interrupted: nobody holds its gateway, so nobody else ever would."""
    for child in psutil.Process().children():
        if child.pid not in before:
            for process in [*child.children(recursive=True), child]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _logging_options() -> str:
    """Java options of a JVM that logs errors if this process logs, and else nothing."""
    asked = quiet_pyspark()
    configuration = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"-Dlog4j2.configurationFile={configuration} -Dmilepost.log.level={'error' if asked else 'off'}"


def quiet_pyspark() -> bool:
    """Let PySpark log a query's error only if this process logs, and py4j never. Returns: whether it does.

    What py4j logs, with its stack and partly through the root logger, it raises as well; so does Spark Connect what it
    warns of once it has tried often enough.
    """
    warnings.filterwarnings("ignore", re.escape("[RETRIES_EXCEEDED]"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    asked = logging.getLogger("milepost").isEnabledFor(logging.INFO)
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.WARNING if asked else logging.CRITICAL + 1)
    return asked


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def prepare_environment(*, local: bool, python: str | None = None) -> None:
    """Give the JVM and the Python workers what they need, whatever the caller's shell had.

    Args:
        python: what runs on a cluster's workers; None: the same path as here.
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
