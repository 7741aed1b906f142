"""A plugin of pytest: while coverage runs, each test, with its cases and what it sets up, is a context of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from scripts.sampling.reached_lines import DURATIONS_VARIABLE

_DURATIONS = Path(os.environ[DURATIONS_VARIABLE])
"""Asked for while the plugin is loaded: the tests' own configuration clears the environment."""

_SECONDS: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    running = coverage.Coverage.current()
    assert running is not None, "run it by `coverage run -m pytest`"
    test = item.nodeid.partition("[")[0]
    running.switch_context(test)
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _SECONDS[test] = _SECONDS.get(test, 0.0) + round(time.monotonic() - began, 3)
        running.switch_context("")


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus == 0:
        _DURATIONS.write_text(json.dumps(_SECONDS), encoding="utf-8")
