"""The three rings: every test is in exactly one of them, and the parts of a ring are the whole ring."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from scripts.suite.rings import Claim, Part, Ring, claims_of, listing, page, ring_of, runs

PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_a_property(number): pass
"""
PLAIN = """
import pytest

def test_short(): pass
@pytest.mark.long
def test_long(): pass
@pytest.mark.deep
def test_deep(): pass
@pytest.mark.parametrize("case", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_cases(case): pass
"""
pytestmark = pytest.mark.long

MARKS = "[pytest]\nmarkers =\n  long\n  deep\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tree of tests below folders of each ring."""
    root = tmp_path_factory.mktemp("tree")
    (root / "pytest.ini").write_text(MARKS, encoding="utf-8")
    for number, folder in enumerate(
        ["unit/jobspec", "unit/spark", "conformance/protocol", "conformance/stores", "e2e"]
    ):
        (root / "tests" / folder).mkdir(parents=True)
        (root / "tests" / folder / f"test_plain_{number}.py").write_text(PLAIN, encoding="utf-8")
        (root / "tests" / folder / f"test_property_{number}.py").write_text(PROPERTY, encoding="utf-8")
    return root


def collected(tree: Path, *words: str) -> set[str]:
    """Return the names of the tests that a run would have."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "_hypothesis_pytestplugin", "-p", "scripts.suite.rings", *words],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if line.startswith("tests/")}


def test_the_rings_together_are_every_test_and_share_only_property_tests(tree: Path) -> None:
    check, test, test_all = (collected(tree, "--ring", ring) for ring in Ring)
    assert check | test | test_all == collected(tree)
    assert {test.split("/")[2] for test in check} == {"jobspec", "protocol"}
    assert check < test
    assert test & test_all == test & collected(tree, "-m", "hypothesis") != set()
    assert test_all - test == collected(tree, "-m", "deep") != set()


def test_the_parts_of_a_ring_are_the_whole_ring_and_share_nothing(tree: Path) -> None:
    parts = [collected(tree, "--ring", "test-all", "--part", f"{number}/3") for number in (1, 2, 3)]
    assert Counter(test for part in parts for test in part) == Counter(collected(tree, "--ring", "test-all"))
    assert all(parts)


@pytest.mark.parametrize(
    ("nodeid", "marks", "ring"),
    [
        ("tests/unit/jobspec/test_a.py::test_b", set(), Ring.CHECK),
        ("tests/conformance/protocol/test_a.py::test_b", set(), Ring.CHECK),
        ("tests/unit/jobspec/test_a.py::test_b", {"long"}, Ring.TEST),
        ("tests/unit/airflow/test_a.py::test_b", set(), Ring.TEST),
        ("tests/conformance/stores/test_a.py::test_b", set(), Ring.TEST),
        ("tests/unit/jobspec/test_a.py::test_b", {"deep"}, Ring.TEST_ALL),
        ("tests/chaos/test_a.py::test_b", {"deep", "long"}, Ring.TEST_ALL),
    ],
)
def test_the_ring_of_a_test_is_the_smallest_that_runs_it(nodeid: str, marks: set[str], ring: Ring) -> None:
    assert ring_of(nodeid, marks) is ring
    assert runs(ring, nodeid, marks)
    assert runs(Ring.TEST, nodeid, marks) == (ring is not Ring.TEST_ALL)
    assert runs(Ring.TEST_ALL, nodeid, marks) == (ring is Ring.TEST_ALL)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3/5"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text!r}"):
        Part.parse(text)


def test_all_cases_of_a_test_are_in_the_same_part() -> None:
    part = Part(2, 5)
    for name in ("test_x", "test_y", "test_z"):
        assert len({part.has(f"tests/unit/test_a.py::{name}[{case}]") for case in range(20)}) == 1


def test_a_claim_is_proved_by_the_smallest_ring_that_has_one_of_its_cases() -> None:
    tests = [
        ("tests/unit/jobspec/test_a.py::TestA::test_a_key_is_refused[x]", Ring.TEST_ALL),
        ("tests/unit/jobspec/test_a.py::TestA::test_a_key_is_refused[y::z]", Ring.CHECK),
        ("tests/e2e/test_b.py::test_it_runs", Ring.TEST),
    ]
    claims = claims_of(tests)
    assert claims == [
        Claim("tests/unit/jobspec/test_a.py", "a key is refused", Counter({Ring.TEST_ALL: 1, Ring.CHECK: 1})),
        Claim("tests/e2e/test_b.py", "it runs", Counter({Ring.TEST: 1})),
    ]
    assert [claim.ring for claim in claims] == [Ring.CHECK, Ring.TEST]
    assert "| `tests/unit/jobspec` | 1, 1 | 0, 0 | 1, 0 |" in page(claims)
    assert "| `tests/e2e` | 0, 0 | 1, 1 | 0, 0 |" in page(claims)
    assert listing(claims).splitlines() == [
        "tests/unit/jobspec/test_a.py",
        "  check     a key is refused  (check +1, test-all +1)",
        "",
        "tests/e2e/test_b.py",
        "  test      it runs  (test +1)",
    ]
