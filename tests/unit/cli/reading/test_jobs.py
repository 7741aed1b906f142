"""`milepost jobs` lists the jobs of a folder of specs, or all that have run under a storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SPEC, SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jobs that have run, one that never has, and a spec that is none; and what is no job in the storage."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    config = tmp_path / "config"
    for name in ("small0", "new"):
        text = SPEC.replace("name: small", f"name: {name}").replace("lake/table", f"lake/{name}")
        (config / f"{name}.yaml").write_text(text)
    (config / "broken.yaml").write_text("name: broken\nsource: {}\n")
    master = JobMaster(load_job(config / "small0.yaml"))
    master.epochs.run(Session.cli(), SparklessRunner())
    master.savepoints.cancel()
    (tmp_path / "store" / "a-file").write_text("of somebody else")
    (tmp_path / "store" / "neighbour").mkdir()
    (tmp_path / "store" / "neighbour" / "thing").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_another_folder_of_specs_is_named_by_its_path(folder: Path) -> None:
    of_config = milepost("jobs", "--json").document()["jobs"]
    (folder / "config").rename(folder / "jobs")
    found = milepost("jobs", "./jobs", "--json").document()["jobs"]
    assert [(one["job"], one["job_status"], one["head"]) for one in found] == [
        (one["job"], one["job_status"], one["head"]) for one in of_config
    ]
    assert milepost("jobs", f"{folder}/jobs/", "--json").document()["jobs"] == found
    assert found[-1]["spec"] == str(folder / "jobs" / "small0.yaml")


def test_a_folder_that_is_typed_like_a_job_is_offered_with_its_slash(folder: Path) -> None:
    refused = milepost("jobs", "store")
    assert refused.exit_code == 3
    wording.matches("jobs", refused.error)
    wording.matches("jobs", milepost("jobs", "stoer").error)


def test_jobs_of_the_folder_are_all_its_specs_also_those_that_never_ran_or_are_wrong(folder: Path) -> None:
    found = {one["job"]: one for one in milepost("jobs", "--json").document()["jobs"]}
    assert list(found) == ["broken", "new", "small", "small0"]
    assert (found["small"]["job_status"], found["small"]["head"], found["small"]["problem"]) == ("running", 1, None)
    assert (found["small0"]["job_status"], found["small0"]["spec"]) == (
        "canceled",
        str(folder / "config" / "small0.yaml"),
    )
    assert (found["new"]["job_status"], found["new"]["head"]) == ("initializing", None)
    assert found["broken"]["job_status"] is None
    wording.matches("jobs", found["broken"]["problem"])
    told = milepost("jobs")
    assert told.exit_code == 0 and max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.deep
@pytest.mark.parametrize("place", ["small", "config/new.yaml", "./store", "file://{folder}/store"])
def test_jobs_of_a_storage_are_those_that_have_run_there(folder: Path, place: str) -> None:
    found = milepost("jobs", place.format(folder=folder), "--json").document()["jobs"]
    assert [(one["job"], one["head"], one["storage"]) for one in found] == [
        ("small", 1, f"file://{folder}/store"),
        ("small0", 1, f"file://{folder}/store"),
    ]


def test_an_unreadable_manifest_is_reported_in_the_jobs_line(folder: Path) -> None:
    for entry in (folder / "store" / "small" / "manifest").iterdir():
        entry.write_text("{}")
    found = {one["job"]: one["problem"] for one in milepost("jobs", "./store", "--json").document()["jobs"]}
    assert found["small0"] is None and found["small"]


def test_without_a_folder_of_specs_it_says_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_clear_error(milepost("jobs"), 2, "milepost jobs s3://bucket/prefix", golden="jobs")
    assert_clear_error(milepost("jobs", "nothing"), 3, golden="jobs")
    empty = milepost("jobs", "./empty")
    assert empty.exit_code == 0
    wording.matches("jobs", empty.stderr)
