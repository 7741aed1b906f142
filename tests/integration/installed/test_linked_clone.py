"""The clone in its own environment: installed by a link, and known to Airflow as one distribution."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from milepost_testkit.repository.bare_environment import bare_environment
from milepost_testkit.repository.distribution import copy_sources
from scripts import bootstrap

FOUND = """
from importlib.metadata import distributions, entry_points, version

print(sum(found.name == "milepost" for found in distributions()), version("milepost"))
print(*(point.value for point in entry_points(group="airflow.plugins")))
"""


@pytest.mark.deep
def test_a_clone_is_installed_as_one_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow takes every distribution that it finds for one more, and a page that two of them have for an error."""
    clone = copy_sources(tmp_path / "clone")
    monkeypatch.setattr(bootstrap, "ROOT", clone)
    backend = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    with bare_environment() as environment:
        environment.pip("install", *backend)  # as `make env` has it: from requirements.txt
        bootstrap.install_clone(Path(environment.program("python")))
        found = environment.python(FOUND).splitlines()
    assert found == ["1 0.1.0", "milepost.airflow.page.checkpoints_page:CheckpointsPage"]
