"""Every seeded mutant fits the code and names tests that exist, and what the runner calls caught was caught."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from milepost_testkit import wording
from scripts.mutants import (
    BEGIN,
    DOCUMENT,
    END,
    ROOT,
    Verdict,
    chosen,
    main,
    render_change,
    render_markdown,
    try_mutant,
    unchanged_failures,
)
from scripts.reference.markdown import with_section
from scripts.tree_copies import TreeCopies, tracked_files
from tests.mutants import operations, places
from tests.mutants.mutant import INVARIANTS, Mutant
from tests.mutants.operations import names_in_code
from tests.mutants.places import MisplacedMutant
from tests.mutants.seeded import ALL


def test_every_mutant_fits_the_code() -> None:
    """Its place exists once, and the module changes and compiles."""
    broken = []
    for mutant in ALL:
        try:
            changed = mutant.apply(ROOT).changed_statements()
        except MisplacedMutant as error:
            broken.append(str(error))
        else:
            compile(ast.unparse([after for _, after in changed]), mutant.function, "exec")  # type: ignore[arg-type]
    assert not broken, "\n\n".join(broken)


@pytest.mark.parametrize("module", [places, operations])
def test_the_examples_of_places_and_operations_hold(module: ModuleType) -> None:
    """Each operation has one."""
    results = doctest.testmod(module)
    assert results.attempted > 4
    assert not results.failed
    assert all(">>>" in str(operation.__doc__) for operation in operations.OPERATIONS.values())


def test_few_mutants_quote_names_of_variables() -> None:
    """They break when the variable is renamed."""
    quoting = [mutant.name for mutant in ALL if names_in_code(mutant.operation) - {"self"}]
    assert len(quoting) < len(ALL) / 8


def test_every_named_test_exists() -> None:
    """By the names in the file, or by importing it where a class inherits the test."""
    missing = {
        test: [mutant.name for mutant in ALL if test in mutant.tests]
        for test in sorted({test for mutant in ALL for test in mutant.tests})
        if not _is_defined(test) and not _is_imported(test)
    }
    assert not missing, "mutants name tests that do not exist"


@cache
def _definitions(file: str) -> frozenset[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
    return frozenset(_names(tree, ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            yield prefix + one.name
        elif isinstance(one, ast.ClassDef):
            yield from _names(one, f"{prefix}{one.name}::")


def _is_defined(test: str) -> bool:
    file, _, name = test.partition("::")
    return name in _definitions(file)


def _is_imported(test: str) -> bool:
    file, *names = test.split("::")
    if not (ROOT / file).exists():
        return False
    found: object = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for name in names:
        found = getattr(found, name, None)
    return callable(found)


def test_every_invariant_is_broken_by_some_mutant_and_no_mutant_is_listed_twice() -> None:
    assert sorted({mutant.invariant for mutant in ALL}) == sorted(INVARIANTS)
    assert all(mutant.tests for mutant in ALL)
    changes = [(mutant.function, mutant.place, mutant.operation) for mutant in ALL]
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
    product = tmp_path / "tree" / "pipeline" / "milepost"
    product.mkdir(parents=True)
    (product / "double.py").write_text(SOURCE)
    (tmp_path / "tree" / "test_double.py").write_text(
        "import pytest\n\nfrom double import double\n\n\n"
        "@pytest.mark.parametrize('number', [0, 1])\n"
        "def test_doubles(number):\n    assert double(number) == 2 * number\n"
        "\n\nclass TestOther:\n    def test_answers(self):\n        assert double(1) is not None\n"
    )
    (tmp_path / "tree" / "pytest.ini").write_text("[pytest]\npythonpath = pipeline/milepost\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "tree", check=True)
    return tmp_path / "tree"


@pytest.fixture
def copies(tree: Path, tmp_path: Path) -> TreeCopies:
    return TreeCopies(tree, tmp_path, 1, tracked_files(tree))


SOURCE = "def double(number):\n    return 2 * number\n"
DOUBLES, ANSWERS = "test_double.py::test_doubles", "test_double.py::TestOther::test_answers"


def thrice(*tests: str) -> Mutant:
    return Mutant("three times", "I1", "double:double", "constant", "become 3", tests)


@pytest.mark.parametrize(
    ("mutant", "verdict", "failed"),
    [
        pytest.param(thrice(DOUBLES), Verdict.CAUGHT, (DOUBLES,), id="caught by one of its cases"),
        pytest.param(thrice(ANSWERS), Verdict.SURVIVED, (), id="survived"),
        pytest.param(thrice(DOUBLES, ANSWERS), Verdict.SURVIVED, (DOUBLES,), id="one of two does not notice"),
        pytest.param(thrice("test_double.py::test_gone"), Verdict.BROKEN, (), id="no such test"),
        pytest.param(
            Mutant("no module", "I1", "double:", "def double", "drop", (DOUBLES,)),
            Verdict.BROKEN,
            (),
            id="no such kind",
        ),
        pytest.param(
            Mutant("not imported", "I1", "double:double", "return", "become nonlocal number", (DOUBLES,)),
            Verdict.BROKEN,
            (),
            id="cannot be imported",
        ),
    ],
)
def test_a_mutant_is_caught_only_when_every_named_test_fails(
    tree: Path, copies: TreeCopies, mutant: Mutant, verdict: Verdict, failed: tuple[str, ...]
) -> None:
    """A module that cannot be imported, a test or a place that is not there: none of them proves anything."""
    outcome = try_mutant(mutant, tree, copies)
    assert (outcome.verdict, outcome.failed) == (verdict, failed), outcome.output
    assert (tree / "pipeline" / "milepost" / "double.py").read_text() == SOURCE, "only the copy is changed"


def test_a_copy_is_whole_again_for_the_next_mutant(tree: Path, copies: TreeCopies) -> None:
    """Also when tests leave another file of the tree changed, and whatever Python has compiled."""
    assert try_mutant(thrice(DOUBLES), tree, copies).verdict is Verdict.CAUGHT
    with copies.lend("pipeline/milepost/double.py", SOURCE.replace("2", "4")) as copy:
        (copy / "test_double.py").unlink()
        (copy / "pytest.ini").write_text("")
    assert unchanged_failures([thrice(DOUBLES)], copies) == ""
    assert try_mutant(thrice(DOUBLES), tree, copies).verdict is Verdict.CAUGHT
    copies.close()
    assert not copy.exists()


def test_a_test_that_fails_without_any_mutant_proves_nothing(tree: Path, copies: TreeCopies, tmp_path: Path) -> None:
    mutants = [thrice(DOUBLES, ANSWERS)]
    assert unchanged_failures(mutants, copies) == ""
    (tree / "pipeline" / "milepost" / "double.py").write_text("def double(number):\n    return None\n")
    failing = TreeCopies(tree, tmp_path / "failing", 1, tracked_files(tree))
    assert "3 failed" in unchanged_failures(mutants, failing)


@pytest.mark.parametrize(
    ("mutant", "sentence"),
    [
        pytest.param(("single:double", "constant", "become 3"), "expected one 'single:double'", id="no module"),
        pytest.param(("double:triple", "constant", "become 3"), "expected one 'double:triple'", id="no function"),
        pytest.param(("double:double", "if, test", "negate"), "'if': expected 1, found 0", id="no node"),
        pytest.param(
            ("double:double", "constant 2/2", "drop"), "'constant 2/2': expected 2, found 1", id="another count"
        ),
        pytest.param(("double:double", "loop", "drop"), "'loop' is neither a kind of node nor a part", id="no kind"),
        pytest.param(("double:double", "constant", "remove"), "'remove' is no operation", id="no operation"),
        pytest.param(("double:double", "constant", "operator <="), "cannot have the operator", id="no operator there"),
        pytest.param(("double:double", "constant", "operator =<"), "'=<' is no operator", id="no operator"),
        pytest.param(("double:double", "constant", "use twice"), "reads twice, which no module has", id="unknown name"),
        pytest.param(
            ("double:double", "constant", "become factor"), "names factor, which nothing", id="unknown variable"
        ),
        pytest.param(
            ("double:double", "constant", "become number.size"), "reads size, which no module", id="unknown attribute"
        ),
        pytest.param(("double:double", "constant", "become 2 *"), "is no code", id="no code"),
        pytest.param(("double:double", "return, value", "drop"), "what holds it needs it", id="needed"),
        pytest.param(("double:double", "constant", "option twice=True"), "is no call without", id="no call"),
        pytest.param(("double:double", "constant", "become 2"), "changes nothing", id="no change"),
    ],
)
def test_a_mutant_that_does_not_fit_is_refused_with_the_reason(
    tree: Path, mutant: tuple[str, str, str], sentence: str
) -> None:
    with wording.raises(MisplacedMutant) as refused:
        Mutant("three times", "I1", *mutant, (DOUBLES,)).apply(tree)
    assert sentence in str(refused.value)


def test_a_function_that_two_modules_have_needs_more_of_its_path(tree: Path) -> None:
    other = tree / "pipeline" / "milepost" / "other"
    other.mkdir()
    (other / "double.py").write_text(SOURCE)
    with wording.raises(MisplacedMutant):
        thrice(DOUBLES).apply(tree)
    longer = Mutant("three times", "I1", "other.double:double", "constant", "become 3", (DOUBLES,))
    assert longer.apply(tree).file == "pipeline/milepost/other/double.py"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def double(count):\n    # Twice.\n    return 2*count\n", id="names, comments, format"),
        pytest.param("import math\n\n\nclass Other: ...\n\n\n" + SOURCE, id="surroundings"),
    ],
)
def test_a_mutant_fits_after_renames_and_edits_around_its_place(tree: Path, source: str) -> None:
    (tree / "pipeline" / "milepost" / "double.py").write_text(source)
    assert "return 3 *" in render_change(thrice(DOUBLES), tree)


def test_the_command_prints_the_table_and_refuses_words_that_name_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--markdown"]) == 0
    assert capsys.readouterr().out == render_markdown(ALL) + "\n"
    assert main(["--show", "check_token"]) == 0
    assert "+    if token <= pending.token:" in capsys.readouterr().out
    assert main(["I15"]) == 2
    assert capsys.readouterr().err == "no mutant of or named I15\n"
