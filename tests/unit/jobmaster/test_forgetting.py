"""`forget_after`: what a job forgets of its source, seen from epochs, backfills, rollbacks and people."""

from __future__ import annotations

import json
import os
import time
from copy import copy
from pathlib import Path

import pytest

from milepost.errors import SourceChanged
from milepost.jobmaster import CheckpointDetails
from milepost.protocol.records.ids import CheckpointId
from milepost.sources.planning.consumed import MAX_RUNS
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.long

DAY_S = 86_400
FORGETS = {"settle: 0s": "settle: 0s\n    forget_after: 3d"}


class DatedJob:
    """A job whose objects land a day apart; only those of the last two days stay in the landing folder."""

    def __init__(self, folder: Path, edit: dict[str, str] | None = None, kept: int = 2) -> None:
        self.job = BackfillJob.create(folder, 0, FORGETS | (edit or {}))
        self.kept = kept
        self.now_s = round(time.time()) - 40 * DAY_S

    def copy_to(self, folder: Path) -> DatedJob:
        copied = copy(self)
        copied.job = self.job.copy(folder)
        return copied

    def land(self, day: int) -> Path:
        path = self.job.land(day)
        at = self.now_s + day * DAY_S
        os.utime(path, (at, at))
        return path

    def next_day(self, day: int) -> CheckpointDetails:
        self.land(day)
        gone = self.job.small.folder / "landing" / f"day-{day - self.kept:02d}.csv"
        if gone.exists():
            gone.rename(gone.with_suffix(".read"))
        found = self.job.epoch()
        assert isinstance(found, CheckpointDetails)
        return found

    def put_back(self) -> None:
        for path in (self.job.small.folder / "landing").glob("*.read"):
            path.rename(path.with_suffix(".csv"))

    def assert_table(self, days: int, *, fixed: bool, fixed_from: int | None = None) -> None:
        """As `BackfillJob.assert_table`, by all that ever landed."""
        self.put_back()
        self.job.assert_table(days, fixed=fixed, fixed_from=fixed_from)

    def remembered(self, checkpoint_id: int) -> list[str]:
        context = self.job.small.context
        metadata = context.metadata(context.head().state.checkpoint(CheckpointId(checkpoint_id)))
        table = context.consumed("rows", metadata.sources["rows"].consumed).table
        return [key.removeprefix("day-").removesuffix(".csv") for key in table["key"].to_pylist()]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> DatedJob:
    """An epoch a day, until something is forgotten. Only to be copied."""
    job = DatedJob(tmp_path_factory.mktemp("prepared") / "job")
    for day in range(1, MAX_RUNS + 2):
        job.next_day(day)
    return job


@pytest.fixture
def dated(prepared: DatedJob, tmp_path: Path) -> DatedJob:
    return prepared.copy_to(tmp_path / "job")


def test_old_deleted_objects_are_forgotten_and_the_horizon_is_reported(dated: DatedJob) -> None:
    assert dated.remembered(MAX_RUNS) == [f"{day:02d}" for day in range(1, MAX_RUNS + 1)]
    assert dated.remembered(MAX_RUNS + 1) == ["05", "06", "07", "08", "09"], "three days before the eighth, and later"
    spec = str(dated.job.small.folder / "config" / "small.yaml")
    document = json.loads(milepost("status", spec, "--json").stdout)["data"]
    horizon = document["sources"]["rows"]["horizon"]
    head = json.loads(milepost("show", spec, "--json").stdout)["data"]
    assert head["sources"]["rows"]["horizon"] == horizon is not None
    times = wording.TIMES | wording.SHORT_TIMES | wording.LAG
    wording.matches("show", wording.paragraphs(milepost("show", spec).stdout, horizon), replace=times)
    wording.matches("status", wording.paragraphs(milepost("status", spec).stdout, "rows"), replace=times)
    told = json.loads(milepost("diff", spec, str(MAX_RUNS), str(MAX_RUNS + 1), "--json").stdout)["data"]
    wording.matches("diff", [one["note"] for one in told["differences"] if one["name"] == "rows"])


def test_an_object_older_than_the_horizon_stops_the_job_until_a_person_classifies_it(dated: DatedJob) -> None:
    late = dated.job.small.land("late.csv", "k,v,at\n1,1,2026-03-01T00:00:00Z\n")
    os.utime(late, (dated.now_s, dated.now_s))
    with wording.raises(SourceChanged, replace=wording.TIMES):
        dated.job.epoch()
    assert "late.csv" in str(dated.job.master.reports.status().next_step)
    dated.job.edit("forget_after: 3d", "forget_after: 3d\n    on_change: ignore")
    found = dated.next_day(MAX_RUNS + 2)
    assert (found.sources["rows"].objects, found.sources["rows"].skipped["not_remembered"]) == (1, 1)
    assert "late.csv" in str(dated.job.master.reports.status().sources["rows"].not_remembered)
    dated.job.edit("\n    on_change: ignore", "")
    os.utime(late)  # it was not read: with the time of now it is new
    found = dated.job.epoch()
    assert isinstance(found, CheckpointDetails) and found.sources["rows"].objects == 1


