"""The how-to for any scheduler does as it is written: its Airflow operators run, its Python code is valid."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from milepost.airflow.compat import AirflowException, AirflowSkipException
from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from scripts.processes import PYTHON_PATH
from scripts.transcripts import blocks

PAGE = (REPOSITORY / "docs" / "how-to" / "any-scheduler.md").read_text("utf-8")
FILES = {block.title: block.body for block in blocks(PAGE) if block.title}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """A job called visits, with one epoch to run."""
    job = SparklessJob.create(tmp_path / "jobs", {"name: small": "name: visits"})
    shutil.copy(job.folder / "config" / "small.yaml", job.folder / "config" / "visits.yaml")
    job.land("1.csv")
    return job


@pytest.fixture
def dags(job: SparklessJob, tmp_path: Path) -> dict[str, Any]:
    """What the page's file of Airflow 2 defines, under the names of Airflow 3, with this tree's command."""
    command = tmp_path / "milepost"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{PYTHON_PATH}" exec "{sys.executable}" -m milepost "$@"\n')
    command.chmod(0o700)
    code = re.sub(r"airflow\.(operators|sensors)\.bash", r"airflow.providers.standard.\1.bash", FILES["dags/visits.py"])
    code = code.replace("/opt/milepost/bin/milepost", str(command)).replace("/opt/jobs", str(job.folder))
    namespace: dict[str, Any] = {"__name__": "visits", "__file__": str(tmp_path / "visits.py")}
    exec(compile(code, "visits.py", "exec"), namespace)
    return namespace


def test_the_airflow_2_file_has_an_epoch_and_a_sensor(dags: dict[str, Any]) -> None:
    made = [value.dag for value in (dags["epoch"], dags["fresh"])]
    assert all(isinstance(dag, DAG) for dag in made) and [dag.dag_id for dag in made] == ["visits", "report"]
    assert made[0].max_active_runs == 1


@pytest.mark.deep
def test_a_job_that_another_run_has_is_skipped_and_one_that_has_failed_is_not(
    job: SparklessJob, dags: dict[str, Any]
) -> None:
    session = Session.cli()
    job.master.triggers.trigger(session)
    with pytest.raises(AirflowSkipException):
        dags["epoch"].execute({})
    (job.folder / "config" / "visits.yaml").unlink()
    with pytest.raises(AirflowException, match="non-zero exit code 3"):
        dags["epoch"].execute({})


@pytest.mark.deep
def test_the_sensor_waits_for_fresh_input_and_fails_with_the_job(job: SparklessJob, dags: dict[str, Any]) -> None:
    with pytest.raises(AirflowException):  # it has never run
        dags["fresh"].poke({})
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert dags["fresh"].poke({}) is True
    old = time.time() - 3 * 3600
    os.utime(job.land("2.csv"), (old, old))
    assert dags["fresh"].poke({}) is False


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".py")])
def test_the_python_files_of_the_page_are_valid(name: str) -> None:
    compile(FILES[name], name, "exec")


@pytest.mark.deep
def test_the_files_of_the_page_treat_the_same_codes_alike() -> None:
    """4 is skipped, 6 and 8 are tried again, in the table, the script, the loop and the Dagster asset."""
    assert "| 4 | another run has the job | skips" in PAGE and "| 6, 8 |" in PAGE
    assert "6 | 8) echo" in FILES["epoch.sh"] and "0 | 4 | 6 | 8) sleep" in FILES["loop.sh"]
    assert "LATER = (6, 8)" in FILES["definitions.py"] and "OTHER_RUN = 4" in FILES["definitions.py"]
    assert all("skip_on_exit_code=4" in FILES[f"dags/{name}.py"] for name in ("visits", "visits_pod"))
