"""A late row is counted once, however many operators refuse it; each table of late rows has its own count."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import CheckpointDetails, Session
from milepost.spark import driver
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: small
storage: ../store
sources:
  a: {path: ../landing/a*.csv, FEED}
  b: {path: ../landing/b*.csv, FEED}
operators:
  - {uid: hours, kind: window, inputs: [a], key: [k], window: {tumbling: 1h}, aggregates: {rows: count(*)}}
  - {uid: days, kind: window, inputs: [a], key: [k], window: {tumbling: 1d}, aggregates: {rows: count(*)}}
  - {uid: others, kind: window, inputs: [b], key: [k], window: {tumbling: 1h}, aggregates: {rows: count(*)}}
sinks:
  - {name: late_hours, input: hours.late, format: parquet, path: ../lake/hours, mode: append}
  - {name: late_days, input: days.late, format: parquet, path: ../lake/days, mode: append}
""".replace("FEED", 'format: csv, settle: 0s, event_time: at, schema: {k: int64, at: "timestamp[us, UTC]"}')


def land(job: SparklessJob, name: str, *times: str) -> None:
    job.land(name, "k,at\n" + "".join(f"1,2026-01-{time}:00:00Z\n" for time in times))


def test_a_late_row_is_counted_once_and_per_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)
    job = SparklessJob.create(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    spec.write_text(SPEC)
    land(job, "a1.csv", "05T12")
    land(job, "b1.csv", "05T12")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    land(job, "a2.csv", "01T01", "01T02", "05T01", "05T13")  # the third is late by hours, and not by days
    land(job, "b2.csv", "01T01")
    told = milepost("run", spec)
    wording.matches("run", told.stdout)
    shown = job.master.reports.show(2)
    assert isinstance(shown, CheckpointDetails) and shown.late_rows == 4
    assert (shown.sink_rows["late_hours"], shown.sink_rows["late_days"]) == (3, 2)
    lines = milepost("show", spec, "2").stdout.splitlines()
    wording.matches("show", [line for line in lines if "hours 3" in line])


@pytest.mark.long
def test_each_table_has_the_late_rows_that_it_lacks(tmp_path: Path) -> None:
    """A table of late rows lacks none of its operator, and nothing that is late elsewhere counts."""
    job = SparklessJob.create(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    tables = "  - {name: %s, input: %s, format: parquet, path: ../lake/table_%s, mode: append}\n"
    spec.write_text(SPEC + "".join(tables % (name, name, name) for name in ("hours", "days", "others")))
    land(job, "a1.csv", "05T12")
    land(job, "b1.csv", "05T12")
    assert {table.late_rows for table in (job.master.reports.status().tables or {}).values()} == {None}
    job.master.epochs.run(Session.cli(), SparklessRunner())
    land(job, "a2.csv", "01T01", "01T02", "05T01", "05T13")
    land(job, "b2.csv", "01T01")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    late = {"late_hours": 0, "late_days": 0, "hours": 3, "days": 2, "others": 1}
    assert {name: one.late_rows for name, one in (job.master.reports.status().tables or {}).items()} == late
    assert {name: job.master.reports.table(name).epochs[-1].late_rows for name in late} == late
    shown = milepost("status", spec).stdout
    wording.matches("status", [line for line in shown.splitlines() if line.lstrip().startswith((*late, "table "))])
