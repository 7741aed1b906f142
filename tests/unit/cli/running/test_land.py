"""`milepost land` after lost data: the plan, the confirmation, and what the other commands say about the gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.codec import to_json
from milepost.jobmaster.metrics.samples import samples_of
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob

GAP = ("--source", "feed", "--resume-from", "earliest")


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """A job that has read 3 rows, and whose external system has lost 2 of the 3 rows after that."""
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2, 1)
    job.produce(3, 3, 1)
    job.expire(2)
    return job


def cli(job: LandedJob, command: str, *words: str) -> Outcome:
    return milepost(command, job.folder / "config" / "landed.yaml", *words)


def test_a_landing_that_stops_names_the_command_and_the_command_goes_on(job: LandedJob) -> None:
    stopped = cli(job, "land")
    assert stopped.exit_code == 1
    wording.matches("land", stopped.stderr)
    planned = cli(job, "land", *GAP, "--dry-run")
    assert (planned.exit_code, job.is_expired) == (0, True)
    wording.matches("land", planned.stdout, replace=wording.TIMES)
    approved = cli(job, "land", *GAP, "--yes")
    assert approved.exit_code == 0
    wording.matches("land", approved.stdout, replace=wording.TIMES)
    landed = cli(job, "land")
    assert (landed.exit_code, job.left) == (0, 0)
    record = cli(job, "input", "feed", "--at", "3")
    wording.matches("land", record.stderr, replace=wording.SHORT_TIMES)
    assert "approved: tester (command line): milepost land --source feed --resume-from earliest" in record.stderr


@pytest.mark.long
def test_status_metrics_and_the_epoch_that_passed_a_gap_report_it(job: LandedJob) -> None:
    def metric() -> list[object]:
        document: dict[str, Any] = to_json(job.master.reports.status())
        samples = samples_of("landed", {"status": document})
        return [one.value for one in samples if one.metric.prometheus_name == "milepost_source_landedGaps"]

    assert metric() == [0]
    assert "gap" not in cli(job, "status").stdout
    job.approve_gap()
    assert metric() == [1]
    assert "1 gap of lost data" in " ".join(cli(job, "status").stdout.split())
    job.land_and_run(2)
    shown = " ".join(cli(job, "show").stdout.split())
    assert "records 3 to 4 of its log" in shown and "1 gap of lost data among them" in shown
    later = job.land_and_run(2)
    assert "gap" not in cli(job, "show", str(later)).stdout


def test_without_a_terminal_a_gap_needs_yes(job: LandedJob) -> None:
    refused = cli(job, "land", *GAP)
    assert (refused.exit_code, job.is_expired) == (2, True)
    wording.matches("land", refused.stderr)


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("--resume-from", "earliest", "--yes"),
        ("--resume-from", "earliest", "--source", "feed", "--source", "other", "--yes"),
        ("--yes",),
        ("--dry-run",),
    ],
    ids=["no source", "two sources", "yes without a gap", "dry-run without a gap"],
)
def test_options_that_would_have_no_meaning_are_refused(job: LandedJob, words: tuple[str, ...]) -> None:
    refused = cli(job, "land", *words)
    assert (refused.exit_code, job.is_expired) == (2, True)
    wording.matches("land", refused.stderr)


def test_a_landing_that_stops_leads_to_the_filled_in_form_in_airflow(job: LandedJob) -> None:
    from milepost.airflow.task_output.form_links import for_airflow

    (failed,) = job.land().failed
    wording.matches("form_links", for_airflow(failed.hint))
