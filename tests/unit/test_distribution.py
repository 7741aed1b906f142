"""What is published is the product, all of it and nothing else, and it works without this clone and without extras."""

from __future__ import annotations

import email
import json
import tomllib
import zipfile
from configparser import ConfigParser
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from milepost import __version__
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.distribution import (
    OF_EXTRAS,
    SOURCES,
    build,
    copy_sources,
    link_libraries,
    run_installed,
    unpack,
)
from milepost_testkit.repository.imports import FOLDER

pytestmark = pytest.mark.long

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INFO = f"milepost-{__version__}.dist-info"

EPOCH = """
import sys
import milepost
from milepost.api import JobMaster, Session, load_job
from milepost_testkit.runners.sparkless_runner import SparklessRunner

print(milepost.__file__)
print(JobMaster(load_job(sys.argv[1])).epochs.run(Session.cli(), SparklessRunner()).status)
print(sorted(name for name in ("airflow", "boto3", "great_expectations", "pyspark") if name in sys.modules))
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return build("build_sdist", copy_sources(folder / "sources"), folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build("build_wheel", copy_sources(folder / "sources"), folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The path of an environment that has Milepost, what it needs by itself, and none of its extras."""
    folder = tmp_path_factory.mktemp("installed")
    return [unpack(wheel, folder / "milepost"), link_libraries(folder / "libraries", without=OF_EXTRAS)]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: Path) -> Message:
    return email.message_from_bytes(contents(wheel)[f"{INFO}/METADATA"])


def of_product() -> set[str]:
    """Every file below the package that is not made by running it, and pytest's plugin."""
    found = (path.relative_to(REPOSITORY / FOLDER) for path in (REPOSITORY / FOLDER).rglob("*") if path.is_file())
    package = {f"milepost/{path.as_posix()}" for path in found if "__pycache__" not in path.parts}
    return package | {"milepost_pytest.py"}


def test_every_file_of_the_product_is_in_the_wheel_and_no_other(wheel: Path) -> None:
    found = set(contents(wheel))
    assert {name for name in found if not name.startswith(f"{INFO}/")} == of_product()
    assert f"{INFO}/licenses/LICENSE" in found


def test_the_sdist_has_the_sources_and_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    sources = unpack(sdist, tmp_path)
    theirs = {str(file.relative_to(sources)) for file in sources.rglob("*") if file.is_file()} - {"PKG-INFO"}
    ours = {*SOURCES} - {"pipeline"}
    assert theirs == ours | {f"pipeline/{name}" for name in of_product()}
    assert contents(build("build_wheel", sources, tmp_path / "again")) == contents(wheel)


def test_a_second_build_elsewhere_makes_the_same_bytes(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "elsewhere")
    (sources / "pipeline" / "milepost" / "__init__.py").touch()
    for first, kind in ((sdist, "build_sdist"), (wheel, "build_wheel")):
        assert build(kind, sources, tmp_path / "again").read_bytes() == first.read_bytes()


def test_the_metadata_says_what_the_project_file_says(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    wanted = {Requirement(one) for one in PROJECT["dependencies"]}
    wanted |= {Requirement(f'{one} ; extra == "{extra}"') for extra, ranges in extras.items() for one in ranges}
    assert {Requirement(one) for one in metadata.get_all("Requires-Dist", [])} == wanted
    assert metadata.get_all("Provides-Extra") == sorted(extras)
    assert (metadata["Name"], metadata["License-Expression"], metadata["License-File"]) == (
        "milepost",
        "Apache-2.0",
        "LICENSE",
    )
    assert metadata["Description-Content-Type"] == "text/markdown" and "# Milepost" in str(metadata.get_payload())
    points = ConfigParser()
    points.read_string(contents(wheel)[f"{INFO}/entry_points.txt"].decode())
    assert {group: dict(points[group]) for group in points.sections()} == {
        "console_scripts": PROJECT["scripts"],
        **PROJECT["entry-points"],
    }


def test_without_extras_a_job_is_made_and_linted(installed: list[Path], tmp_path: Path) -> None:
    for words in (["--help"], ["init", "orders"], ["lint", "orders"], ["schema"]):
        ran = run_installed("-m", "milepost", *words, path=installed, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["title"]


def test_the_wheel_alone_runs_an_epoch(installed: list[Path], tmp_path: Path) -> None:
    """Of the clone, only what stands in for Spark is on the path."""
    job = SparklessJob.create(tmp_path / "job")
    job.land("1.csv", "k,v\n1,a\n1,b\n2,c\n")
    spec = job.folder / "config" / "small.yaml"
    ran = run_installed("-c", EPOCH, spec, path=[*installed, REPOSITORY], cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(installed[0] / "milepost" / "__init__.py"), "completed", "[]"]
    read = run_installed("-m", "milepost", "read", spec, "table", "--json", path=installed, cwd=tmp_path)
    assert json.loads(read.stdout)["data"]["rows"] == [{"k": 1, "rows": 2}, {"k": 2, "rows": 1}]
