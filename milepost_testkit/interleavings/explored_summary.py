"""Add what the explorer walked to pytest's summary, also when tests run in several processes."""

from __future__ import annotations

import pytest

_LINES: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the lines that tests recorded. The controller receives the report of every worker process."""
    if report.when == "call":
        _LINES.update((str(value), None) for name, value in report.user_properties if name == "explored")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section("every interleaving")
        for line in _LINES:
            terminalreporter.write_line(line)
