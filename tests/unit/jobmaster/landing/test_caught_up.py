"""A run until caught up ends, although a second lander appends rows faster than epochs process them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.airflow.compat import DagRunTriggerException
from milepost.airflow.dags.dag_factory import epoch_dag
from milepost.spark.driver import runner as spark_runner
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EPOCHS = 6
"""More than a run until caught up needs. The second lander stops then, so that a broken run ends and is seen."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandedJob:
    """A job of which another process lands one more row while each epoch runs."""
    job = LandedJob.create(tmp_path / "job", {"max_records: 2": "max_records: 1"})
    calls: list[int] = []

    class Outpaced(SparklessRunner):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) <= EPOCHS:
                job.produce(9)
                job.land()
            return super().run(*args, **kwargs)

    monkeypatch.setattr(spark_runner, "SparkEpochRunner", Outpaced)
    for key in (1, 2):
        job.produce(key)
        job.land()
    job.produce(3)
    return job


@pytest.mark.parametrize("option", ["--until-caught-up", "--drain"])
def test_a_run_until_caught_up_processes_everything_up_to_its_start(job: LandedJob, option: str) -> None:
    outcome = milepost("run", job.folder / "config" / "landed.yaml", option)
    assert outcome.exit_code == 0, outcome.stderr
    job.assert_tables(3)
    assert job.left == 0, "the rows that came in meanwhile are in the log"


def test_a_later_run_processes_the_remaining_input(job: LandedJob) -> None:
    for _ in range(2):
        assert milepost("run", job.folder / "config" / "landed.yaml", "--until-caught-up").exit_code == 0
    job.assert_tables(3 + 4)


@pytest.mark.long
def test_airflows_runs_until_caught_up_pass_on_where_they_end(job: LandedJob) -> None:
    dag, conf, runs = epoch_dag(job.loaded()), {"until_caught_up": True}, 0
    while conf:
        run, runs = InProcessRun(dag, f"manual__{runs}", **conf), runs + 1
        run.execute("land_input")
        conf = _epoch(run)
    assert runs == 5, "the record that begins the log, three with rows, and the run that finds nothing"
    job.assert_tables(3)


def _epoch(run: InProcessRun) -> dict[str, Any]:
    """Execute the tasks after landing. Returns the form of the run that follows, {} if none does."""
    run.execute("trigger_checkpoint")
    if "nothing_to_do" in run.pushed["trigger_checkpoint", "return_value"]:
        run.execute("subsume")
        return {}
    for task in ("run_epoch", "validate", "complete_checkpoint"):
        run.execute(task)
    for committed in run.pushed["complete_checkpoint", "return_value"]:
        run.execute("notify_complete", committed=committed)
    with pytest.raises(DagRunTriggerException) as following:
        run.execute("subsume")
    conf = following.value.conf
    assert conf is not None
    return conf
