"""Tests of the repository, run by a pytest of its own in the environment of an older version."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path

import psutil

from milepost_testkit.processes.processes import REPOSITORY, stop_tree

LIMIT_S = 2000
"""Less than the time after which `make test-all` ends a test, so that a failure shows the output of the inner tests."""


def assert_tests_pass(python: Path, folder: Path, tests: Collection[str], without: Collection[str] = ()) -> None:
    """Run tests, none of which may be skipped.

    Args:
        python: of the environment. folder: for the tests' own folders. without: tests of those that do not run.
    """
    left_out = [f"--deselect={name}" for name in without]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'inner'}"]
    output = folder / "output.txt"
    with output.open("w") as log:
        process = psutil.Popen(
            [*command, *left_out, *tests],
            cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        )  # fmt: skip
        try:
            exit_code = process.wait(LIMIT_S)
        finally:
            stop_tree(process)  # of tests that took too long: their Airflow and Spark, too
    text = output.read_text()
    assert exit_code == 0, text[-20_000:]
    assert " passed" in text and "skipped" not in text
