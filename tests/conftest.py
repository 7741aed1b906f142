"""What every test gets: a clean environment and this run's seed. Machinery is in milepost_testkit."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.util import Finalize
from types import SimpleNamespace

import hypothesis
import pytest

from milepost.state.cache.cache_folder import NODE_CACHE_VARIABLE
from milepost.state.layers import key_hash
from milepost_testkit import profiles
from milepost_testkit.interleavings.explored_summary import pytest_runtest_logreport, pytest_terminal_summary
from milepost_testkit.readers.reading_engines import reading_engines
from milepost_testkit.servers.kafka_server import kafka
from milepost_testkit.servers.postgres_server import database, postgres
from milepost_testkit.servers.s3_servers import ministack, seaweed, seaweed_tables
from scripts.processes import PYTHON_PATH

__all__ = [
    "database",
    "kafka",
    "ministack",  # fixtures: each server is started once, at its first use
    "postgres",
    "pytest_runtest_logreport",  # hooks of the process that reports, which collects nothing where tests are shared
    "pytest_terminal_summary",
    "reading_engines",
    "seaweed",
    "seaweed_tables",
]

pytest_plugins = ["milepost_testkit.wording", "scripts.suite.rings", "scripts.suite.schedule"]

PROFILE = os.environ.get(profiles.VARIABLE) or profiles.FAST
profiles.register()
hypothesis.settings.load_profile(PROFILE)

SEED = int(os.environ.get("MILEPOST_SEED") or random.SystemRandom().randrange(1 << 24))
"""The run's seed: printed in the header, so that any run can be repeated."""

HOSTILE_PREFIXES = ("AIRFLOW", "SPARK_", "PYSPARK_", "AWS_", "MILEPOST_")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
HOSTILE = (*PROXIES, "PYTHONDONTWRITEBYTECODE", "RUST_BACKTRACE", "RUST_LIB_BACKTRACE")
LOOPBACK = "127.0.0.1,localhost,::1"

MEMORY = "/dev/shm"
MEMORY_BYTES = 4 << 30
"""More than one run holds at a time; a passed test's files are deleted with it."""


def _write_to_memory() -> str | None:
    """Let temporary files be in memory, where a machine has it: what is tested waits for no disk.

    Returns this run's folder for what belongs to no test; None where another process of the run has made it.
    """
    usable = "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK)
    if not usable or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        return None
    os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="milepost-", dir=MEMORY)
    return tempfile.tempdir


IN_MEMORY = _write_to_memory()

AIRFLOW_HOME = tempfile.mkdtemp(prefix="milepost-airflow-")
"""Importing Airflow writes to its home: not to the developer's."""

NODE_CACHE = tempfile.mkdtemp(prefix="milepost-cache-")
"""A job finds what it has cached itself, and nothing of a job that was at its place in a run before."""


def pytest_configure() -> None:
    """Tests must not read the developer's own settings of Airflow, Spark, AWS, proxies or Python."""
    for name in list(os.environ):
        if name.startswith(HOSTILE_PREFIXES) or name in HOSTILE:
            del os.environ[name]
    os.environ.update(
        {
            "TZ": "UTC",
            "LOGNAME": "tester",
            "PYTHONPATH": PYTHON_PATH,
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": AIRFLOW_HOME,
            NODE_CACHE_VARIABLE: NODE_CACHE,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "MILEPOST_SEED": str(SEED),  # for the processes that this one lets run a part of the tests
            profiles.VARIABLE: PROFILE,
        }
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores SIGINT in what it runs in the background, and every process that a test starts inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it still speaks when the interpreter ends


def pytest_unconfigure() -> None:
    for folder in (AIRFLOW_HOME, NODE_CACHE):
        shutil.rmtree(folder, ignore_errors=True)
    if IN_MEMORY is not None:  # at exit, after multiprocessing has removed its own folder in it
        Finalize(None, shutil.rmtree, (IN_MEMORY, True), exitpriority=-1_000)


def pytest_report_header() -> str:
    return f"seed: {SEED} (PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}); repeat: make test SEED={SEED}"


CONTRACT = "tests.conformance.sinks.contract."

SERVERS = frozenset({"database", "kafka", "ministack", "postgres", "reading_engines", "seaweed", "seaweed_tables"})
"""Fixtures that start a server or a reading process."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make test` what needs a server, and to `make test-all` what a real table format does not decide.

    A real format inherits the whole contract of sinks. What is not marked `format_decides` is proved on the local ones.
    """
    if not isinstance(item, pytest.Function):
        return
    if SERVERS & {*item.fixturenames}:
        item.add_marker(pytest.mark.long)
    inherits = item.function.__module__.startswith(CONTRACT) and not getattr(item.cls, "whole_contract", True)
    if inherits and not item.get_closest_marker("format_decides"):
        item.add_marker(pytest.mark.deep)


def _draw_secrets(patch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(5575)
    patch.setattr(key_hash, "secrets", SimpleNamespace(token_hex=lambda size: drawn.randbytes(size).hex()))


@pytest.fixture(autouse=True, scope="module")
def drawn_secrets_of_shared_jobs() -> Iterator[None]:
    """As `drawn_secrets`, for the jobs that the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch:
        _draw_secrets(patch)
        yield


@pytest.fixture(autouse=True)
def drawn_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of a test hash keys the same in each run: a test may depend on which subtask a key belongs to.

    Of two subtasks, the first secret gives 0, 1, 5, 6, 7, 8 to the second one, and 2, 3, 4, 9 to the first.
    """
    _draw_secrets(monkeypatch)


@pytest.fixture(scope="session")
def seed() -> int:
    """This run's seed; a test that draws at random starts from it and says so when it fails."""
    return SEED
