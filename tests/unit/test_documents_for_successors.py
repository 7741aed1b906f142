"""Pages for successors name code and tests that exist, and the picture follows the import rules."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository import architecture

EXPLANATION = REPOSITORY / "docs" / "explanation"
NAMES = ("architecture", "extending", "operator-kind", "load-bearing", "invariants")
PAGES = [EXPLANATION / f"{name}.md" for name in NAMES]
LINK = re.compile(r"\[`([^`\]]+)`\]\(([^)\s:]+\.py)\)")
"""A name in code and the file that defines it; or a file or package, by its own name."""


@cache
def defined_names(file: Path) -> frozenset[str]:
    """Return the qualified names of the functions and classes of a file, and its module-level constants."""

    def names(node: ast.AST, prefix: str) -> set[str]:
        found = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found |= {f"{prefix}{child.name}"} | names(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found |= {f"{prefix}{target.id}" for target in targets if isinstance(target, ast.Name)}
        return found

    return frozenset(names(ast.parse(file.read_text(encoding="utf-8")), ""))


def is_defined(name: str, file: Path) -> bool:
    """Whether a file defines a name; a test may be a method of a class that the page leaves out."""
    if not file.is_file():
        return False
    names = defined_names(file)
    return name in (file.name, file.stem, file.parent.name) or name in names | {one.split(".")[-1] for one in names}


def test_packages_are_drawn_as_the_import_rules_have_them() -> None:
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page(), (
        "run `python -m milepost_testkit.repository.architecture`"
    )


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    allowed = {"cli": {"jobmaster", "codec"}, "jobmaster": {"codec"}, "codec": set(), "exports": set()}
    picture = architecture.packages_picture(allowed, {"cli": {"spark"}})
    assert picture.splitlines()[1:] == [
        "    cli --> jobmaster",
        "    jobmaster --> codec",
        "    cli -.-> spark",
    ]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_and_tests_that_a_page_names_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert len(links) > 15
    assert [(name, file) for name, file in links if not is_defined(name, page.parent / file)] == []


def test_each_invariant_has_code_and_tests() -> None:
    rows = re.findall(r"^\| \*\*(I\d+)\*\* .*?\| (.*?) \| (.*?) \|$", PAGES[-1].read_text(encoding="utf-8"), re.M)
    assert [rule for rule, _, _ in rows] == [f"I{number}" for number in range(1, 15)]
    for rule, code, tests in rows:
        assert all("pipeline/milepost/" in file for _, file in LINK.findall(code)) and LINK.search(code), rule
        assert all(name.startswith("test_") and "tests/" in file for name, file in LINK.findall(tests)), rule
        assert LINK.search(tests), rule
