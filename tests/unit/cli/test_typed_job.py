"""Commands that are shown to be typed name the job as its user did; a FAILED job says so first; no path with `..`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture
def failed(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path / "a folder")
    job.land("a.csv")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    job.master.epochs.abort(session, triggered.checkpoint_id, "BAD_RECORD", "object a.csv, line 2: no number")
    return job


def test_a_failed_job_says_so_first_and_what_to_type_is_what_works(failed: SparklessJob) -> None:
    spec = failed.folder / "config" / "small.yaml"
    typed = shlex.quote(str(spec))
    status = milepost("status", spec)
    first, second, *_ = status.stdout.splitlines()
    assert "BAD_RECORD" in second
    wording.matches("status", first)
    assert status.stdout.rstrip().endswith(f"milepost resume {typed}")
    assert json.loads(milepost("status", spec, "--json").stdout)["data"]["next_step"].endswith(typed)
    run = milepost("run", spec)
    assert run.exit_code == 1 and run.error[-1].endswith(f"milepost resume {typed}"), run.stderr
    resume = shlex.split(run.error[-1].partition("milepost ")[2])
    assert milepost(*resume).exit_code == 0


def test_a_name_stays_a_name(failed: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(failed.folder)
    assert milepost("status", "small").stdout.rstrip().endswith("milepost resume small")


def test_a_job_that_never_ran_is_run_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SparklessJob.create(tmp_path)
    monkeypatch.chdir(job.folder)
    assert milepost("read", "small", "table").stderr.rstrip().endswith("\nmilepost run small")
    spec = job.folder / "config" / "small.yaml"
    assert milepost("read", spec, "table").stderr.rstrip().endswith(f"\nmilepost run {spec}")


def test_a_path_through_a_parent_folder_is_shown_plain(failed: SparklessJob) -> None:
    spec = failed.folder / "config" / ".." / "config" / "small.yaml"
    job = load_job(spec)
    assert job.path == failed.folder / "config" / "small.yaml"
    assert ".." not in job.url("../store")
    spec.write_text("name: [")
    broken = milepost("lint", spec)
    assert broken.exit_code == 2 and ".." not in broken.stderr


def test_the_plan_of_a_rollback_and_a_refused_spec_name_the_typed_argument(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "a folder")
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    spec = job.folder / "config" / "small.yaml"
    typed = shlex.quote(str(spec))
    text = spec.read_text()
    spec.write_text(text.replace("key: [k]", "key: [v]"))
    refused = json.loads(milepost("run", spec, "--json").stdout)["error"]
    spec.write_text(text)
    assert f"milepost backfill {typed} --from-checkpoint 0" in refused["hint"], refused
    job.master.savepoints.cancel()
    plan = milepost("rollback", spec, "--to", "0", "--dry-run", "--json").document()
    assert f"milepost start {typed}" in plan["text"][-1]
    assert plan["text"] == milepost("rollback", spec, "--to", "0", "--dry-run").stdout.splitlines()[:-1]
