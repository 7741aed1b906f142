"""Packages export names: each is imported on first use, and other packages import nothing else of them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.exports import exported_names
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import FOLDER

DOORS = sorted(
    file
    for file in (REPOSITORY / FOLDER).rglob("*.py")
    if "lazy_exports(__name__)" in file.read_text(encoding="utf-8") and file.name != "exports.py"
)


def module_of(file: Path) -> str:
    parts = file.relative_to(REPOSITORY / "pipeline").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.deep
@pytest.mark.parametrize("file", DOORS, ids=module_of)
def test_every_name_that_a_package_exports_is_what_its_module_defines(file: Path) -> None:
    package = importlib.import_module(module_of(file))
    source = file.read_text(encoding="utf-8")
    (block,) = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    assert all(isinstance(node, ast.ImportFrom) for node in block.body)
    listed = [
        (str(node.module), alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert {name: module for module, name in listed} == exported_names(source), "each line exports one name"
    assert len({name for _, name in listed}) == len(listed)
    for module, name in listed:
        assert getattr(package, str(name)) is getattr(importlib.import_module(module), str(name))
    assert dir(package) == sorted(str(name) for _, name in listed)


@pytest.mark.deep
@pytest.mark.parametrize("file", DOORS, ids=module_of)
def test_no_export_has_the_name_of_a_submodule(file: Path) -> None:
    """Importing a submodule sets it as an attribute of the package, in place of the export."""
    if file.name == "__init__.py":
        inside = {path.stem for path in file.parent.iterdir()}
        assert not inside & exported_names(file.read_text(encoding="utf-8")).keys()


def test_a_name_that_is_not_exported_is_refused_with_those_that_are() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from milepost.storage import nothing")
    with pytest.raises(AttributeError, match=r"milepost\.storage has no 'nothing'; it exports .*open_store"):
        _ = importlib.import_module("milepost.storage").nothing


def test_an_export_loads_its_module_and_no_other_of_the_package() -> None:
    code = (
        "import sys; from milepost.storage import open_store;"
        "print(*sorted(name for name in sys.modules if name.startswith('milepost.storage.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "milepost.storage.open" in loaded
    assert not {"milepost.storage.s3", "milepost.storage.log", "milepost.storage.copying"} & set(loaded)
