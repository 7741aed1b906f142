"""An expensive test function is listed as redundant only if others take each jump that it takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.suite import covered, redundant

PRODUCT = """def sign(number):
    if number < 0:
        return "-"
    return "+"
"""
TESTS = """import small

def test_a_negative_number(): assert small.sign(-1) == "-"
def test_a_positive_number(): assert small.sign(1) == "+"
def test_both(): assert small.sign(1) + small.sign(-1) == "+-"
def test_a_crash_at_a_negative_number(): assert small.sign(-2) == "-"
"""
SECONDS = {"a_negative_number": 1.0, "a_positive_number": 1.0, "both": 5.0, "a_crash_at_a_negative_number": 9.0}


def test_a_jump_that_two_must_take_keeps_two() -> None:
    jumps = {name: np.array([0], np.int64) for name in "abc"}
    seconds = {"a": 3.0, "b": 2.0, "c": 1.0}
    assert redundant.redundant(jumps, seconds, "abc", np.array([1])) == ["a", "b"]
    assert redundant.redundant(jumps, seconds, "abc", np.array([2])) == ["a"]
    assert redundant.redundant(jumps, seconds, "ab", np.array([1])) == ["a", "b"], "c stays in any case"


@pytest.mark.deep
def test_what_others_cover_is_listed_with_its_cost_and_no_fault_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'pipeline'}:{covered.ROOT}")
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "small.py").write_text(PRODUCT, encoding="utf-8")
    (tmp_path / "test_small.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = pipeline\n", encoding="utf-8")
    assert covered.run(tmp_path / "reached", ["-q", "test_small.py"], tmp_path) == 0
    costs = {"tests": {f"test_small.py::test_{name}": {"cpu": cpu} for name, cpu in SECONDS.items()}}
    (tmp_path / "costs.json").write_text(json.dumps(costs), encoding="utf-8")
    capsys.readouterr()
    assert redundant.main([str(tmp_path / "reached"), str(tmp_path / "costs.json")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "   5.0 s  test_small.py::test_both",
        "   1.0 s  test_small.py::test_a_negative_number",
        "2 of 4 functions, 38% of the CPU time",
    ]
