"""Record what each test costs: a pytest plugin that `make durations` loads.

    pytest -p scripts.suite.recorder --record-costs costs.json

Every process of a run measures its own tests. The controller receives the figures with the test reports and writes one
JSON document when the run ends. `scripts.suite.report` turns it into a page.

A process that outlives a test, such as a JVM or a database server, is charged to the run and not to the test: its CPU
time becomes known only when the process that started it ends.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

OPTION = "--record-costs"
_ATTRIBUTE = "milepost_costs"
_WORKER_OUTPUT = "milepost_collection"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, default=None, help="write what each test costs to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(OPTION) is None:
        return
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Measuring(config), "milepost-measuring")
        return
    config.pluginmanager.register(_Writing(config.getoption(OPTION)), "milepost-writing")
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Measuring(config), "milepost-measuring")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class _Measuring:
    """Measures the tests that run in this process.

    A phase is the set-up, the call or the tear-down of one test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started_at = psutil.Process().create_time()
        self._collected_after = 0.0
        self._cpu = 0.0
        self._fixtures: defaultdict[str, float] = defaultdict(float)
        self._nested: list[float] = []
        self._programs: Counter[str] = Counter()
        sys.addaudithook(self._on_event)

    def pytest_collection_finish(self) -> None:
        self._collected_after = time.time() - self._started_at
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_WORKER_OUTPUT] = self._collected_after

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Time one fixture without the fixtures that it requests while it runs."""
        self._nested.append(0.0)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            elapsed = time.perf_counter() - began
            own = elapsed - self._nested.pop()
            if self._nested:
                self._nested[-1] += elapsed
            self._fixtures[f"{fixturedef.baseid or 'plugin'}::{fixturedef.argname} ({fixturedef.scope})"] += own

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Attach this phase's figures to its report, which travels to the controller."""
        report = yield
        now = cpu_seconds()
        setattr(
            report,
            _ATTRIBUTE,
            {"cpu": now - self._cpu, "fixtures": dict(self._fixtures), "programs": dict(self._programs)},
        )
        self._cpu = now
        self._fixtures.clear()
        self._programs.clear()
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Begin a test. Work of this process between two tests is charged to the run."""
        self._cpu = cpu_seconds()
        self._programs.clear()
        return (yield)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._programs[_program(arguments[0], arguments[1])] += 1


def _program(executable: Any, arguments: Any) -> str:
    """Name a started program: `java`, or `python -m milepost run`.

    Python's options and the paths of scripts are left out, so that equal programs have equal names.
    """
    words = [str(word) for word in ([arguments] if isinstance(arguments, (str, bytes)) else arguments)]
    name = Path(str(executable or words[0])).name
    if not name.startswith("python"):
        return name
    if "-m" in words:
        module = words.index("-m") + 1
        return " ".join(["python -m", *words[module : module + 2]])
    scripts = [Path(word).name for word in words[1:] if word.endswith(".py")]
    return f"python {scripts[0]}" if scripts else "python -c"


@dataclass
class _Costs:
    """Figures of one test, in seconds: of its phases together, and of each fixture that was set up for it."""

    wall: float = 0.0
    cpu: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    fixtures: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)


class _Writing:
    """Collects the figures of all processes and writes them when the run ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: defaultdict[str, _Costs] = defaultdict(_Costs)
        self._collections: dict[str, float] = {}
        self._began = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test, costs = self._tests[report.nodeid], getattr(report, _ATTRIBUTE, None)
        test.wall += report.duration
        test.phases[report.when or "?"] = report.duration
        if costs is not None:
            test.cpu += costs["cpu"]
            test.fixtures.update(costs["fixtures"])
            test.programs.update(costs["programs"])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        collected = getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT)
        if collected is not None:
            self._collections[node.gateway.id] = collected

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        document = {
            "wall": time.perf_counter() - self._began,
            "cpu": cpu_seconds(),
            "collections": self._collections,
            "tests": {
                nodeid: {
                    "wall": round(test.wall, 4),
                    "cpu": round(test.cpu, 4),
                    "phases": {name: round(seconds, 4) for name, seconds in test.phases.items()},
                    "fixtures": {name: round(seconds, 4) for name, seconds in test.fixtures.items()},
                    "programs": dict(test.programs),
                }
                for nodeid, test in sorted(self._tests.items())
            },
        }
        self._path.write_text(json.dumps(document), encoding="utf-8")
