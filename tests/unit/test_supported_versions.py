"""The supported versions of PySpark and Airflow are those of pip, are tested, and need each older branch."""

from __future__ import annotations

import re
from importlib.metadata import version
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from milepost.airflow import compat as airflow_compat
from milepost.extras import EXTRAS, SUPPORTED, release_of, supported_range
from milepost.jobspec.load.lint import LIMITED_READERS, WATCHED_QUEUES
from milepost.sources.landed import read_limits
from milepost.spark.driver import compat as spark_compat
from milepost_testkit.processes.processes import REPOSITORY
from scripts.older_versions import OLDER, version_of
from tests.integration.versions.test_airflow_versions import ACTS, EPOCHS, NOT_ON_3_1, PAGES
from tests.unit.test_dependencies import PROJECT

MODULES = {"pyspark": (spark_compat, read_limits), "apache-airflow": (airflow_compat,)}
"""Library -> the modules that declare differences between its versions."""


def differences(*modules: ModuleType) -> dict[str, tuple[int, ...]]:
    """Where a first version without a difference is declared -> that version."""
    return {
        f"{module.__name__}.{name}": bound
        for module in modules
        for name, bound in vars(module).items()
        if re.fullmatch("[A-Z][A-Z_]+", name) and isinstance(bound, tuple)
    }


def first_of(library: str) -> tuple[int, ...]:
    return tuple(map(int, SUPPORTED[library][0].split(".")))


@pytest.mark.parametrize(("library", "count"), [("pyspark", 5), ("apache-airflow", 5)])
def test_every_branch_for_an_older_version_is_needed_by_a_supported_one(library: str, count: int) -> None:
    """One that is not can be deleted: raise the lower bound, and this names what is left of it."""
    found = differences(*MODULES[library])
    assert len(found) == count
    assert {name: bound for name, bound in found.items() if bound <= first_of(library)} == {}


def test_lint_states_the_versions_from_which_on_the_code_accepts_a_key() -> None:
    declared = [release_of(version) for _, version in (WATCHED_QUEUES, LIMITED_READERS)]
    assert declared == [airflow_compat.SHARED_STREAMS, read_limits.LIMITS]


def test_the_versions_that_are_refused_are_those_that_pip_would_not_install() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    declared = {one.name: one.specifier for one in map(Requirement, (*extras["spark"], *extras["airflow"]))}
    assert {name: str(declared[name]) for name in SUPPORTED} == {
        name: ",".join(sorted(supported_range(name).split(","))) for name in SUPPORTED
    }
    assert SUPPORTED.keys() <= {name for libraries in EXTRAS.values() for name in libraries.values()}


@pytest.mark.parametrize("library", SUPPORTED)
def test_every_older_minor_version_has_an_environment_for_tests(library: str) -> None:
    pinned = [Version(version_of(library, minor)) for minor in OLDER[library]]
    minors = [(one.major, one.minor) for one in [*pinned, Version(version(library))]]
    first = first_of(library)
    assert minors == [(first[0], first[1] + number) for number in range(len(minors))]


def test_the_scenarios_of_older_versions_of_airflow_are_tests() -> None:
    """A renamed one would no longer be left out, or be no test at all."""
    for test in (*EPOCHS, *ACTS, *PAGES, *NOT_ON_3_1):
        file, _, function = test.partition("::")
        assert f"def {function}" in (REPOSITORY / file).read_text(encoding="utf-8"), test
