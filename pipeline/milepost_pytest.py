"""Milepost's plugin for pytest collects case files: `pytest --milepost FOLDER`, or `milepost_tests` in the ini.

Every run of pytest loads it where Milepost is installed, so it imports nothing of Milepost until it finds a file that
begins with `milepost_test: 1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FIRST_LINE = "milepost_test: 1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini key that name folders."""
    text = "folders with case files to run"
    parser.getgroup("milepost").addoption("--milepost", action="append", default=[], metavar="FOLDER", help=text)
    parser.addini("milepost_tests", text, type="paths", default=[])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a case file in one of the folders."""
    config = parent.config
    named = [config.invocation_params.dir / folder for folder in config.getoption("--milepost")]
    folders = [folder.resolve() for folder in [*named, *config.getini("milepost_tests")]]
    if file_path.suffix not in (".yaml", ".yml") or not any(map(file_path.resolve().is_relative_to, folders)):
        return None
    with file_path.open(encoding="utf-8", errors="replace") as lines:
        if lines.readline().strip() != _FIRST_LINE:
            return None
    collector: pytest.Collector = _CaseFile.from_parent(parent, path=file_path)
    return collector


class _CaseFile(pytest.File):
    """The cases of one file."""

    def collect(self) -> Iterator[pytest.Item]:
        from milepost.errors import CheckpointError
        from milepost.testing.case_file import load_cases

        try:
            cases = load_cases(self.path)
        except CheckpointError as error:
            raise self.CollectError(error.full_message("\n")) from None
        for name in cases.file.cases:
            yield _Case.from_parent(self, name=name, cases=cases)


class _Case(pytest.Item):
    """One case."""

    def __init__(self, *, cases: Any, **options: Any) -> None:
        super().__init__(**options)
        self._cases = cases

    def runtest(self) -> None:
        from milepost.spark.local.local_runner import LocalRunner
        from milepost.testing.case_run import run_case

        result = run_case(self._cases, self.name, LocalRunner())
        if not result.passed:
            pytest.fail("\n".join(result.faults), pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from milepost.errors import CheckpointError

        if isinstance(excinfo.value, CheckpointError):
            return excinfo.value.full_message("\n")
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
