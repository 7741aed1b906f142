"""A probe requests what tasks import, and its failure is reported in our words."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from typing import cast

import pytest
from packaging.requirements import Requirement
from pyspark.errors import PySparkException

from milepost.epoch.code_hash import CODE_HASH
from milepost.errors import EnvironmentUnusable
from milepost.spark.driver.engines.engine import Engine
from milepost.spark.driver.executors import probe
from milepost.spark.driver.executors.unusable import check_answer, unusable
from milepost_testkit import wording
from milepost_testkit.processes.processes import REPOSITORY, run_python

IMPORTED = """
import importlib, json, sys
from milepost.spark.worker.worker_daemon import preload

def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})

preload()
importlib.import_module("milepost.spark.driver.executors.task_check")
tasks = loaded()
from milepost.errors import CheckpointError
from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.open import open_store

try:
    open_store(StoreConfig("s3://bucket/prefix", "http://127.0.0.1:1", credentials=Credentials("a", "b"))).get("key")
except CheckpointError:
    print(json.dumps([tasks, loaded()]))
"""


def test_executors_are_probed_for_the_libraries_that_tasks_import() -> None:
    """Of what is declared: what brings a library's own parts is that library."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {Requirement(one).name for one in (*project["dependencies"], *extras["spark"], *extras["s3"])}
    ran = run_python(IMPORTED)
    assert ran.returncode == 0, ran.stderr
    tasks, on_s3 = (declared & set(names) - {"pyspark"} for names in json.loads(ran.stdout))
    assert tasks == set(probe.LIBRARIES)
    assert on_s3 == set(probe.libraries_of(["file:///lake", "s3://bucket"]))


HERE = {
    "host": "one",
    "python": "/usr/bin/python3",
    "code": CODE_HASH,
    "missing": [],
    "failed": None,
    "limit_bytes": None,
}


def test_executors_that_have_the_driver_s_code_and_do_what_tasks_do_may_run_the_epoch() -> None:
    check_answer("the cluster", HERE)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"missing": ["boto3", "tenacity"], "code": None}, "boto3, tenacity"),
        ({"failed": "TypeError: no timezone", "code": None}, "TypeError: no timezone"),
    ],
    ids=["libraries", "calls"],
)
def test_a_library_that_one_executor_lacks_is_reported_with_its_host(answer: dict[str, object], expected: str) -> None:
    with wording.raises(EnvironmentUnusable) as caught:
        check_answer("the cluster", HERE | answer)
    assert expected in caught.value.message


def test_an_executor_that_imports_other_code_is_refused() -> None:
    """I13: something there goes before what was sent."""
    with wording.raises(EnvironmentUnusable) as refused:
        check_answer("the cluster", HERE | {"code": "f" * 64})
    assert "f" * 12 in str(refused.value)
    assert CODE_HASH[:12] in str(refused.value)


class Named:
    """All of an engine that a message needs."""

    name = "the cluster at spark://here:7077"


OURS = ".".join(map(str, sys.version_info[:2]))
ANOTHER_PYTHON = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", line 93, in check_python_version
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.9 than that in driver: 3.11, PySpark cannot run with different minor versions."""
NO_PANDAS = "Error from python worker:\n  ModuleNotFoundError: No module named 'pandas.core'\nPYTHONPATH was: x"
NO_PYTHON = """\
Job aborted due to stage failure: Task 1 in stage 2.0 failed 1 times, most recent failure: Lost task 1.0 in stage 2.0: \
java.io.IOException: Cannot run program "./nowhere/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory"""


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (ANOTHER_PYTHON, [OURS, "3.9"]),
        (NO_PANDAS, ["pandas", Named.name]),
        (NO_PYTHON, ['java.io.IOException: Cannot run program "./nowhere/python": error=2, No such file']),
    ],
    ids=["another Python", "no pandas", "no Python"],
)
def test_a_failed_probe_reports_expected_and_actual_behaviour(said: str, named: list[str]) -> None:
    error = unusable(cast(Engine, Named()), PySparkException(said))
    assert all(one in error.message for one in named)
    wording.describes(error, replace={rf"\b{re.escape(OURS)}\b": "{python}"})


class OfThisMachine:
    """A local master with some settings."""

    name = "local[2]"
    is_own = True

    def __init__(self, **settings: str) -> None:
        self._settings = {f"spark.executor.{name.replace('_', '.')}": value for name, value in settings.items()}

    def setting(self, key: str) -> str:
        return self._settings.get(key, "")


@pytest.mark.parametrize(
    ("settings", "limit_bytes"),
    [
        ({}, None),
        ({"pyspark_memory": "512m"}, 512 << 20),
        ({"pyspark_memory": "768"}, 768 << 20),
        ({"pyspark_memory": "2GB", "cores": "4"}, 512 << 20),
        ({"pyspark_memory": "1048576k"}, 1 << 30),
    ],
    ids=["none", "megabytes", "megabytes, as Spark reads a bare number", "shared by four cores", "kilobytes"],
)
def test_on_a_local_master_an_epoch_is_planned_for_the_limit_that_spark_gives_its_workers(
    settings: dict[str, str], limit_bytes: int | None
) -> None:
    assert probe.probe(cast(Engine, OfThisMachine(**settings)), ()) == limit_bytes


@pytest.mark.parametrize("is_own", [True, False], ids=["local master", "cluster"])
@pytest.mark.parametrize(
    "settings", [{"pyspark_memory": "351m"}, {"pyspark_memory": "1g", "cores": "4"}], ids=["said so", "shared by cores"]
)
def test_workers_that_could_not_even_import_are_refused_before_anything_is_run(
    settings: dict[str, str], is_own: bool
) -> None:
    """Spark would say that they died, and once it waited for them without end."""
    engine = OfThisMachine(**settings)
    engine.is_own = is_own
    with wording.raises(EnvironmentUnusable):
        probe.probe(cast(Engine, engine), ())
