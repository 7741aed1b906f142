"""Which tests reach which line, and how long each test takes; measured once per state of sources and tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import coverage

GROUPS: tuple[tuple[str, ...], ...] = (
    ("tests/unit/state",),
    ("tests/unit/operators",),
    ("tests/unit/sinks",),
    ("tests/unit/sources",),
    (
        "tests/unit/spark/test_unaligned_epochs.py",
        "tests/unit/spark/task/test_input_gate.py",
        "tests/unit/spark/task/test_slices.py",
        "tests/unit/spark/task/test_source_task.py",
        "tests/unit/spark/task/test_subtask_declines.py",
        "tests/unit/spark/wire/test_exchange_writer.py",
        "tests/unit/spark/wire/test_level_plan.py",
    ),
    ("tests/unit/jobmaster", "tests/unit/epoch"),
    ("tests/conformance/protocol", "tests/unit/quality"),
)
"""Tests that need no Spark, no Airflow and almost no server. Each group is measured in its own process."""

DURATIONS_VARIABLE = "MILEPOST_DURATIONS"


@dataclass(frozen=True)
class Reach:
    """What was measured.

    Attributes:
        data: the lines that each test ran, by pytest's name of the test. seconds: duration of each test.
    """

    data: coverage.CoverageData
    seconds: dict[str, float]

    def tests_of(self, file: Path, first: int, last: int) -> list[str]:
        """Return the tests that run one of these lines. If they only run at import: all tests of the file."""
        lines = _lines(self.data, str(file))
        reached = {test for line in range(first, last + 1) for test in lines.get(line, ()) if test}
        if not reached and any(line in lines for line in range(first, last + 1)):
            reached = {test for tests in lines.values() for test in tests if test}
        return sorted(reached & self.seconds.keys(), key=lambda test: (self.seconds[test], test))


@cache
def _lines(data: coverage.CoverageData, file: str) -> dict[int, list[str]]:
    return data.contexts_by_lineno(file)


def measure(root: Path, folder: Path, jobs: int) -> Reach:
    """Run every group that has no result for these sources and tests in `folder` yet, and store its result there.

    Raises: RuntimeError: tests fail without any mutant.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = digest_of(root, ("pipeline", "tests", "milepost_testkit", "config"))
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda group: _measure(root, folder, group, state), GROUPS))
    data = coverage.CoverageData(no_disk=True)
    seconds: dict[str, float] = {}
    for path in found:
        part = coverage.CoverageData(str(path))
        part.read()
        data.update(part)
        seconds |= json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return Reach(data, seconds)


def digest_of(root: Path, folders: Iterable[str]) -> str:
    """Return a hash of all files in these folders, except caches."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _measure(root: Path, folder: Path, group: Collection[str], state: str) -> Path:
    name = hashlib.sha256("\0".join(group).encode()).hexdigest()[:8]
    path = folder / f"reach-{name}-{state}.coverage"
    if path.with_suffix(".json").exists():
        return path
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={path}", "--source=pipeline", "-m", "pytest"]
    # Without deep tests: some of them need environments that are built for them alone.
    command += ["-q", "-p", "no:cacheprovider", "-p", "scripts.sampling.coverage_contexts", "--hypothesis-seed=1"]
    command += ["--ring", "test"]
    command += group
    environment = {**os.environ, DURATIONS_VARIABLE: str(path.with_suffix(".json")), "MILEPOST_SEED": "1"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        path.with_suffix(".json").unlink(missing_ok=True)
        raise RuntimeError(f"{' '.join(group)}: the tests fail without any mutant\n{done.stdout[-4000:]}{done.stderr}")
    return path
