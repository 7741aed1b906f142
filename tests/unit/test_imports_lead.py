"""Every import of this repository resolves: a module that is moved without an importer fails here first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from milepost_testkit.commands.mortal_processes import PRELOADED
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import files

ROOTS = {"milepost": "pipeline", "tests": ".", "milepost_testkit": ".", "scripts": ".", "bench": "."}
"""Name at the top of this repository -> the folder that it is imported from."""

EVERYTHING = "*"
"""A module that imports this may have any name."""


def place(module: str) -> Path | None:
    """Return the file of a module, or its folder; None: there is neither."""
    path = REPOSITORY / ROOTS[module.split(".")[0]] / module.replace(".", "/")
    return next((one for one in (path.with_suffix(".py"), path) if one.exists()), None)


@cache
def names(file: Path) -> frozenset[str]:
    """Return the names that a module has once it is imported; of a folder, those of its `__init__`."""
    file = file / "__init__.py" if file.is_dir() else file
    return frozenset(bound(ast.parse(file.read_text(encoding="utf-8")))) if file.exists() else frozenset()


def bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a block binds, but not those inside of its functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
            continue
        if isinstance(child, ast.alias):
            yield child.asname or child.name.split(".")[0]
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        yield from bound(child)


def lost(tree: ast.AST) -> Iterator[str]:
    """Yield the imports that lead nowhere: of a module that is not there, or of a name that it has not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in ROOTS and place(one.name) is None)
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ROOTS:
            found = place(str(node.module))
            known = frozenset() if found is None else names(found)
            for name in () if EVERYTHING in known else (alias.name for alias in node.names):
                if name not in known and place(f"{node.module}.{name}") is None:
                    yield f"{node.module}.{name}"


def test_every_import_resolves() -> None:
    """Of the product's own imports mypy says it."""
    around = files("tests", "milepost_testkit", "scripts", "bench", "dags", "plugins")
    broken = {str(file.relative_to(REPOSITORY)): [*lost(ast.parse(file.read_text("utf-8")))] for file in around}
    assert not {file: imported for file, imported in broken.items() if imported}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from milepost.storage.s3.store import probe", "milepost.storage.s3.store.probe"),
        ("from milepost_testkit.stores import faulty_disk", "milepost_testkit.stores.faulty_disk"),
        ("def late():\n    import scripts.nothing", "scripts.nothing"),
        ("from milepost.nowhere import anything", "milepost.nowhere.anything"),
    ],
)
def test_an_import_that_leads_nowhere_is_named(text: str, named: str) -> None:
    assert [*lost(ast.parse(text))] == [named]


def test_what_a_forked_run_preloads_is_there() -> None:
    """The fork server ignores a module that it cannot import, and each run would then import it again."""
    assert [name for name in PRELOADED if name.startswith("milepost") and place(name) is None] == []
