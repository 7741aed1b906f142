"""What every test gets: a clean environment, this run's seed. Machinery lives in tests/harness, one purpose a file."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.harness.s3_servers import ministack, seaweed

__all__ = ["ministack", "seaweed"]  # fixtures: each server is started once, at its first use

hypothesis.settings.register_profile("milepost", deadline=None)
hypothesis.settings.load_profile("milepost")

SEED = int(os.environ.get("MILEPOST_SEED") or random.SystemRandom().randrange(1 << 24))
"""The run's seed: printed in the header, so that any run can be repeated."""

HOSTILE_PREFIXES = ("AIRFLOW", "SPARK_", "PYSPARK_", "AWS_", "MILEPOST_")
HOSTILE = ("PYTHONPATH", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
LOOPBACK = "127.0.0.1,localhost,::1"

AIRFLOW_HOME = tempfile.mkdtemp(prefix="milepost-airflow-")
"""Importing Airflow writes to its home: not to the developer's."""


def pytest_configure() -> None:
    """Tests must not read the developer's own Airflow, Spark, AWS or proxy settings."""
    for name in list(os.environ):
        if name.startswith(HOSTILE_PREFIXES) or name in HOSTILE:
            del os.environ[name]
    os.environ.update(
        {
            "TZ": "UTC",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": AIRFLOW_HOME,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "MILEPOST_SEED": str(SEED),  # for the processes that this one lets run a part of the tests
        }
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it still speaks when the interpreter ends


def pytest_unconfigure() -> None:
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


def pytest_report_header() -> str:
    return f"seed: {SEED} (PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}); repeat: make test SEED={SEED}"


TESTS = Path(__file__).parent
LONGEST_FIRST = ("e2e", "chaos", "integration")


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run in one process what shares one: all that needs Airflow, and each other file; begin with the longest."""

    def place(item: pytest.Item) -> tuple[int, str]:
        path = item.path.relative_to(TESTS)
        folder = path.parts[0]
        group = folder if folder == "e2e" else path.as_posix()
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST), group

    items.sort(key=lambda item: place(item)[0])
    for item in items:
        item.add_marker(pytest.mark.xdist_group(place(item)[1]))


@pytest.fixture(scope="session")
def seed() -> int:
    """This run's seed; a test that draws at random starts from it and says so when it fails."""
    return SEED
