"""What tests reach is measured in every process, and compared by the text of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit import wording
from scripts.suite import covered

SMALL = """def sign(number):
    if number < 0:
        return "-"
    return "+"


def double(number):
    return 2 * number
"""
TESTS = """import subprocess, sys

import small

def test_a_negative_number(): assert small.sign(-1) == "-"
def test_a_positive_number(): assert small.sign(1) == "+"
def test_another_process():
    subprocess.run([sys.executable, "-c", "import small; small.double(1)"], check=True)
"""
INI = "[pytest]\npythonpath = pipeline\naddopts = -p no:cacheprovider\n"


def reach(tmp_path: Path, name: str, *words: str, product: str = SMALL) -> covered.Reached:
    """Run some tests of a small tree under a measurement."""
    root = tmp_path / f"{name}-tree"
    (root / "pipeline").mkdir(parents=True)
    (root / "pipeline" / "small.py").write_text(product, encoding="utf-8")
    (root / "test_small.py").write_text(TESTS, encoding="utf-8")
    (root / "pytest.ini").write_text(INI, encoding="utf-8")
    assert covered.run(tmp_path / name, ["-q", "test_small.py", *words], root) == 0
    return covered.Reached.read(tmp_path / name)


@pytest.fixture
def python_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that a test starts imports the small product, and the plugin."""
    for name in ("before", "after"):
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / f'{name}-tree' / 'pipeline'}:{covered.ROOT}", prepend=":")


@pytest.mark.deep
@pytest.mark.usefixtures("python_path")
def test_what_only_the_first_run_reaches_is_listed_with_its_tests(tmp_path: Path) -> None:
    before = reach(tmp_path, "before")
    moved = f"import math  # a new line moves all others\n{SMALL}"
    after = reach(tmp_path, "after", "-k", "positive", product=moved)
    assert [(one.line, one.text, one.tests) for one in covered.lost(before, after)] == [
        (3, 'return "-"', ("test_small.py::test_a_negative_number",)),
        (8, "return 2 * number", ("test_small.py::test_another_process",)),
    ]
    assert covered.lost(after, before) == []
    assert covered.lost_branches(before, after) == []
    assert "| `all` | 6 |" in covered.totals(before)


@pytest.mark.deep
@pytest.mark.usefixtures("python_path")
def test_a_branch_between_lines_that_both_runs_reach_is_listed(tmp_path: Path) -> None:
    product = SMALL.replace('        return "-"\n    return "+"', '        number = -1\n    return "-+"[number > 0]')
    assert product != SMALL
    before = reach(tmp_path, "before", "-k", "number", product=product)
    after = reach(tmp_path, "after", "-k", "negative", product=product)
    assert covered.lost(before, after) == []
    assert covered.lost_branches(before, after) == [("pipeline/small.py", "if number < 0:", 'return "-+"[number > 0]')]


def test_a_folder_without_data_is_refused_by_name(tmp_path: Path) -> None:
    with wording.raises(FileNotFoundError):
        covered.Reached.read(tmp_path)
