"""The layout holds: who may import whom, where the heavy libraries live, and how long a module may get.

The rules are DESIGN section 2, read off the import statements of every module; nothing is executed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

JOBMASTER = "jobmaster"
"""Stands for `pipeline/jobmaster.py` and the modules beside it, directly in `pipeline/`."""

LOWER = {"protocol", "config", "storage", "state", "operators", "sources", "sinks", "quality"}
ALLOWED: dict[str, set[str]] = {
    "protocol": set(),
    "config": {"protocol"},
    "storage": {"protocol"},
    "state": {"protocol"},
    "operators": {"protocol", "config"},
    "sources": {"protocol", "config"},
    "quality": {"protocol", "config"},
    "sinks": {"protocol", "config", "storage"},
    JOBMASTER: LOWER,
    "spark": LOWER | {JOBMASTER},
    "orchestration": {JOBMASTER, "config", "protocol"},
    "cli": {JOBMASTER, "config", "protocol"},
    "__main__": {"cli"},
}
ALLOWED_INSIDE_FUNCTIONS: dict[str, set[str]] = {"orchestration": {"spark"}, "cli": {"spark"}}

IMPURE = {
    "asyncio", "concurrent", "ctypes", "fcntl", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
    "uuid",
}  # fmt: skip
"""Standard library modules that mean I/O, clock, randomness or logging: not for `protocol/`."""

HOMES: dict[str, tuple[set[str], set[str]]] = {
    "boto3": ({"storage"}, set()),
    "botocore": ({"storage"}, set()),
    "pyspark": ({"spark"}, set(ALLOWED) - {"protocol"}),
    "airflow": ({"orchestration"}, set()),
    "great_expectations": (set(), {"quality"}),
}
"""Heavy library -> (packages that may import it at module level, packages that may do so inside functions)."""

MAX_LINES = 400
MAX_LINES_WITH_REASON = 600


@dataclass(frozen=True)
class Import:
    """One imported module name, and whether importing its file executes it."""

    file: Path
    line: int
    name: str
    at_module_level: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.name}"


def imports_of(file: Path) -> Iterator[Import]:
    """Yield what a file imports. Imports below `if TYPE_CHECKING` never execute: they count as inside a function."""

    def visit(node: ast.AST, at_module_level: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, at_module_level)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}:{child.lineno}: relative import"
                # `from pipeline import spark` names a package too.
                whole = [f"pipeline.{a.name}" for a in child.names] if child.module == "pipeline" else [child.module]
                for name in whole:
                    yield Import(file, child.lineno, str(name), at_module_level)
            deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
                isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            )
            yield from visit(child, at_module_level and not deferred)

    return visit(ast.parse(file.read_text(encoding="utf-8")), True)


def package_of(module: str) -> str:
    """`pipeline.spark.java` -> `spark`; `pipeline.history` -> the jobmaster's group; `pipeline` -> ``""``."""
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    if parts[1] in ALLOWED:
        return parts[1]
    return JOBMASTER if (ROOT / "pipeline" / f"{parts[1]}.py").exists() else ""


def package_of_file(file: Path) -> str:
    relative = file.relative_to(ROOT).with_suffix("")
    return package_of(".".join(relative.parts)) if relative.parts[-1] != "__init__" else package_of_folder(relative)


def package_of_folder(relative: Path) -> str:
    return relative.parts[1] if len(relative.parts) > 2 else ""


def files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


PIPELINE = [imported for file in files("pipeline") for imported in imports_of(file)]


def violations(broken: list[Import]) -> str:
    return "\n".join(str(imported) for imported in broken)


def test_every_module_of_the_product_belongs_to_a_known_package() -> None:
    """A new package enters the layout by entering the table, with what it may import."""
    folders = {path.name for path in (ROOT / "pipeline").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(ALLOWED)


def test_packages_import_only_what_lies_below_them() -> None:
    broken = []
    for imported in PIPELINE:
        if imported.name.split(".")[0] != "pipeline":
            continue
        here, there = package_of_file(imported.file), package_of(imported.name)
        allowed = ALLOWED.get(here, set()) | {here, ""}
        if not imported.at_module_level:
            allowed |= ALLOWED_INSIDE_FUNCTIONS.get(here, set())
        if there not in allowed:
            broken.append(imported)
    assert not broken, violations(broken)


def test_the_protocol_is_pure() -> None:
    """No library, no I/O, no clock, no randomness, no logging, not even inside a function."""
    broken = [
        imported
        for imported in PIPELINE
        if package_of_file(imported.file) == "protocol"
        and (root := imported.name.split(".")[0]) != "pipeline"
        and (root not in sys.stdlib_module_names or root in IMPURE)
    ]
    assert not broken, violations(broken)


def test_heavy_libraries_stay_in_their_homes() -> None:
    broken = []
    for imported in PIPELINE:
        at_module_level, inside_functions = HOMES.get(imported.name.split(".")[0], (None, None))
        if at_module_level is None or inside_functions is None:
            continue
        allowed = at_module_level if imported.at_module_level else at_module_level | inside_functions
        if package_of_file(imported.file) not in allowed:
            broken.append(imported)
    assert not broken, violations(broken)


def test_tasks_use_the_task_sdk_only() -> None:
    """Airflow's tasks have no metadata database: anything but `airflow.sdk` would be a way around that.

    The standard provider is made for tasks: its operators use that kit, as ours do.
    """
    of_tasks = ("airflow.sdk", "airflow.providers.standard")
    broken = [
        imported
        for file in files("pipeline", "dags")
        for imported in imports_of(file)
        if imported.name.split(".")[0] == "airflow"
        and not f"{imported.name}.".startswith(tuple(f"{a}." for a in of_tasks))
    ]
    assert not broken, violations(broken)


def test_dag_files_are_thin_and_the_product_knows_no_tools() -> None:
    dag_imports = [imported for file in files("dags") for imported in imports_of(file)]
    broken = [
        imported
        for imported in dag_imports
        if (root := imported.name.split(".")[0]) not in sys.stdlib_module_names
        and root != "airflow"
        and not imported.name.startswith("pipeline.orchestration")
    ]
    broken += [i for i in PIPELINE if i.name.split(".")[0] in {"scripts", "tests", "bench", "dags", "plugins"}]
    assert not broken, violations(broken)


@pytest.mark.parametrize(
    "file", files("pipeline", "dags", "plugins", "scripts"), ids=lambda f: str(f.relative_to(ROOT))
)
def test_modules_stay_readable(file: Path) -> None:
    """At most 400 lines; up to 600 with a line "Size: why" in the module's docstring; never more."""
    text = file.read_text(encoding="utf-8")
    lines = text.count("\n")
    reason = "Size:" in (ast.get_docstring(ast.parse(text)) or "")
    assert lines <= (MAX_LINES_WITH_REASON if reason else MAX_LINES)


@pytest.mark.parametrize("name", ["utils", "util", "helpers", "helper", "common", "misc"])
def test_the_product_has_no_drawer_for_everything(name: str) -> None:
    assert not [file for file in files("pipeline") if name in file.relative_to(ROOT).with_suffix("").parts]
