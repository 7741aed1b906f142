"""Read import statements from source text; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from milepost.exports import exported_names
from milepost_testkit.processes.processes import REPOSITORY

PACKAGE = "milepost"
FOLDER = "pipeline/milepost"
"""The product: as Python imports it, and its location below the root."""

TESTKIT = "milepost_testkit"
HOUSES = {PACKAGE: FOLDER, TESTKIT: TESTKIT}
"""Package with floors -> its folder."""


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        name: the module. Of a name that a package exports: the module that defines it.
        statement: the module or package that the import statement names.
        at_module_level: importing the file executes the import.
    """

    file: Path
    line: int
    name: str
    at_module_level: bool
    statement: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}:{self.line} imports {self.name}"

    @property
    def root(self) -> str:
        return self.name.split(".")[0]


def imports_of(file: Path, text: str | None = None) -> Iterator[Import]:
    """Yield what a file imports, or what it would with this text.

    Imports below `if TYPE_CHECKING` never execute: they count as inside a function.
    """

    def visit(statements: Iterable[ast.AST], at_module_level: bool) -> Iterator[Import]:
        for node in statements:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(file, node.lineno, alias.name, at_module_level, alias.name)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}:{node.lineno}: relative import"
                module = str(node.module)
                for name in _imported_from(module, [alias.name for alias in node.names]):
                    yield Import(file, node.lineno, name, at_module_level, module)
            deferred = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
                isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            )
            yield from visit(_nested_statements(node), at_module_level and not deferred)

    return visit(ast.parse(file.read_text(encoding="utf-8") if text is None else text).body, True)


def _nested_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a statement's blocks. Expressions, most of a tree's nodes, import nothing."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, block, ())


def _imported_from(module: str, names: list[str]) -> list[str]:
    """Return the modules that an import statement loads: submodules, and the home modules of exported names."""
    folder, exported = folder_of(module), exports_of(module)
    loaded = {f"{module}.{name}" for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()}
    homes = {exported[name] for name in names if name in exported}
    loaded |= {module if folder_of(home).is_dir() else home for home in homes}  # a re-export belongs to the re-exporter
    return sorted(loaded) or [module]


@cache
def exports_of(module: str) -> dict[str, str]:
    """Return the home module of each name that a package of the product exports; empty for a module."""
    door = folder_of(module) / "__init__.py"
    return exported_names(door.read_text(encoding="utf-8")) if module.startswith(PACKAGE) and door.exists() else {}


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
