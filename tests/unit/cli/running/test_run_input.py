"""What `milepost run` and `doctor` do and say about input that has just landed, or that is not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.cli.running import epochs
from milepost.epoch.plan import EpochPlan
from milepost.spark.driver import runner as spark_runner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited for, in seconds: each wait lets that much time pass over every landed file."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        for path in Path.cwd().glob("landing/*"):
            modified = path.stat().st_mtime - seconds
            os.utime(path, (modified, modified))

    monkeypatch.setattr(spark_runner, "SparkEpochRunner", SparklessRunner)
    monkeypatch.setattr(epochs, "time", SimpleNamespace(sleep=sleep))
    return waited


def job(folder: Path, monkeypatch: pytest.MonkeyPatch, settle: str) -> SparklessJob:
    monkeypatch.chdir(folder)
    return SparklessJob.create(folder, {"settle: 0s": f"settle: {settle}"})


def run(job: SparklessJob, *words: str) -> Outcome:
    return milepost("run", job.folder / "config" / "small.yaml", *words)


def rows(job: SparklessJob) -> list[dict[str, Any]]:
    return job.master.reports.read("table").to_pylist()


def test_until_caught_up_waits_for_what_has_just_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    small = job(tmp_path, monkeypatch, "1h")
    small.land("a.csv")
    outcome = run(small, "--until-caught-up")
    assert outcome.exit_code == 0, outcome.stderr
    wording.matches("run", outcome.stderr, replace={r"\b3\d{3}(\.\d)? s\b": "{time} s"})
    assert rows(small) == [{"k": 1, "rows": 1}]
    assert len(waits) == 1 and 3_590 < waits[0] < 3_601


def test_one_epoch_waits_a_moment_for_what_has_just_landed_and_does_not_wait_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Land and run, as in a newcomer's first minute, must not read nothing."""
    small = job(tmp_path, monkeypatch, "2s")
    small.land("a.csv")
    assert run(small).exit_code == 0
    assert rows(small) == [{"k": 1, "rows": 1}] and len(waits) == 1
    (tmp_path / "long").mkdir()
    small = job(tmp_path / "long", monkeypatch, "1h")
    small.land("a.csv")
    outcome = run(small, "--json")
    assert (outcome.exit_code, len(waits)) == (0, 1)
    document = outcome.document()
    assert document["status"] == "empty" and document["settles_in_ms"] > 3_590_000
    wording.matches("run", document["message"])


@pytest.mark.long
@pytest.mark.parametrize(("start_s", "offered"), [(0.9, True), (0.0, False)])
def test_a_spark_that_stays_up_is_offered_where_its_start_is_most_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], start_s: float, offered: bool
) -> None:
    """On a terminal only; a program that reads the output gets none."""

    class SlowToStart(SparklessRunner):
        def prepare(self, plan: EpochPlan) -> None:
            Event().wait(start_s)
            super().prepare(plan)

    monkeypatch.setattr(spark_runner, "SparkEpochRunner", SlowToStart)
    small = job(tmp_path, monkeypatch, "0s")
    small.land("a.csv")
    assert "milepost spark-server" not in run(small).stderr
    small.land("b.csv")
    monkeypatch.setattr(epochs, "_at_a_terminal", lambda: True)
    outcome = run(small)
    offers = [line for line in outcome.stderr.splitlines() if "milepost spark-server" in line]
    assert len(offers) == offered, outcome.stderr
    if offered:
        wording.matches("run", offers, replace={r"\b\d+(\.\d+)? s\b": "{time} s"})


def test_drain_waits_and_ends_after_the_remaining_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    small = job(tmp_path, monkeypatch, "1h")
    small.land("a.csv")
    outcome = run(small, "--drain")
    assert outcome.exit_code == 0, outcome.stderr
    wording.matches("run", outcome.stdout)
    assert rows(small) == [{"k": 1, "rows": 1}]


def test_run_status_and_doctor_report_a_path_that_matches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    small = SparklessJob.create(tmp_path, {"../landing/*.csv": "../landnig/*.csv"})
    spec = tmp_path / "config" / "small.yaml"
    words = small.master.reports.status().sources["rows"].no_match
    assert words is not None and "../landnig/*.csv" in words
    ran = run(small).stdout
    assert words in ran
    wording.matches("run", ran)
    status = milepost("status", spec)
    assert status.exit_code == 1 and words in status.stdout
    wording.matches("status", status.stdout.splitlines()[0])
    doctor = milepost("doctor", spec)
    assert f"source rows: {words}\n" in doctor.stdout
    checks = {one["check"]: one for one in json.loads(milepost("doctor", spec, "--json").stdout)["data"]["checks"]}
    assert (checks["source rows"]["ok"], checks["source rows"]["warning"]) == (True, True)
    assert not waits


def test_run_reports_a_path_that_matches_nothing_next_to_one_that_does(
    tmp_path: Path, waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    other = {"operators:\n": "  other: {format: csv, path: ../other/*.csv, schema: {k: int64}}\noperators:\n"}
    small = SparklessJob.create(tmp_path, other)
    small.land("a.csv")
    assert run(small).exit_code == 0
    wording.matches("log", [line for line in caplog.messages if "source other" in line])


def test_an_object_left_out_for_its_name_is_named_by_run_status_and_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    small = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 0s\n    on_bad_name: skip"})
    small.land("a.csv")
    small.land(os.fsdecode(b"b\xff.csv"))
    spec = tmp_path / "config" / "small.yaml"
    outcome = run(small)
    assert outcome.exit_code == 0 and rows(small) == [{"k": 1, "rows": 1}]
    wording.matches("run", [line for line in outcome.stderr.splitlines() if r"b\xff.csv" in line])
    (name,) = small.master.reports.show(1).sources["rows"].bad_names
    assert name.startswith(r"b\xff.csv: ")
    wording.matches("run", name)
    assert small.master.reports.show(1).sources["rows"].skipped["bad_names"] == 1
    wording.matches("status", milepost("status", spec).stdout, replace=wording.LAG)
    doctor = milepost("doctor", spec).stdout
    wording.matches("doctor", [line for line in doctor.splitlines() if r"b\xff.csv" in line])
