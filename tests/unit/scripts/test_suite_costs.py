"""What the suite costs: recorded in every process of a run, and written as a page."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from scripts.processes import ROOT
from scripts.suite import report

SUITE = """
import subprocess, sys, time
import pytest

@pytest.fixture(scope="module")
def server():
    while time.process_time() < 0.2:
        pass

@pytest.fixture
def client(server, request):
    request.getfixturevalue("burnt")

@pytest.fixture
def burnt():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

def test_first(client):
    subprocess.run([sys.executable, "-m", "this"], check=True, capture_output=True)

@pytest.mark.parametrize("case", range(3))
def test_second(case):
    pass
"""


@pytest.fixture(scope="module", params=["", "-n2"], ids=["one process", "two processes"])
def costs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The recorder's document of a small suite."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_small.py").write_text(SUITE)
    recorder = ["-p", "scripts.suite.recorder", "--record-costs", "costs.json"]
    alone = ["-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *recorder, *alone, *filter(None, [request.param]), "test_small.py"]
    environ = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads((folder / "costs.json").read_text())
    return document


def test_every_test_is_charged_with_its_own_cpu_and_programs(costs: dict[str, Any]) -> None:
    tests = costs["tests"]
    first = tests["test_small.py::test_first"]
    assert set(tests) == {"test_small.py::test_first", *(f"test_small.py::test_second[{case}]" for case in range(3))}
    assert first["programs"] == {"python -m this": 1}
    assert first["cpu"] > 0.2 > tests["test_small.py::test_second[0]"]["cpu"]
    assert set(first["phases"]) == {"setup", "call", "teardown"}


def test_a_fixture_is_charged_without_the_fixtures_that_it_requests(costs: dict[str, Any]) -> None:
    fixtures = costs["tests"]["test_small.py::test_first"]["fixtures"]
    assert fixtures["test_small.py::burnt (function)"] > 0.19
    assert fixtures["test_small.py::client (function)"] < 0.1


def test_a_run_names_its_whole_cpu_time_and_each_collection(costs: dict[str, Any]) -> None:
    assert costs["cpu"] > sum(test["cpu"] for test in costs["tests"].values())
    assert all(seconds > 0 for seconds in costs["collections"].values())


def test_the_page_ranks_folders_files_and_names_slow_tests() -> None:
    tests = {
        "tests/unit/a/test_x.py::test_slow[1]": _test(wall=30.0, fixtures={"tests::server (session)": 9.0}),
        "tests/unit/a/test_x.py::test_slow[2]": _test(wall=1.0),
        "tests/e2e/test_y.py::test_quick": _test(wall=2.0, programs={"java": 3}),
    }
    text = report.page({"wall": 60.0, "cpu": 90.0, "collections": {"gw0": 7.0}, "tests": tests}, {"pyarrow": 0.25})
    assert "| `tests/unit/a` | 2 | 31 | 0 |" in text
    assert "| `tests/unit/a/test_x.py::test_slow[1]` | 30 |" in text
    assert "| `tests::server (session)` | 1 | 9 |" in text
    assert "| `test_slow` | 2 | 31 |" in text
    assert "| `java` | 3 |" in text
    assert "| `pyarrow` | 0.25 |" in text


def test_the_scheduler_gets_the_seconds_of_each_file() -> None:
    tests = {"a/test_x.py::test_1": _test(wall=1.04), "a/test_x.py::test_2": _test(wall=2.0)}
    assert report.durations(tests) == {"a/test_x.py": 3.0}


def _test(wall: float, **more: Any) -> dict[str, Any]:
    return {"wall": wall, "cpu": 0.0, "phases": {}, "fixtures": {}, "programs": {}} | more
