"""Read import statements from source text; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milepost_testkit.processes.processes import REPOSITORY

PACKAGE = "milepost"
FOLDER = "pipeline/milepost"
"""The product: as Python imports it, and where it lies below the root."""

TESTKIT = "milepost_testkit"
HOUSES = {PACKAGE: FOLDER, TESTKIT: TESTKIT}
"""Package with floors -> its folder."""


@dataclass(frozen=True)
class Import:
    """One imported module name, and whether importing its file executes it."""

    file: Path
    line: int
    name: str
    at_module_level: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}:{self.line} imports {self.name}"

    @property
    def root(self) -> str:
        return self.name.split(".")[0]


def imports_of(file: Path, text: str | None = None) -> Iterator[Import]:
    """Yield what a file imports, or what it would with this text.

    Imports below `if TYPE_CHECKING` never execute: they count as inside a function.
    """

    def visit(node: ast.AST, at_module_level: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, at_module_level)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}:{child.lineno}: relative import"
                for name in _imported_from(str(child.module), [alias.name for alias in child.names]):
                    yield Import(file, child.lineno, name, at_module_level)
            deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
                isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            )
            yield from visit(child, at_module_level and not deferred)

    return visit(ast.parse(file.read_text(encoding="utf-8") if text is None else text), True)


def _imported_from(module: str, names: list[str]) -> list[str]:
    """`from milepost.state import runs` names a module too: that one is imported, beside its package."""
    folder = folder_of(module)
    inside = [name for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()]
    return [f"{module}.{name}" for name in inside] or [module]


def folder_of(module: str) -> Path:
    """`milepost.state` -> `pipeline/milepost/state`, below the root."""
    package, _, inside = module.partition(".")
    return REPOSITORY / HOUSES.get(package, package) / inside.replace(".", "/")


def imports_in(*folders: str) -> list[Import]:
    return [imported for file in files(*folders) for imported in imports_of(file)]


def files(*folders: str) -> list[Path]:
    """Every module below these folders of the repository. AssertionError: there is none in one of them."""
    found = {folder: sorted((REPOSITORY / folder).rglob("*.py")) for folder in folders}
    assert all(found.values()), found
    return [file for folder in folders for file in found[folder]]