def test_an_object_that_is_back_unchanged_is_not_read_again_unless_requested(dated: DatedJob) -> None:
    dated.put_back()
    with wording.raises(SourceChanged, replace=wording.TIMES):
        dated.job.epoch()
    dated.job.edit("forget_after: 3d", "forget_after: 3d\n    on_change: ignore")
    assert dated.next_day(MAX_RUNS + 2).sources["rows"].objects == 1
    dated.assert_table(MAX_RUNS + 2, fixed=False)


@pytest.mark.deep
def test_a_backfill_compares_what_both_can_remember(dated: DatedJob) -> None:
    """A fork forgets nothing, so it knows more than the live timeline; what it lacks would still be seen."""
    for day in range(MAX_RUNS + 2, MAX_RUNS + 4):
        dated.next_day(day)
    dated.put_back()
    dated.job.fix()
    result = dated.job.backfill(SparklessRunner(), from_=None, from_checkpoint=0)
    assert len(result.epochs) == MAX_RUNS + 3
    dated.assert_table(MAX_RUNS + 3, fixed=True)
    assert len(dated.remembered(result.checkpoint_id)) == MAX_RUNS + 3
    dated.next_day(MAX_RUNS + 4)
    dated.assert_table(MAX_RUNS + 4, fixed=True)


def test_a_backfill_from_a_later_point_does_not_need_deleted_objects(dated: DatedJob) -> None:
    for day in range(MAX_RUNS + 2, 2 * MAX_RUNS + 3):
        dated.next_day(day)
    assert len(dated.remembered(2 * MAX_RUNS + 2)) <= 2 * MAX_RUNS - 1
    dated.job.fix()
    result = dated.job.backfill(from_=None, from_checkpoint=2 * MAX_RUNS)
    assert (len(result.epochs), result.fork_point) == (2, 2 * MAX_RUNS)
    dated.assert_table(2 * MAX_RUNS + 2, fixed=False, fixed_from=2 * MAX_RUNS + 1)


def test_a_rollback_restores_remembered_keys(dated: DatedJob) -> None:
    dated.put_back()
    plan = dated.job.master.rollbacks.plan(MAX_RUNS)
    wording.matches("plan", plan.not_undone, replace=wording.TIMES)
    roll_back(dated.job.master, MAX_RUNS)
    found = dated.job.epoch()
    assert isinstance(found, CheckpointDetails) and found.sources["rows"].objects == 1, "the day after, alone"
    dated.assert_table(MAX_RUNS + 1, fixed=False)


@pytest.mark.parametrize(
    ("after", "kept"), [("1d", 3), pytest.param("20d", MAX_RUNS + 1, marks=pytest.mark.deep), ("null", MAX_RUNS + 1)]
)
def test_what_is_remembered_is_what_the_key_says(tmp_path: Path, after: str, kept: int) -> None:
    dated = DatedJob(tmp_path / "job", {"settle: 0s": f"settle: 0s\n    forget_after: {after}"})
    for day in range(1, MAX_RUNS + 2):
        dated.next_day(day)
    assert len(dated.remembered(MAX_RUNS + 1)) == kept


def test_without_the_key_forgotten_objects_stay_forgotten(dated: DatedJob) -> None:
    dated.job.edit("forget_after: 3d", "forget_after: null")
    assert dated.next_day(MAX_RUNS + 2).sources["rows"].horizon is not None
    dated.put_back()
    with pytest.raises(SourceChanged):
        dated.job.epoch()


@pytest.mark.deep
def test_a_clock_that_goes_back_forgets_nothing_more(dated: DatedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dated.job.master.reports.status().sources["rows"].horizon
    monkeypatch.setattr(LocalStore, "clock_ms", lambda _: dated.now_s * 1000)
    for day in range(MAX_RUNS + 2, 2 * MAX_RUNS + 3):
        dated.next_day(day)
    assert dated.job.master.reports.status().sources["rows"].horizon == before
    assert len(dated.remembered(2 * MAX_RUNS + 2)) == 5 + MAX_RUNS + 1


def test_a_job_that_starts_from_a_savepoint_remembers_as_much(dated: DatedJob) -> None:
    job = dated.job
    head = dated.remembered(MAX_RUNS + 1)
    horizon = job.master.reports.status().sources["rows"].horizon
    job.master.savepoints.create("before")
    job.master.savepoints.cancel()
    job.master.restores.start("before")
    assert dated.remembered(int(job.state.timeline().head)) == head
    assert job.master.reports.status().sources["rows"].horizon == horizon is not None
    dated.put_back()
    with wording.raises(SourceChanged, replace=wording.TIMES):
        job.epoch()
