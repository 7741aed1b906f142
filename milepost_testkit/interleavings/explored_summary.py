"""Says in the summary of each run what the explorer has walked, also when processes share the tests."""

from __future__ import annotations

import pytest

_LINES: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The controller gets each report with what the test recorded, wherever the test ran."""
    if report.when == "call":
        _LINES.update((str(value), None) for name, value in report.user_properties if name == "explored")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section("every interleaving")
        for line in _LINES:
            terminalreporter.write_line(line)
