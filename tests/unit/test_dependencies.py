"""Milepost's requirements are declared once, as ranges; the environment of a clone is one point of them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import FOLDER, PACKAGE, Import, imports_in

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OF_USERS = [
    Requirement(text)
    for text in chain(PROJECT["dependencies"], *(ranges for extra, ranges in EXTRAS.items() if extra != "dev"))
]
RANGES = [*OF_USERS, *map(Requirement, EXTRAS["dev"])]
ASKED_FOR, NEEDED_BY_THOSE = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8").split("What those need")

ROOMS = {
    "spark": "spark",
    "sources/landed/python_source.py": "spark",
    "airflow": "airflow",
    "openlineage": "lineage",
    "storage/s3/store.py": "s3",
    "storage/s3/access.py": "s3",
    "storage/s3/errors.py": "s3",
    "storage/s3/queue.py": "s3",
    "sources/landed/delta": "delta",
    "sources/landed/iceberg": "iceberg",
    "sinks/formats/delta": "delta",
    "sinks/formats/iceberg": "iceberg",
    "tables/delta": "delta",
    "tables/iceberg/aws.py": "s3",
    "tables/iceberg": "iceberg",
    "databases": "postgres",
    "sinks/formats/postgres": "postgres",
    "sources/landed/postgres": "postgres",
}
"""Below the product: what only an extra's owner imports, and the extra."""

COMES_WITH = {
    "apache-airflow": {
        "apache-airflow-core",
        "apache-airflow-task-sdk",
        "fastapi",
        "jinja2",
        "sqlalchemy",
        "starlette",
        "structlog",
    },
    "boto3": {"botocore", "urllib3"},
    "openlineage-python": {"attrs"},
    "pydantic": {"pydantic-core"},
    "pyiceberg": {"requests", "sqlalchemy", "urllib3"},
    "pyspark": {"grpcio", "py4j"},
    "rich": {"markdown-it-py"},
}
"""What is imported because of another library, and in the version that this one wants."""

HELD_BACK = {"structlog"}
"""What the lowest versions need, but not in its newest version."""


def pins(text: str) -> Iterator[Requirement]:
    for line in text.splitlines():
        if line and not line.startswith(("#", " ")):
            yield Requirement(line)


def name_of(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def version_of(pin: Requirement) -> Version:
    (exactly,) = pin.specifier
    assert exactly.operator == "==", pin
    return Version(exactly.version)


def test_every_pin_of_the_clone_is_within_the_ranges() -> None:
    ranges = [(name_of(wanted), wanted.specifier) for wanted in RANGES]
    outside = [
        f"{pin}, not {specifier}"
        for pin in pins(ASKED_FOR)
        for name, specifier in ranges
        if name == name_of(pin) and version_of(pin) not in specifier
    ]
    assert not outside


def test_the_clone_pins_every_requirement() -> None:
    wanted = {(name_of(one), frozenset(one.extras)) for one in RANGES}
    assert {(name_of(pin), frozenset(pin.extras)) for pin in pins(ASKED_FOR)} == wanted
    below = {name_of(pin) for pin in pins(NEEDED_BY_THOSE)}
    assert below and not below & {name for name, _ in wanted}


def test_every_range_has_a_lower_end() -> None:
    """Without one, any old version that a resolver falls back to would pass for one that works."""
    open_below = [str(one) for one in RANGES if not any(part.operator == ">=" for part in one.specifier)]
    assert not open_below


def test_features_that_would_break_other_readers_are_never_requested() -> None:
    """The provider for Spark brings pyspark-client, which overwrites files of pyspark."""
    everything = {name_of(one) for one in [*RANGES, *pins(ASKED_FOR), *pins(NEEDED_BY_THOSE)]}
    assert not everything & {"apache-airflow-providers-apache-spark", "pyspark-client"}
    assert not any(one.extras for one in RANGES if name_of(one) == "great-expectations")


def constraints(end: str) -> dict[str, Requirement]:
    """Return the newest file of one end; their names begin with the date."""
    text = max((REPOSITORY / "tests" / "constraints").glob(f"*-{end}.txt")).read_text(encoding="utf-8")
    return {name_of(pin): pin for pin in pins(text)}


def test_the_lowest_that_was_tried_is_the_lower_end_of_every_range() -> None:
    lower = {
        name_of(wanted): Version(part.version)
        for wanted in OF_USERS
        for part in wanted.specifier
        if part.operator == ">="
    }
    tried = {name: version_of(pin) for name, pin in constraints("lowest").items()}
    assert tried.keys() - lower.keys() == HELD_BACK
    assert {name: tried[name] for name in lower} == lower


def test_the_newest_tested_version_is_within_the_ranges() -> None:
    newest = constraints("newest")
    assert all(version_of(newest[name_of(wanted)]) in wanted.specifier for wanted in OF_USERS)


def declared(texts: list[str]) -> set[str]:
    names = {name_of(Requirement(text)) for text in texts}
    return names.union(*(COMES_WITH.get(name, set()) for name in names))


def extra_of(imported: Import) -> str | None:
    place = imported.file.relative_to(REPOSITORY / FOLDER).as_posix()
    return next((extra for room, extra in ROOMS.items() if place == room or place.startswith(f"{room}/")), None)


@pytest.mark.parametrize(
    "extra", [None, *(pytest.param(name, marks=pytest.mark.deep) for name in sorted(set(ROOMS.values())))]
)
def test_the_imports_of_a_package_are_declared(extra: str | None) -> None:
    """At module level: everywhere what everybody has; in the room of an extra also what that brings."""
    homes, known = packages_distributions(), declared([*PROJECT["dependencies"], *(EXTRAS[extra] if extra else ())])
    imported = {
        one.root
        for one in imports_in(FOLDER)
        if one.at_module_level and extra_of(one) == extra and one.root not in {PACKAGE, *sys.stdlib_module_names}
    }
    assert imported
    missing = {root for root in imported if not {canonicalize_name(home) for home in homes[root]} & known}
    assert not missing
