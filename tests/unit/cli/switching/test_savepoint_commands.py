"""`savepoint`, `export`, `bootstrap`, `start --from` and `cancel --savepoint`, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    return CountedJob.with_epochs(tmp_path_factory.mktemp("cli"), 2)


def ok(outcome: Outcome) -> Outcome:
    assert outcome.exit_code == 0, outcome.stderr
    return outcome


def test_a_savepoint_from_its_creation_to_its_disposal(job: CountedJob) -> None:
    spec = job.spec_path
    wording.matches("savepoint", ok(milepost("savepoint", "list", spec)).stdout, replace=wording.SIZES)
    made = ok(milepost("savepoint", "create", spec, "--name", "one", "--at", "1")).stdout
    assert "/store/small/savepoints/one/" in made
    wording.matches("savepoint", made, replace=wording.SIZES)
    again = milepost("savepoint", "create", spec, "--name", "one")
    assert again.exit_code == 4
    wording.matches("savepoint", again.stderr, replace=wording.SIZES)
    assert milepost("savepoint", "create", spec, "--name", "1").exit_code == 2
    assert milepost("savepoint", "create", spec, "--at", "9").exit_code == 3
    (listed,) = ok(milepost("savepoint", "list", spec, "--json")).document()["savepoints"]
    assert (listed["name"], listed["kind"], listed["checkpoint_id"]) == ("one", "savepoint", 1)
    assert "one" in ok(milepost("savepoint", "list", spec)).stdout
    unasked = milepost("savepoint", "dispose", spec, "--name", "one")
    assert unasked.exit_code == 2 and "--yes" in unasked.stderr
    wording.matches("savepoint", unasked.stderr, replace=wording.SIZES)
    assert milepost("savepoint", "dispose", spec, "--name", "two").exit_code == 3, "nobody is asked about what is not"
    done = ok(milepost("savepoint", "dispose", spec, "--name", "one", "--yes"))
    wording.matches("savepoint", done.stdout, replace=wording.SIZES)
    assert milepost("savepoint", "dispose", spec, "--name", "one", "--yes").exit_code == 3


def test_another_job_starts_from_an_export_and_ends_at_a_savepoint(job: CountedJob, tmp_path: Path) -> None:
    made = ok(milepost("export", job.spec_path, "2", "--target", f"file://{tmp_path}/copy"))
    wording.matches("export", made.stdout, replace=wording.SIZES)
    other = OtherJob.beside(job)
    refused = milepost("start", job.spec_path, "--from", f"file://{tmp_path}/copy")
    assert refused.exit_code == 2
    wording.matches("start", refused.stderr, replace=wording.SIZES)
    assert milepost("start", other.spec_path, "--from", f"file://{tmp_path}/none").exit_code == 3
    started = ok(milepost("start", other.spec_path, "--from", f"file://{tmp_path}/copy", "--claim"))
    wording.matches("start", started.stdout, replace=wording.SIZES)
    assert not list((tmp_path / "copy").rglob("*.parquet"))
    ended = ok(milepost("cancel", other.spec_path, "--savepoint", "--yes"))
    wording.matches("cancel", ended.stdout, replace=wording.SIZES)
    data = ok(milepost("start", other.spec_path, "--from", "checkpoint-3", "--json")).document()
    assert (data["outcome"], data["savepoint"]["checkpoint_id"], data["claimed"]) == ("started", 3, None)


def test_a_job_begins_with_tables(job: CountedJob, tmp_path: Path) -> None:
    for uid in ("latest", "unique"):
        ok(milepost("state", job.spec_path, uid, "--stored", "--output", tmp_path / f"{uid}.parquet"))
    third = OtherJob.beside(job, {"name: other": "name: third", "../lake/other-": "../lake/third-"})
    both = [f"{uid}={tmp_path}/{uid}.parquet" for uid in ("latest", "unique")]
    for wrong in (["latest"], ["=x"], ["latest="], [both[0], both[0]]):
        refused = milepost("bootstrap", third.spec_path, *wrong)
        assert refused.exit_code == 2
        wording.matches("bootstrap", refused.stderr, replace=wording.SIZES)
    done = ok(milepost("bootstrap", third.spec_path, *both))
    wording.matches("bootstrap", done.stdout, replace=wording.SIZES)
    assert third.master.reports.state("latest").num_rows == 5


def test_a_savepoint_that_another_job_has_claimed_is_taken_off_the_list(job: CountedJob) -> None:
    """What looks after the first job's store says what to do about a name with nothing behind it."""
    spec = job.spec_path
    ok(milepost("savepoint", "create", spec, "--name", "given", "--at", "2"))
    location = job.small.master.find_savepoint("given").location
    taker = OtherJob.beside(job, {"name: other": "name: taker", "../lake/other-": "../lake/taker-"})
    ok(milepost("start", taker.spec_path, "--from", location, "--claim"))
    command = f"milepost savepoint dispose {spec} --name given"
    fsck = milepost("fsck", spec)
    assert fsck.exit_code == 7 and command in fsck.stdout
    collected = milepost("gc", spec)
    assert collected.exit_code == 7 and command in collected.stderr
    ok(milepost(*command.split()[1:], "--yes"))
    assert milepost("fsck", spec).exit_code == 0 and milepost("gc", spec).exit_code == 0
