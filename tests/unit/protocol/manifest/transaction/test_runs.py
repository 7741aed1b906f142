"""Which Airflow runs are covered by a completed checkpoint (DESIGN 8.3, rule 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import InvalidRequest
from milepost.protocol.manifest.transaction.runs import find_coverage, later_scheduled_date
from milepost.protocol.records.ids import SessionId
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import CLI_RUN, JobLog, airflow_run

MAY_2 = "2013-05-02T00:00:00+00:00"


def after_scheduled(logical_date: str = MAY_2) -> JobLog:
    log = JobLog()
    log.epoch("airflow:d/s1", airflow_run("s1", "scheduled", logical_date))
    return log


def ask(log: JobLog, run_id: str, run_type: str, logical_date: str | None) -> int | None:
    found = find_coverage(log.state, SessionId(f"airflow:d/{run_id}"), airflow_run(run_id, run_type, logical_date))
    return None if found is None else int(found.checkpoint_id)


@pytest.mark.parametrize(
    ("run_type", "logical_date", "checkpoint_id"),
    [
        ("scheduled", "2013-05-01T00:00:00+00:00", 1),
        ("scheduled", MAY_2, 1),
        ("scheduled", "2013-05-02T02:00:00+02:00", 1),
        ("scheduled", "2013-05-02T00:00:00Z", 1),
        ("scheduled", "2013-05-02T00:00:01+00:00", None),
        ("backfill", "2013-05-01T00:00:00+00:00", 1),
        ("backfill", "2013-05-03T00:00:00+00:00", None),
        ("backfill", None, None),
        ("manual", "2013-05-01T00:00:00+00:00", None),
        ("asset_triggered", None, None),
    ],
)
def test_a_dated_run_is_covered_up_to_the_last_completed_scheduled_date(
    run_type: str, logical_date: str | None, checkpoint_id: int | None
) -> None:
    """An equal date is covered. A manual run stands for the current time, so its date never covers it."""
    assert ask(after_scheduled(), "other", run_type, logical_date) == checkpoint_id


def test_nothing_is_covered_by_date_before_the_first_scheduled_run() -> None:
    log = JobLog()
    log.epoch("airflow:d/m1", airflow_run("m1"))
    assert ask(log, "s1", "scheduled", MAY_2) is None


def test_a_run_that_completed_a_checkpoint_is_covered_by_it() -> None:
    log = JobLog()
    log.epoch("airflow:d/m1", airflow_run("m1"))
    log.epoch("airflow:d/m2", airflow_run("m2"))
    assert ask(log, "m1", "manual", None) == 1
    found = find_coverage(log.state, SessionId("airflow:d/m1"), airflow_run("m1"))
    assert found is not None
    wording.matches("problems", found.message)


def test_a_cli_session_is_never_covered() -> None:
    """It may ask for many epochs."""
    log = JobLog()
    log.epoch("cli:a")
    assert find_coverage(log.state, SessionId("cli:a"), CLI_RUN) is None


@pytest.mark.parametrize("logical_date", ["soon", "2013-05-02T00:00:00"])
def test_a_logical_date_that_names_no_moment_is_refused(logical_date: str) -> None:
    with wording.raises(InvalidRequest):
        ask(after_scheduled(), "other", "scheduled", logical_date)


def test_the_last_scheduled_date_never_decreases() -> None:
    earlier = airflow_run("x", "scheduled", "2013-05-01T00:00:00+00:00")
    later = airflow_run("x", "scheduled", "2013-05-03T00:00:00+00:00")
    assert later_scheduled_date(MAY_2, earlier) == MAY_2
    assert later_scheduled_date(MAY_2, later) == later.logical_date
    assert later_scheduled_date(None, earlier) == earlier.logical_date
    assert later_scheduled_date(MAY_2, replace(later, logical_date=None)) == MAY_2
    assert later_scheduled_date(MAY_2, replace(later, run_type="manual")) == MAY_2
