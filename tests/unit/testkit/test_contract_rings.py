"""`make test` runs every claim of the sinks' contract, and for a real format what the format decides."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from milepost_testkit.processes.processes import REPOSITORY

pytestmark = pytest.mark.long

CONTRACT = REPOSITORY / "tests" / "conformance" / "sinks" / "contract"
FORMATS = "tests/unit/sinks/conformance"


@pytest.fixture(scope="module")
def in_make_test() -> set[tuple[str, str]]:
    """The file and the function of every test of the formats that `make test` runs."""
    words = ["-q", "--collect-only", "-p", "no:cacheprovider", "--ring", "test", FORMATS]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    ids = [line.split("::") for line in done.stdout.splitlines() if line.startswith(FORMATS)]
    return {(parts[0].rsplit("/", 1)[-1], parts[-1].split("[", 1)[0]) for parts in ids}


def contract(*, decided: bool | None = None) -> set[str]:
    """Return the names of the contract's tests: all, or those that a format decides, or the others."""
    return {
        node.name
        for file in CONTRACT.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if decided is None or decided == any(ast.unparse(mark) == "format_decides" for mark in node.decorator_list)
    }


@pytest.mark.deep
def test_every_claim_of_the_contract_runs_in_make_test(in_make_test: set[tuple[str, str]]) -> None:
    assert contract() - {name for _, name in in_make_test} == set()


@pytest.mark.parametrize("file", ["test_delta_conformance.py", "test_iceberg_conformance.py"])
def test_a_real_format_runs_there_what_it_decides_and_nothing_else(
    file: str, in_make_test: set[tuple[str, str]]
) -> None:
    names = {name for named, name in in_make_test if named == file}
    assert names & contract() != set()
    assert names & contract(decided=False) == set()


def test_a_local_format_runs_all_of_it(in_make_test: set[tuple[str, str]]) -> None:
    """Of the two local formats one lists its files and has other writers, and one has the latest rows."""
    local = {"test_listed_conformance.py", "test_parquet_conformance.py", "test_adoption.py", "test_takeover.py"}
    assert contract(decided=False) - {name for file, name in in_make_test if file in local} == set()
