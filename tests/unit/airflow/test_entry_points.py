"""An installed Milepost is known to Airflow: its provider, and the Checkpoints page, which is there once."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.distribution import build, copy_sources, link_libraries, run_installed, unpack

LOADED = """
import json
from airflow import plugins_manager

infos = plugins_manager.get_plugin_info()
apps, _ = plugins_manager.get_fastapi_plugins()
print(json.dumps({
    "sources": [str(info["source"]) for info in infos if info["name"] == "milepost_checkpoints"],
    "routes": [app["url_prefix"] for app in apps],
    "tabs": [view["url_route"] for info in infos for view in info["external_views"]],
    "errors": plugins_manager.get_import_errors(),
}))
"""

PROVIDER = """
import json, sys
from milepost.airflow.provider import get_provider_info

heavy = sorted({name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"milepost", "__main__"})
from airflow.providers_manager import ProvidersManager

known = ProvidersManager().providers["milepost"]
print(json.dumps({"loaded": heavy, "version": known.version, "info": known.data, "told": get_provider_info()}))
"""


EACH = """
import json, os, sys
import airflow.listeners, airflow.plugins_manager, airflow.sdk
from importlib import import_module

before = set(sys.modules)
for module in sys.argv[1:]:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status == 0, module
        continue
    import_module(module)
    loaded = {name.split(".")[0] for name in set(sys.modules) - before}
    print(json.dumps([module, sorted(loaded - sys.stdlib_module_names)]), flush=True)
    os._exit(0)
"""
"""Imports each module in a fork of its own."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed but Milepost: Airflow takes each distribution that is on the path for one more."""
    return link_libraries(tmp_path_factory.mktemp("environment") / "libraries")


@pytest.fixture(scope="module")
def with_entry_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Milepost as it is installed."""
    folder = tmp_path_factory.mktemp("distribution")
    return unpack(build("build_wheel", copy_sources(folder / "sources"), folder), folder / "installed")


@pytest.fixture(scope="module")
def without_entry_points(with_entry_points: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Milepost as code on the path, or as an older distribution."""
    older = tmp_path_factory.mktemp("older") / "installed"
    shutil.copytree(with_entry_points, older)
    for file in older.glob("*.dist-info/entry_points.txt"):
        file.unlink()
    return older


def answer(code: str, *path: Path, **settings: str) -> dict[str, Any]:
    """Run code in a process that has these folders on its path, and return what it prints."""
    ran = run_installed("-c", code, path=path, environment=settings)
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return document


@pytest.mark.parametrize("distribution", ["with_entry_points", "without_entry_points"])
def test_the_page_is_registered_once_with_and_without_the_entry_point(
    distribution: str, libraries: Path, request: pytest.FixtureRequest
) -> None:
    """Airflow has the clone's plugins folder in both cases; a second plugin of one name would be an import error."""
    installed: Path = request.getfixturevalue(distribution)
    found = answer(LOADED, installed, libraries, AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"))
    (source,) = found.pop("sources")
    assert found == {"routes": ["/milepost"], "tabs": ["milepost", "checkpoints"], "errors": {}}
    assert ("milepost==" in source) is (distribution == "with_entry_points"), source


def test_the_provider_is_listed_and_its_entry_point_loads_nothing(libraries: Path, with_entry_points: Path) -> None:
    found = answer(PROVIDER, with_entry_points, libraries)
    assert found["loaded"] == [] and found["version"] == "0.1.0"
    assert found["info"].items() >= found["told"].items() and found["told"]["package-name"] == "milepost"


def entry_points() -> list[str]:
    """The modules of the entry points that Airflow loads."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["entry-points"][name] for name in ("airflow.plugins", "apache_airflow_provider")]
    return [target.partition(":")[0] for group in groups for target in group.values()]


MODULES = (*entry_points(), "milepost.airflow.dags")


@pytest.fixture(scope="module")
def loaded(libraries: Path) -> dict[str, list[str]]:
    """What each of `MODULES` loads that Airflow has not loaded before."""
    ran = run_installed("-c", EACH, *MODULES, path=(REPOSITORY / "pipeline", libraries), environment={})
    assert ran.returncode == 0, ran.stderr
    return dict(map(json.loads, ran.stdout.splitlines()[-len(MODULES) :]))


@pytest.mark.parametrize("module", MODULES)
def test_the_plugin_module_imports_nothing_heavy(module: str, loaded: dict[str, list[str]]) -> None:
    """Scheduler, workers and triggerer load each entry point: the server alone ever shows a page."""
    assert loaded[module] == ["milepost"]
