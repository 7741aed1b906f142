"""A pytest plugin that gives each test its own coverage context, including its cases and its set-up."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from scripts.sampling.reached_lines import DURATIONS_VARIABLE
from scripts.suite.covered import charged_to

_DURATIONS = Path(os.environ[DURATIONS_VARIABLE])
"""Read when the plugin is loaded: the configuration of the tests clears the environment."""

_SECONDS: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    assert coverage.Coverage.current() is not None, "run it by `coverage run -m pytest`"
    test = item.nodeid.partition("[")[0]
    began = time.monotonic()
    try:
        with charged_to(test):
            return (yield)
    finally:
        _SECONDS[test] = _SECONDS.get(test, 0.0) + round(time.monotonic() - began, 3)


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus == 0:
        _DURATIONS.write_text(json.dumps(_SECONDS), encoding="utf-8")
