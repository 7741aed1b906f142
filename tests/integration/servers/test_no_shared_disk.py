"""The tasks of one epoch share no disk: what one needs of another is in storage, or in what Airflow hands on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from milepost_testkit.cluster.cluster_runs import PATIENCE_S, Driver
from milepost_testkit.jobs.connected_job import ConnectedJob, lake_connection
from milepost_testkit.servers.s3_servers import Seaweed

DAG_FILE = """
from milepost.airflow.dags import load_jobs

load_jobs(globals(), "jobs")  # of airflow dags
"""


@dataclass
class Machines:
    """Where each task of a run finds a copy of the DAG file and its jobs, and nothing else; it is gone after the task.

    Attributes:
        xcoms: what the tasks of the run have pushed, which Airflow keeps.
    """

    folder: Path
    job: ConnectedJob
    run_id: str
    xcoms: list[dict[str, Any]] = field(default_factory=list)

    def run(self, task_id: str, **mapped: Any) -> None:
        machine = self.folder / f"{self.run_id} {task_id}"
        for name in ("home", "tmp", "cache", "airflow", "bundle/jobs"):
            (machine / name).mkdir(parents=True)
        shutil.copy(self.job.spec_path, machine / "bundle" / "jobs")
        (machine / "bundle" / "dag.py").write_text(DAG_FILE)
        own = {"HOME": "home", "TMPDIR": "tmp", "MILEPOST_CACHE_DIR": "cache", "AIRFLOW_HOME": "airflow"}
        asked = {"dag_id": "flights__epoch", "run_id": self.run_id, "xcoms": self.xcoms, "mapped": mapped}
        ran = subprocess.run(
            [sys.executable, "-m", "milepost_testkit.airflow.lone_task", task_id],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            cwd=machine / "bundle",
            env=os.environ | {name: str(machine / folder) for name, folder in own.items()},
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        self.xcoms = json.loads(ran.stdout.splitlines()[-1])
        shutil.rmtree(machine)

    def left(self, task_id: str) -> Any:
        """What a task has returned."""
        (value,) = [one["value"] for one in self.xcoms if (one["task"], one["key"]) == (task_id, "return_value")]
        return value


@pytest.mark.deep
def test_an_epoch_whose_tasks_run_on_machines_of_their_own_is_the_same(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues from the state of an epoch whose machine is lost: no cache and no temporary file is left of it."""
    for name, value in lake_connection(seaweed).items():
        monkeypatch.setenv(name, value)
    job = ConnectedJob.connected(tmp_path / "job", seaweed, 'spark: {master: "local[1]"')
    job.land([1])
    with closing(Driver({})) as driver:
        assert driver.run(job.spec_path).result(PATIENCE_S).exit_code == 0
    job.land([2])
    run = Machines(tmp_path / "machines", job, "manual__1")
    for task_id in ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint"):
        run.run(task_id)
    for unpublished in run.left("complete_checkpoint"):
        run.run("notify_complete", committed=unpublished)
    run.run("subsume")
    assert [one.status for one in job.master().reports.list_checkpoints()] == ["completed", "completed"]
    job.assert_tables_equal_the_oracle()
