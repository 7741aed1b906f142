"""The list of seeded mutants cannot rot, and what the runner calls caught was caught."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

from scripts.mutants import (
    BEGIN,
    DOCUMENT,
    END,
    ROOT,
    Verdict,
    chosen,
    main,
    render_markdown,
    tracked_files,
    try_mutant,
    unchanged_failures,
)
from scripts.reference.markdown import with_section
from tests.mutants.mutant import INVARIANTS, Mutant
from tests.mutants.seeded import ALL


def test_every_mutant_still_fits_its_module() -> None:
    """Its old text is there exactly once, and what it makes of the module can be compiled."""
    for mutant in ALL:
        mutated = mutant.applied_to((ROOT / mutant.file).read_text(encoding="utf-8"))
        compile(mutated, mutant.file, "exec")


def test_every_named_test_exists() -> None:
    for test in {test for mutant in ALL for test in mutant.tests}:
        file, *names = test.split("::")
        found: object = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for name in names:
            found = getattr(found, name, None)
        assert callable(found), f"{test} is not there any more"


def test_every_invariant_is_broken_by_some_mutant_and_no_mutant_is_listed_twice() -> None:
    assert sorted({mutant.invariant for mutant in ALL}) == sorted(INVARIANTS)
    assert all(mutant.tests for mutant in ALL)
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in ALL]
    assert len(set(changes)) == len(changes)
    names = [mutant.name for mutant in ALL]
    assert len(set(names)) == len(names)
    assert chosen(["I5"]) == tuple(mutant for mutant in ALL if mutant.invariant == "I5")


def test_the_document_lists_the_mutants() -> None:
    """After a change of the list: `python -m scripts.mutants --update`."""
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document == with_section(document, BEGIN, render_markdown(ALL), END)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of its own: one function, a test that looks at it, and one that does not."""
    (tmp_path / "double.py").write_text("def double(number):\n    return 2 * number\n")
    (tmp_path / "test_double.py").write_text(
        "import pytest\n\nfrom double import double\n\n\n"
        "@pytest.mark.parametrize('number', [0, 1])\n"
        "def test_doubles(number):\n    assert double(number) == 2 * number\n"
        "\n\nclass TestOther:\n    def test_answers(self):\n        assert double(1) is not None\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


DOUBLES, ANSWERS = "test_double.py::test_doubles", "test_double.py::TestOther::test_answers"


def thrice(*tests: str) -> Mutant:
    return Mutant("three times", "I1", "double.py", "2 * number", "3 * number", tests)


@pytest.mark.parametrize(
    ("mutant", "verdict", "failed"),
    [
        pytest.param(thrice(DOUBLES), Verdict.CAUGHT, (DOUBLES,), id="caught by one of its cases"),
        pytest.param(thrice(ANSWERS), Verdict.SURVIVED, (), id="survived"),
        pytest.param(thrice(DOUBLES, ANSWERS), Verdict.SURVIVED, (DOUBLES,), id="one of two does not notice"),
        pytest.param(thrice("test_double.py::test_gone"), Verdict.BROKEN, (), id="no such test"),
        pytest.param(
            Mutant("no module", "I1", "double.py", "return 2 * number", "return (", (DOUBLES,)),
            Verdict.BROKEN,
            (),
            id="cannot be imported",
        ),
    ],
)
def test_a_mutant_is_caught_only_when_every_named_test_fails(
    tree: Path, mutant: Mutant, verdict: Verdict, failed: tuple[str, ...]
) -> None:
    """A module that cannot be imported, or a test that is not there, proves nothing."""
    outcome = try_mutant(mutant, tree, tracked_files(tree))
    assert (outcome.verdict, outcome.failed) == (verdict, failed), outcome.output
    assert (tree / "double.py").read_text() == "def double(number):\n    return 2 * number\n", (
        "only the copy is changed"
    )


def test_a_test_that_fails_without_any_mutant_proves_nothing(tree: Path) -> None:
    mutants = [thrice(DOUBLES, ANSWERS)]
    assert unchanged_failures(mutants, tree, tracked_files(tree)) == ""
    (tree / "double.py").write_text("def double(number):\n    return None\n")
    assert "3 failed" in unchanged_failures(mutants, tree, tracked_files(tree))


def test_a_mutant_whose_text_is_not_there_exactly_once_is_refused(tree: Path) -> None:
    for source in ("return 0\n", "2 * number + 2 * number\n"):
        with pytest.raises(ValueError, match=r"expected its old text once in double\.py, found it [02] times"):
            thrice(DOUBLES).applied_to(source)
    (tree / "double.py").write_text("def double(number):\n    return number + number\n")
    with pytest.raises(ValueError, match="Nothing was run"):
        try_mutant(thrice(DOUBLES), tree, tracked_files(tree))


def test_the_command_prints_the_table_and_refuses_words_that_name_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--markdown"]) == 0
    assert capsys.readouterr().out == render_markdown(ALL) + "\n"
    assert main(["I15"]) == 2
    assert capsys.readouterr().err == "no mutant of or named I15\n"
