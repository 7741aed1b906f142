"""`start` of a drained job predicts what the next `run` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

WINDOWED = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, v: string, at: "timestamp[us, UTC]"}\n    event_time: at',
    "kind: aggregate, inputs: [rows], key: [k]": "kind: window, inputs: [rows], key: [k], window: {tumbling: 1h}",
    "mode: upsert": "mode: append",
    "last: 1": "last: 5",
}
WAY_OUT = "milepost rollback {job} --to 1"


def drained(folder: Path, edit: dict[str, str]) -> SparklessJob:
    job = SparklessJob.create(folder, edit)
    job.land("a.csv", "k,v,at\n1,a,2026-01-01T00:30:00Z\n" if edit else "k,v\n1,a\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    assert job.master.reports.job_state().job_status == "finished"
    return job


def test_start_reports_that_no_epoch_can_follow_an_ended_event_time(tmp_path: Path) -> None:
    job = drained(tmp_path, WINDOWED)
    spec = tmp_path / "config" / "small.yaml"
    started = milepost("start", spec)
    assert started.exit_code == 0
    wording.matches("start", started.stdout)
    assert WAY_OUT.format(job=spec) in started.stdout
    job.land("b.csv", "k,v,at\n1,a,2026-01-01T05:30:00Z\n")
    assert_clear_error(milepost("run", spec), 2, WAY_OUT.format(job=spec), golden="run")
    back = milepost("rollback", spec, "--to", "1", "--yes")
    assert back.exit_code == 0, back.stderr
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.read("table")["rows"].to_pylist() == [1]


def test_start_in_airflow_reports_it_too(tmp_path: Path) -> None:
    job = drained(tmp_path, WINDOWED)
    run = InProcessRun(job_dags(job.folder / "config")["small__operate"], "manual__9", what="start")
    run.execute("plan")
    run.approve("ann")
    (first_line, *_) = run.execute("act")["text"]
    wording.matches("start", first_line)
    assert WAY_OUT.format(job="small") in first_line


@pytest.mark.parametrize("drains", [True, False])
def test_start_names_the_checkpoint_that_its_first_epoch_continues(tmp_path: Path, drains: bool) -> None:
    """An aggregate has no event time, so it continues after the last epoch of a drained job."""
    job = drained(tmp_path, {}) if drains else SparklessJob.create(tmp_path)
    if not drains:
        job.land("a.csv")
        job.master.epochs.run(Session.cli(), SparklessRunner())
        job.master.savepoints.cancel()
    started = milepost("start", tmp_path / "config" / "small.yaml")
    wording.matches("start", started.stdout)
    job.land("b.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.read("table")["rows"].to_pylist() == [2]
