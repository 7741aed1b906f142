"""A scheduler whose LocalExecutor forks imports ahead what tasks import; no other process of Airflow does."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milepost.airflow import preload
from milepost.airflow.preload import OFF
from milepost_testkit.processes.processes import REPOSITORY

STARTED = """
import json, os, sys
from airflow.jobs.job import Job
if sys.argv[1] == "scheduler":
    import airflow.cli.commands.scheduler_command
Job()  # as the commands of the scheduler, the triggerer and the DAG processor begin
"""

REPORT = (
    STARTED
    + """
report = {"modules": sorted(sys.modules)}
from airflow.sdk.listener import get_listener_manager
from milepost.airflow.operators.xcom import TriggeredCheckpoint
from milepost.epoch.metadata import CheckpointMetadata
from milepost.codec import readers

report["plugins"] = get_listener_manager.cache_info().currsize
known = readers.fields_of.cache_info().misses
for kind in (TriggeredCheckpoint, CheckpointMetadata):
    readers.plan_of(kind)
report["records"] = readers.fields_of.cache_info().misses - known
"""
)

PRINTED = """
print(json.dumps(report))
"""

FORKED = """
from pathlib import Path
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
import milepost
from milepost_testkit.airflow.task_imports import in_a_fork

def task():
    get_listener_manager().hook.on_starting(component=TaskRunnerMarker())
    kept = sorted(name for name in sys.modules if name.partition(".")[0] == "milepost")
    from milepost import jobmaster
    return [len(kept), getattr(jobmaster, "REVISION", 1)]

report["tasks"] = [in_a_fork(task)]
source = Path(next(iter(milepost.__path__))) / "jobmaster" / "__init__.py"
source.write_text(source.read_text() + "\\nREVISION = 2\\n")
report["tasks"].append(in_a_fork(task))
"""


def told(code: str, component: str, home: Path, sources: Path = REPOSITORY / "pipeline", **settings: str) -> Any:
    """What a process of Airflow prints that has the clone's plugins folder."""
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "PYTHONPATH": os.pathsep.join((str(sources), str(REPOSITORY))),
    }
    environ = {name: value for name, value in os.environ.items() if name != OFF} | own | settings
    command = [sys.executable, "-c", code, component]
    ran = subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a scheduler that forks reports of itself, and of two tasks: before and after its sources are edited."""
    home = tmp_path_factory.mktemp("scheduler")
    sources = home / "pipeline"
    shutil.copytree(REPOSITORY / "pipeline", sources)
    report: dict[str, Any] = told(REPORT + FORKED + PRINTED, "scheduler", home, sources)
    return report


@pytest.fixture(scope="module")
def triggerer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    report: dict[str, Any] = told(REPORT + PRINTED, "triggerer", tmp_path_factory.mktemp("triggerer"))
    return report


def assert_nothing_is_imported_ahead(modules: list[str]) -> None:
    assert not [name for name in modules if name.startswith(("milepost.jobmaster", "boto3", "pandas", "pyarrow"))]


@pytest.mark.deep
def test_a_scheduler_that_forks_has_imported_what_tasks_import(scheduler: dict[str, Any]) -> None:
    loaded = set(scheduler["modules"])
    ours = {
        "milepost.jobmaster.run.epochs",
        "milepost.airflow.operators.tasks",
        "milepost.spark.driver.engines.connect",
    }
    assert ours < loaded
    assert {"boto3", "great_expectations.expectations", "pandas", "pyspark.sql.connect.session"} < loaded
    assert not [name for name in loaded if name.startswith(("milepost.cli", "milepost.airflow.page.pages"))]


@pytest.mark.deep
def test_a_fork_has_the_plugins_and_codecs(scheduler: dict[str, Any], triggerer: dict[str, Any]) -> None:
    """Both are found out once per process, of which an epoch has six; where nothing is done ahead, by the task."""
    assert (scheduler["plugins"], scheduler["records"]) == (1, 0)
    assert triggerer["plugins"] == 0 and triggerer["records"] > 0


@pytest.mark.deep
def test_a_triggerer_preloads_nothing(triggerer: dict[str, Any]) -> None:
    assert_nothing_is_imported_ahead(triggerer["modules"])


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}, marks=pytest.mark.deep), {OFF: "1"}],
    ids=["another executor", "switched off"],
)
def test_a_scheduler_that_does_not_fork_preloads_nothing(settings: dict[str, str], tmp_path: Path) -> None:
    report = told(REPORT + PRINTED, "scheduler", tmp_path, **settings)
    assert_nothing_is_imported_ahead(report["modules"])


@pytest.mark.deep
def test_a_task_runs_the_code_that_is_on_disk_when_it_starts(scheduler: dict[str, Any]) -> None:
    """An edited clone, or a new version, is not run as a mixture with what the scheduler had imported before."""
    (unchanged, first), (forgotten, second) = scheduler["tasks"]
    assert unchanged > 100 and forgotten == 0
    assert (first, second) == (1, 2)


@pytest.mark.parametrize(("raised", "told"), [(ImportError("of an extra"), False), (RuntimeError("it broke"), True)])
def test_a_failed_preload_is_logged_unless_the_module_is_not_installed(
    caplog: pytest.LogCaptureFixture, raised: Exception, told: bool
) -> None:
    """Each task would then do it again, and nothing would explain why tasks are slow."""

    def step() -> None:
        raise raised

    preload._attempt(step)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(str(raised) in message for message in warnings) is told
