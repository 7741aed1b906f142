"""An object of size 0 holds nothing to read: it is counted and named, never passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import CheckpointDetails, Session
from milepost.spark import driver
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


def test_an_empty_object_is_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)
    job = SparklessJob.create(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    job.land("a.csv")
    job.land("truncated.csv", "")
    told = milepost("run", spec)
    assert told.exit_code == 0
    wording.matches("run", told.error)
    shown = milepost("show", spec, "1").stdout
    wording.matches("show", [line for line in shown.splitlines() if "truncated.csv" in line])
    shown = job.master.reports.show(1)
    assert isinstance(shown, CheckpointDetails) and shown.sources["rows"].empty == ("truncated.csv",)
    again = milepost("run", spec).stdout
    assert "truncated.csv" in again, "also where there is nothing to do"
    wording.matches("run", again)
    (warning,) = milepost("lint", spec).error
    wording.matches("lint", warning)
    job.land("truncated.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 2}], "once it is whole, it is read"
