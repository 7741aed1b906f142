"""A sampled mutant is judged by the tests that reach its line, once, and only what a test noticed counts as caught."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.mutants import Run
from scripts.sampling import reached_lines, sampled_mutants
from scripts.sampling.mutations import MutableModule
from scripts.sampling.reached_lines import measure
from scripts.sampling.sampled_mutants import Judge, mutable_files, sampled

MODULE = '''\
"""Doc."""

LIMIT = 10


def kept(size: int) -> bool:
    """Doc."""
    if size < 0:
        raise ValueError("no size")
    return size <= LIMIT


def waits(turns: int) -> int:
    while turns > 0:
        turns -= 1
    return turns


def never() -> int:
    return 3
'''
TESTS = """\
from milepost.state.small import LIMIT
from milepost.state.small import kept
from milepost.state.small import waits


def test_kept():
    assert kept(3) and not kept(LIMIT + 5)


def test_waits():
    assert waits(2) == 0
"""


def changes(source: str) -> list[tuple[int, str, str]]:
    module = MutableModule(source)
    found = [module.mutation(index) for index in range(len(module))]
    return [(one.line, one.before, one.after) for one in found if one is not None]


def test_what_only_people_read_is_not_mutated() -> None:
    found = changes(
        "from x import y\n"
        "@y(slots=True)\n"
        "def f(a: int = 1) -> 'int':\n"
        "    'what it does'\n"
        "    _LOG.info('one', a)\n"
        "    assert a > 2\n"
        "    if a < 3:\n"
        "        raise ValueError(a + 1)\n"
        "    return y('some text', 'name')\n"
    )
    assert (3, "1", "2") in found and (7, "a < 3", "a <= 3") not in found
    assert (7, "< 3", "<= 3") in found and (9, "'name'", "'XXnameXX'") in found
    assert {line for line, _, _ in found} == {3, 7, 9}
    assert not [one for one in found if "XXsome" in one[2]]


RING = """\
def pytest_addoption(parser):
    parser.addoption("--ring")
"""

SETTINGS = """\
[tool.pytest.ini_options]
pythonpath = ["pipeline", "."]
addopts = ["--import-mode=importlib"]
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one module and its tests."""
    root = tmp_path / "tree"
    for name, text in (
        ("pipeline/milepost/__init__.py", ""),
        ("pipeline/milepost/state/__init__.py", ""),
        ("pipeline/milepost/state/small.py", MODULE),
        ("tests/test_small.py", TESTS),
        ("tests/conftest.py", RING),
        ("pyproject.toml", SETTINGS),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setattr(reached_lines, "GROUPS", (("tests/test_small.py",),))
    return root


@pytest.mark.deep
def test_a_mutant_is_judged_by_the_tests_that_reach_its_line_and_remembered(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mutable_files(tree, ()) == ["pipeline/milepost/state/small.py"] and mutable_files(tree, ["sinks/"]) == []
    judge = Judge(tree, tmp_path / "kept", measure(tree, tmp_path / "kept", 1), 1)
    module = MutableModule(MODULE)
    mutations = [module.mutation(index) for index in range(len(module))]
    expected = {
        (3, "LIMIT = None"): ("caught", "test_kept", 2),
        (10, "< LIMIT"): ("survived", "", 1),
        (20, "4"): ("unreached", "", 0),
    }
    chosen = {(one.line, one.after): one for one in mutations if one}
    file = "pipeline/milepost/state/small.py"
    verdicts = {place: judge.judge(file, chosen[place]) for place in expected}
    assert {place: (one.verdict, one.by.partition("::")[2], one.tests) for place, one in verdicts.items()} == expected
    endless = Run(None, frozenset(), frozenset(), "killed")
    monkeypatch.setattr(sampled_mutants, "run_tests", lambda *_: endless)
    assert judge.judge(file, chosen[15, "turns = 1"]).verdict == "endless"
    monkeypatch.setattr(sampled_mutants, "run_tests", None)
    for place, verdict in verdicts.items():
        assert judge.judge(file, chosen[place]) == verdict, "nothing is run again"
    judge.close()
    assert (tree / file).read_text() == MODULE


def test_a_seed_names_the_same_mutants_each_time(tree: Path) -> None:
    first, again, other = (list(sampled(tree, 4, seed, ())) for seed in (1, 1, 2))
    assert first == again != other and len(first) == 4
    assert len(list(sampled(tree, 10**6, 1, ()))) == len({one.source for _, one in sampled(tree, 10**6, 1, ())})
