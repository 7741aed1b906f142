"""What the log of an epoch's tasks says: what was read, kept and published, in words; and nothing of libraries."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.orchestration import tasks
from tests.harness.sparkless_job import SparklessJob
from tests.harness.sparkless_runner import SparklessRunner
from tests.harness.task_runs import OutletEvents, TaskInstance


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> str:
    """The log of an epoch of two rows, task by task."""
    monkeypatch.setattr("pipeline.spark.runner.SparkEpochRunner", SparklessRunner)
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,x\n2,y\n")
    run = SimpleNamespace(dag_id="small__epoch", run_id="manual__1", run_type="manual", logical_date=None)
    pushed: dict[tuple[str, str], Any] = {}
    spec = str(job.folder / "config" / "small.yaml")

    def execute(kind: type[tasks.EpochOperator], task_id: str, **more: Any) -> Any:
        context: Any = {"ti": TaskInstance(task_id, pushed), "dag_run": run, "params": {}}
        context["outlet_events"] = OutletEvents()
        pushed[task_id, "return_value"] = kind(task_id=task_id, spec_path=spec, **more).execute(context)
        return pushed[task_id, "return_value"]

    with caplog.at_level(logging.INFO):
        execute(tasks.TriggerCheckpointOperator, tasks.TRIGGER)
        execute(tasks.RunEpochOperator, tasks.RUN)
        execute(tasks.ValidateOperator, tasks.VALIDATE)
        (committed,) = execute(tasks.CompleteCheckpointOperator, tasks.COMPLETE)
        execute(tasks.NotifyCompleteOperator, tasks.NOTIFY, sink_assets={"table": "file:///lake"}, committed=committed)
        execute(tasks.SubsumeOperator, tasks.SUBSUME)
        for name in ("great_expectations", "botocore.credentials", "urllib3.connectionpool"):
            logging.getLogger(name).info("noise of %s", name)
    return caplog.text


def test_the_log_of_an_epoch_says_what_it_did_in_words(log: str) -> None:
    for line in ("is planned: rows (objects 1, ", "rows in 2, rows out 2, ", "full bytes ", "sink table stands at ",
                 "subsumed: subsumed none, deleted objects 0"):  # fmt: skip
        assert line in log, log
    assert not [line for line in log.splitlines() if "{'" in line or "['" in line], "no Python reprs"


def test_libraries_do_not_fill_the_log_of_a_task(log: str) -> None:
    assert "noise of" not in log
