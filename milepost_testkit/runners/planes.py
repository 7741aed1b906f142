"""Where a test lets a job run its epochs: in this process, and on Spark in the deep ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import pytest

from milepost.epoch.answers import EpochRunner
from milepost.spark.driver.runner_factory import spark_runner
from milepost_testkit.runners.sparkless_runner import SparklessRunner

Plane: TypeAlias = Callable[[], EpochRunner]
"""Opens a runner."""


@contextmanager
def epochs_in_process() -> Iterator[Plane]:
    """Epochs run in this process and DuckDB evaluates SQL, also those of the command line and of `FlightsJob`."""
    opened = partial(SparklessRunner, sql=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("milepost.spark.driver.runner.SparkEpochRunner", opened)
        yield opened


@pytest.fixture
def in_process() -> Iterator[Plane]:
    """Epochs of the test run in this process."""
    with epochs_in_process() as opened:
        yield opened


@pytest.fixture(params=["in process", pytest.param("on Spark", marks=pytest.mark.deep)])
def plane(request: pytest.FixtureRequest) -> Plane:
    """For a claim about rows: epochs run in this process, and in the deep ring on Spark as well."""
    if request.param == "on Spark":
        return spark_runner
    opened: Plane = request.getfixturevalue("in_process")
    return opened
