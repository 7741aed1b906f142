"""A task of an epoch imports what it works with, and no library that only other tasks need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost_testkit.airflow.e2e_job import CARRIERS, GATE, OF_ITS_OWN

DAG_FILE = """
from milepost.airflow.dags import load_jobs

load_jobs(globals(), "config")
"""


@pytest.mark.deep
@pytest.mark.parametrize("options", [pytest.param([], id="in process"), pytest.param(["--spark"], id="on Spark")])
def test_only_run_epoch_imports_spark_and_the_library_of_the_gate(tmp_path: Path, options: list[str]) -> None:
    """Where tasks begin in processes of their own, each import is paid by each task of each epoch."""
    for folder in ("config", "landing"):
        (tmp_path / folder).mkdir()
    places = {name: tmp_path / name for name in ("storage", "landing", "lake")}
    settings = {"retained": 10, "tolerable": 0, "retries": 2, "pool": "default_pool", "spark": OF_ITS_OWN}
    spec = CARRIERS.format(name="small", **places, **settings) + GATE
    (tmp_path / "config" / "small.yaml").write_text(spec, encoding="utf-8")
    (tmp_path / "dag.py").write_text(DAG_FILE, encoding="utf-8")
    own = {"AIRFLOW_HOME": "airflow", "MILEPOST_CACHE_DIR": "cache"}
    ran = subprocess.run(
        [sys.executable, "-m", "milepost_testkit.airflow.task_imports", *options],
        cwd=tmp_path,
        env=os.environ | {name: str(tmp_path / folder) for name, folder in own.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    imported = json.loads(ran.stdout.splitlines()[-1])
    heavy = imported.pop("run_epoch")
    assert {"great_expectations", "pandas", "pyspark"} <= set(heavy)
    assert imported == {
        "trigger_checkpoint": [],
        "validate": [],
        "complete_checkpoint": [],
        "notify_complete": [],
        "subsume": [],
    }
