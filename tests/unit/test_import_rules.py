"""The layout holds: who may import whom, where the heavy libraries live, and how long a module may get."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.floors import FLOORS
from milepost_testkit.repository.import_rules import (
    ALLOWED,
    around_the_facade,
    around_the_task_sdk,
    below_the_surface,
    circles,
    climbing,
    formatted,
    homeless,
    impure,
    of_tools,
    past_the_door,
    rising,
    room_folder,
    thick,
    upward,
)
from milepost_testkit.repository.imports import FOLDER, PACKAGE, TESTKIT, Import, files, imports_in, imports_of

MAX_LINES = 400
MAX_LINES_WITH_REASON = 600

Rule = Callable[[list[Import]], list[Import]]


@cache
def of_product() -> list[Import]:
    return imports_in(FOLDER)


@cache
def found_in_product(rule: Rule) -> list[Import]:
    return rule(of_product())


@cache
def of_testkit() -> list[Import]:
    return imports_in(TESTKIT)


def test_every_module_of_the_product_belongs_to_a_known_package() -> None:
    """A new package enters the layout by entering the table, with what it may import."""
    folders = {path.parent.name for path in (REPOSITORY / FOLDER).glob("*/*.py")}  # git leaves folders of caches behind
    assert "protocol" in folders and folders <= {room.split(".")[0] for room in ALLOWED}


@pytest.mark.long
@pytest.mark.parametrize(
    "rule",
    [upward, climbing, impure, homeless, formatted, around_the_facade, around_the_task_sdk, of_tools, past_the_door],
    ids=lambda r: r.__name__,
)
def test_no_import_of_the_product_is(rule: Rule) -> None:
    if broken := found_in_product(rule):
        pytest.fail("\n".join((f"{rule.__name__}: {str(rule.__doc__).splitlines()[0]}", *map(str, broken))))


@pytest.mark.long
def test_no_modules_import_each_other() -> None:
    assert not circles(of_product())


@pytest.mark.long
def test_a_circle_of_imports_is_found() -> None:
    back = imports_of(REPOSITORY / FOLDER / "protocol/records/ids.py", f"import {PACKAGE}.protocol.records.checkpoints")
    circle = ("checkpoints", "ids", "layout", "own_keys")
    assert circles([*of_product(), *back]) == {f"{PACKAGE}.protocol.records.{name}" for name in circle}


@pytest.mark.parametrize("room", FLOORS)
def test_the_floors_of_a_room_name_all_that_is_in_it(room: str) -> None:
    folder = room_folder(room)
    inside = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    named = [name for floor in FLOORS[room] for name in floor.split()]
    place = f'FLOORS["{room}"] in milepost_testkit/repository/floors.py'
    assert not (missing := inside - {"__init__", *named}), f"put {sorted(missing)} on a floor of {place}"
    assert not (gone := set(named) - inside), f"remove {sorted(gone)} from {place}"
    assert len(named) == len(set(named)), f"{place} names a module twice"


@pytest.mark.long
@pytest.mark.parametrize("rule", [climbing, rising], ids=lambda r: r.__name__)
def test_no_import_of_the_testkit_is(rule: Rule) -> None:
    assert not rule(of_testkit()), "\n".join(map(str, rule(of_testkit())))


def test_the_scripts_do_not_import_what_imports_them() -> None:
    assert not rising(imports_in("scripts"))


def test_no_modules_of_the_testkit_import_each_other() -> None:
    assert not circles(of_testkit())


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        (climbing, "stores/canary.py", f"from {TESTKIT}.jobs.job_log import JobLog"),
        (climbing, "stores/canary.py", f"def late():\n    import {TESTKIT}.proxies.relay"),
        (climbing, "models/data/batch.py", f"from {TESTKIT}.models.data.laws import law_of"),
        (climbing, "models/protocol/canary.py", f"from {TESTKIT}.models.data import batch"),
        (climbing, "law/canary.py", f"from typing import *\nif TYPE_CHECKING:\n    import {TESTKIT}.chaos.model"),
        (rising, "jobs/canary.py", "from tests.conformance.sinks.contract.case import SinkCase"),
        (rising, "jobs/canary.py", "def late():\n    import bench.machine"),
    ],
)
def test_a_rule_of_the_testkit_finds_what_breaks_it(rule: Rule, file: str, text: str) -> None:
    canary = [one for one in imports_of(REPOSITORY / TESTKIT / file, text) if one.root != "typing"]
    assert len(canary) == 1 and rule([*of_testkit(), *canary]) == canary


def test_a_circle_of_the_testkit_is_found() -> None:
    back = imports_of(REPOSITORY / TESTKIT / "stores/called_store.py", f"import {TESTKIT}.stores.job_stores")
    circle = ("called_store", "faulty_store", "hooked_store", "job_stores")
    assert circles([*of_testkit(), *back]) == {f"{TESTKIT}.stores.{name}" for name in circle}


def test_scripts_that_import_the_testkit_are_found() -> None:
    canary = list(imports_of(REPOSITORY / "scripts/canary.py", f"import {TESTKIT}.law.run"))
    assert len(canary) == 1 and rising(canary) == canary


def test_each_folder_of_the_testkit_says_what_it_holds() -> None:
    folders = {file.parent for file in files(TESTKIT)}
    silent = [folder for folder in folders if not (folder / "__init__.py").is_file()]
    assert not silent
    texts = {folder: ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) for folder in folders}
    assert [folder for folder, text in texts.items() if not text or text.count("\n") > 2] == []


def test_the_demo_and_the_benchmark_use_the_stable_surface() -> None:
    outside = [REPOSITORY / name for name in ("scripts/demo.py", "scripts/demo_report.py", "bench/systems/milepost.py")]
    imports = [*imports_in("config"), *(imported for file in outside for imported in imports_of(file))]
    assert any(imported.name == f"{PACKAGE}.api" for imported in imports) and not below_the_surface(imports)


def test_the_stable_interface_loads_only_used_modules() -> None:
    code = f"import sys; from {PACKAGE}.api import open_store; print('{PACKAGE}.jobmaster' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "False"


@pytest.mark.parametrize("rule", [thick, around_the_task_sdk], ids=lambda r: r.__name__)
def test_no_import_of_a_file_that_airflow_loads_is(rule: Rule) -> None:
    assert not rule(imports_in("dags", "plugins"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        (upward, "protocol/canary.py", "import {package}.state.runs"),
        (upward, "state/canary.py", "from {package} import spark"),
        (upward, "airflow/canary.py", "from {package}.spark.driver.runner import SparkEpochRunner"),
        (upward, "jobmaster/canary.py", "def late():\n    from {package}.cli.main import app"),
        (upward, "operators/canary.py", "from {package}.storage.open import open_store"),
        (climbing, "protocol/records/canary.py", "import {package}.protocol.manifest.coordinator"),
        (climbing, "jobmaster/job/canary.py", "from {package}.jobmaster.jobmaster import JobMaster"),
        (climbing, "protocol/failure/canary.py", "from {package}.protocol.subtask.subtask import Commands"),
        (impure, "protocol/canary.py", "def late():\n    import time"),
        (impure, "protocol/canary.py", "import numpy"),
        (impure, "codec/canary.py", "import time"),
        (upward, "codec/canary.py", "from {package}.protocol.manifest.transaction.events import Event"),
        (homeless, "sinks/canary.py", "import boto3"),
        (homeless, "state/canary.py", "def late():\n    import airflow.sdk"),
        (homeless, "cli/canary.py", "from pyspark.sql import SparkSession"),
        (homeless, "quality/canary.py", "import great_expectations"),
        (formatted, "jobmaster/run/canary.py", "from {package}.sinks.formats.parquet import ParquetFormat"),
        (around_the_facade, "cli/canary.py", "def late():\n    from {package}.jobmaster.run.epochs import Epochs"),
        (around_the_task_sdk, "airflow/canary.py", "from airflow.models import DagRun"),
        (below_the_surface, "../../config/canary.py", "from {package}.storage.open import open_store"),
        (of_tools, "state/canary.py", "from milepost_testkit.tasks.dataplane import rows"),
        (past_the_door, "jobmaster/canary.py", "from {package}.storage.open import open_store"),
        (past_the_door, "cli/canary.py", "def late():\n    import {package}.storage.open"),
        (thick, "../../dags/canary.py", "from {package}.jobmaster import JobMaster"),
    ],
)
def test_a_rule_of_imports_finds_what_breaks_it(rule: Rule, file: str, text: str) -> None:
    canary = list(imports_of(REPOSITORY / FOLDER / file, text.format(package=PACKAGE)))
    assert len(canary) == 1 and rule(canary) == canary
    assert rule([*of_product(), *canary]) == [*found_in_product(rule), *canary]


@pytest.mark.parametrize("folder", [FOLDER, "dags", "plugins", "scripts", TESTKIT])
def test_modules_stay_readable(folder: str) -> None:
    """At most 400 lines; up to 600 with a line "Size: why" in the module's docstring; never more."""
    texts = {str(file.relative_to(REPOSITORY)): file.read_text(encoding="utf-8") for file in files(folder)}
    assert {name: text.count("\n") for name, text in texts.items() if is_too_long(text)} == {}


def is_too_long(text: str) -> bool:
    """Return whether a module has more lines than its docstring allows."""
    lines = text.count("\n")
    if lines <= MAX_LINES:
        return False
    return lines > MAX_LINES_WITH_REASON or "Size:" not in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize(
    ("lines", "reason", "too_long"),
    [(400, "", False), (401, "", True), (600, "Size: why", False), (601, "Size: why", True)],
)
def test_a_module_beyond_its_lines_is_too_long(lines: int, reason: str, too_long: bool) -> None:
    assert is_too_long(f'"""A module.\n\n{reason}\n"""\n' + "\n" * (lines - 4)) is too_long


@pytest.mark.parametrize("name", ["utils", "util", "helpers", "helper", "common", "misc"])
def test_the_product_has_no_drawer_for_everything(name: str) -> None:
    assert not [file for file in files(FOLDER) if name in file.relative_to(REPOSITORY).with_suffix("").parts]
