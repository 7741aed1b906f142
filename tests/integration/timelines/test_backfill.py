"""Backfill: real flights, a cleaning rule that was wrong in March, corrected and replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from milepost.epoch.answers import EpochAnswers, EpochRunner
from milepost.epoch.gate_shares import GateShare
from milepost.epoch.plan import EpochPlan
from milepost.jobmaster import CheckpointReport, NothingToDo
from milepost.quality.partial_results import PartialResult
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import SINKS, without_quality
from milepost_testkit.jobs.flights.recovering_job import key_of
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

FEBRUARY_28, MARCH_1, MARCH_3, JULY_1 = 59, 60, 62, 182
RIGHT = "SELECT carrier, flight, origin, dest, dep_delay,"
WRONG = "SELECT carrier, flight, origin, dest, CASE WHEN month = 3 THEN dep_delay + 60 ELSE dep_delay END AS dep_delay,"
EDIT = {"max_files: 4": "max_files: 1", without_quality(): ""}


@dataclass
class Meanwhile:
    """A data plane, before whose first epoch the schedule runs one of its own."""

    job: FlightsJob
    inner: EpochRunner
    scheduled: CheckpointReport | None = None

    def run(self, plan: EpochPlan) -> EpochAnswers:
        if self.scheduled is None:
            self.scheduled = self.job.run()
        return self.inner.run(plan)

    def prepare(self, plan: EpochPlan) -> None:
        self.inner.prepare(plan)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> Mapping[str, PartialResult]:
        return self.inner.judge(plan, shares)

    def stop(self) -> None:
        self.inner.stop()


def test_a_wrong_rule_for_march_is_replayed_while_july_goes_on_and_equals_a_run_from_scratch(
    tmp_path: Path, plane: Plane
) -> None:
    """Deduplication, windows, late rows and running sums are what the right rule would have made of them."""
    job = FlightsJob.create(tmp_path / "job", EDIT | {RIGHT: WRONG})
    job.land([FEBRUARY_28, MARCH_1, MARCH_3])
    assert len(job.run_until_caught_up()) == 3
    wrong = job.assert_tables_equal_the_oracle()

    job.edit(job.spec_path.read_text(), {WRONG: RIGHT})
    job.land([JULY_1])
    shown = milepost("backfill", job.spec_path, "--from", "2013-03-01T05:00Z", "--dry-run")
    assert shown.exit_code == 0, shown.stderr
    wording.matches("backfill", shown.stdout, replace=wording.SIZES)

    runner = Meanwhile(job, plane())
    result = back_fill(job.master(), runner, "2013-03-01T05:00Z")
    assert runner.scheduled is not None and runner.scheduled.timeline == "main"
    assert (result.fork_point, len(result.epochs)) == (1, 3), "two of March, and July's, caught up with"

    keys = [[key_of(day)] for day in (FEBRUARY_28, MARCH_1, MARCH_3, JULY_1)]
    assert job.epochs() == keys
    right = job.assert_tables_equal_the_oracle()
    assert sum(right.late.values()) > 0 and sum(right.duplicates.values()) > 0
    assert right.tables["carriers"].to_pylist() != wrong.tables["carriers"].to_pylist()

    scratch = FlightsJob.create(tmp_path / "scratch", EDIT)
    scratch.land([FEBRUARY_28, MARCH_1, MARCH_3, JULY_1])
    scratch.run_until_caught_up()
    assert scratch.epochs() == keys
    for name in SINKS:
        assert_same_rows(job.master().reports.read(name), scratch.master().reports.read(name), name)
    nothing = job.run()
    assert isinstance(nothing, NothingToDo) and nothing.status == "empty"
    assert milepost("verify", job.spec_path, "--deep").exit_code == 0
    assert milepost("fsck", job.spec_path).exit_code == 0
