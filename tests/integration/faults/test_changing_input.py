"""Objects that change, vanish or are not there: before the plan, and between the plan and the read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milepost.cli.terminal.failures import report
from milepost.cli.terminal.output import Output
from milepost.epoch.answers import EpochRunner
from milepost.errors import CheckpointError
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights import day_body, day_key
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.recovering_job import RecoveringJob, key_of
from milepost_testkit.models.data.csv_oracle import expected_tables
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

VERSIONS = {r"\b\d+-\d{16,}\b": "{version}"} | wording.SIZES | wording.FIRST_DECLINE
EVENT_TIME = "event_time: time_hour\n"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """A job with one completed epoch, to be copied."""
    return RecoveringJob.healthy(tmp_path_factory.mktemp("healthy") / "job").job


@pytest.fixture
def recovering(healthy: FlightsJob, tmp_path: Path) -> RecoveringJob:
    """A copy of the healthy job, with new input landed: days 3 and 4."""
    return RecoveringJob.copy_of(healthy, tmp_path / "job")


def run_and(
    strike: Callable[[], Any], job: FlightsJob, runner: EpochRunner, capsys: pytest.CaptureFixture[str]
) -> Outcome:
    """Run one epoch as `milepost run` does, and strike once it is planned, before anything of it is read."""

    steps: list[str] = []

    def at_step(step: str) -> None:
        steps.append(step)
        if step == "begin":
            strike()

    loaded = job.load()
    capsys.readouterr()
    try:
        JobMaster(loaded).epochs.run(Session.cli(), runner, progress=at_step)
        code = 0
    except CheckpointError as error:
        code = report(error, Output())
    assert steps[:2] == ["trigger", "begin"], "it has struck"
    printed = capsys.readouterr()
    return Outcome(code, printed.out, printed.err)


def test_an_object_that_changes_between_plan_and_read_is_never_read(
    recovering: RecoveringJob, plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN 4: each object is read in the planned version, or not at all."""
    job = recovering.job
    fewer = day_body(3).rsplit(b"\n", 20)[0] + b"\n"
    outcome = run_and(lambda: job.landing.put(day_key(3), fewer), job, plane(), capsys)
    assert_clear_error(
        outcome, 1, "SOURCE_OBJECT_CHANGED", "2013/01/03.csv", "milepost resume", golden="run", replace=VERSIONS
    )
    job.landing.put(day_key(3), day_body(3))
    recovering.assert_nothing_happened(aborted="SOURCE_OBJECT_CHANGED")
    recovering.recover(failed=True)


def test_an_object_that_vanishes_between_plan_and_read_fails_the_epoch(
    recovering: RecoveringJob, plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    """`on_missing: fail`."""
    job = recovering.job
    outcome = run_and(lambda: job.landing.delete([day_key(3)]), job, plane(), capsys)
    assert_clear_error(
        outcome,
        1,
        "SOURCE_OBJECT_MISSING",
        "2013/01/03.csv",
        "on_missing",
        "milepost resume",
        golden="run",
        replace=VERSIONS,
    )
    job.land([3])
    recovering.assert_nothing_happened(aborted="SOURCE_OBJECT_MISSING")
    recovering.recover(failed=True)


def test_a_vanished_object_that_may_be_skipped_is_read_when_it_comes_back(
    recovering: RecoveringJob, plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    """`on_missing: skip`: it is not consumed, `show` names it, and nothing of it is lost once it is back."""
    job = recovering.job
    job.edit(job.spec_path.read_text(), {EVENT_TIME: f"{EVENT_TIME}    on_missing: skip\n"})
    assert run_and(lambda: job.landing.delete([day_key(3)]), job, plane(), capsys).exit_code == 0
    shown = milepost("show", job.spec_path, "2", "--json").document()
    assert shown["sources"]["flights"]["missing"] == [key_of(3)] and shown["sources"]["flights"]["objects"] == 1
    job.land([3])
    assert milepost("run", job.spec_path).exit_code == 0
    assert_equal_oracle(job, [[key_of(1), key_of(2)], [key_of(4)], [key_of(3)]])


def test_an_object_rewritten_after_it_was_consumed_can_be_ignored(recovering: RecoveringJob, plane: Plane) -> None:
    """`on_change: ignore`: what was consumed stays, in its old version."""
    job = recovering.job
    job.edit(job.spec_path.read_text(), {EVENT_TIME: f"{EVENT_TIME}    on_change: ignore\n"})
    job.landing.put(day_key(2), day_body(9))
    assert milepost("run", job.spec_path).exit_code == 0
    job.landing.put(day_key(2), day_body(2))
    assert milepost("run", job.spec_path, "--json").document()["status"] == "empty"
    assert_equal_oracle(job, [[key_of(1), key_of(2)], [key_of(3), key_of(4)]])


def test_an_object_rewritten_after_it_was_consumed_can_be_read_again(
    recovering: RecoveringJob, plane: Plane, tmp_path: Path
) -> None:
    """`on_change: reprocess`: the new version is new input; deduplication drops what the old one held too."""
    job = recovering.job
    job.edit(job.spec_path.read_text(), {EVENT_TIME: f"{EVENT_TIME}    on_change: reprocess\n"})
    header, _, rows = day_body(5).partition(b"\n")
    rewritten = day_body(2) + rows
    assert day_body(2).startswith(header)
    job.landing.put(day_key(2), rewritten)
    assert milepost("run", job.spec_path, "--until-caught-up").exit_code == 0
    assert job.epochs() == [[key_of(1), key_of(2)], [key_of(2), key_of(3)], [key_of(4)]]
    versions = open_store(StoreConfig(f"file://{tmp_path / 'versions'}"))
    for day in (1, 2, 3, 4):
        versions.put(key_of(day), day_body(day))
    versions.put("rewritten.csv", rewritten)
    expected = expected_tables(
        JobContext(job.load()).spec, versions, [[key_of(1), key_of(2)], ["rewritten.csv", key_of(3)], [key_of(4)]]
    )
    for name, table in expected.tables.items():
        assert_same_rows(job.master().reports.read(name), table, name)


def test_an_empty_landing_prefix_is_a_valid_empty_epoch(tmp_path: Path, plane: Plane) -> None:
    """Issue: exit 0, nothing written but the job itself; and the first input is then read as ever."""
    job = RecoveringJob.unrun(tmp_path / "job")
    first = milepost("run", job.spec_path)
    assert first.exit_code == 0
    wording.matches("run", first.stdout)
    assert milepost("list", job.spec_path, "--json").document()["checkpoints"] == []
    written = sorted(path for path in (job.folder / "store").rglob("*") if path.is_file())
    assert milepost("run", job.spec_path).exit_code == 0
    assert sorted(path for path in (job.folder / "store").rglob("*") if path.is_file()) == written
    assert not (job.folder / "lake").exists()
    job.land([1, 2])
    assert milepost("run", job.spec_path).exit_code == 0
    assert_equal_oracle(job, [[key_of(1), key_of(2)]])


def assert_equal_oracle(job: FlightsJob, epochs: list[list[str]]) -> None:
    context = JobContext(job.load())
    expected = expected_tables(context.spec, open_store(context.source("flights")[0]), epochs)
    for name, table in expected.tables.items():
        assert_same_rows(job.master().reports.read(name), table, name)
