"""The next step of a job is taken inside Airflow: a form, a run of a DAG, or something that is not the job's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.acts import ACTS
from milepost.airflow.page.frame.commands import names_command
from milepost.airflow.page.jobs.acts import offered_acts
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.job_reader import JobReading
from milepost.airflow.page.jobs.suggested_action import EPOCH, action_after_error, suggested_action
from milepost.errors import InvalidRequest, StateCorrupt, StoreUnavailable
from milepost.jobmaster import Condition, Status
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    return job


@pytest.fixture
def status(job: SparklessJob) -> Status:
    return job.master.reports.status()


@pytest.mark.deep
@pytest.mark.parametrize("condition", Condition)
def test_each_condition_has_an_action_that_needs_no_shell(
    job: SparklessJob, status: Status, condition: Condition
) -> None:
    """The command is set apart; the act for the next step is the first one."""
    found = replace(status, condition=condition, next_step="milepost run small", last_failure="SUBTASK_DECLINED")
    action = suggested_action(found)
    assert action.text and not names_command(action.text) and action.command == "milepost run small"
    assert action.act in ("", EPOCH, *ACTS)
    acts = offered_acts(JobReading(DagJob("small__epoch", job.loaded()), job.master.reports.job_state(), found))
    assert [act.what or EPOCH for act in acts if act.is_suggested] == ([action.act] if action.act else [])
    assert acts[0].is_suggested is bool(action.act) and len({act.label for act in acts}) == len(acts)


def test_unread_input_is_a_reason_to_run_an_epoch(status: Status) -> None:
    assert suggested_action(status).act == ""
    assert suggested_action(replace(status, unread_objects=3)).act == EPOCH
    assert suggested_action(replace(status, in_flight_bytes=9)).act == EPOCH


def test_a_path_that_never_matched_is_a_reason_to_check_it(tmp_path: Path, status: Status) -> None:
    missing_input = suggested_action(SparklessJob.create(tmp_path / "missing_input").master.reports.status()).text
    assert "../landing/*.csv" in missing_input and "rows" in missing_input
    wording.matches("suggested_action", [suggested_action(status).text, missing_input])


def test_a_job_that_failed_for_damage_is_verified_before_it_is_resumed(status: Status) -> None:
    action = suggested_action(replace(status, condition=Condition.FAILED, last_failure="STATE_CORRUPT"))
    assert action.act == "verify"
    wording.matches("suggested_action", action.text)


def test_the_action_for_an_error_follows_its_hint() -> None:
    back = action_after_error(StateCorrupt("torn", hint="milepost rollback small --to 3", rollback_to=3))
    assert (back.act, back.fields, back.command) == ("rollback", {"to": 3}, "milepost rollback small --to 3")
    assert action_after_error(StateCorrupt("torn")).act == "verify"
    assert action_after_error(StoreUnavailable("down", hint="Wait.")).text == "Wait."
    refused = action_after_error(InvalidRequest("no", hint="milepost lint small"))
    assert (refused.text, refused.command) == ("", "milepost lint small")
    wording.matches("suggested_action", action_after_error(None).text)


def test_a_job_in_a_users_dag_offers_only_that_dag(job: SparklessJob, status: Status) -> None:
    (act,) = offered_acts(
        JobReading(DagJob("theirs", job.loaded()), job.master.reports.job_state(), replace(status, unread_objects=1))
    )
    assert (act.dag_id, act.what, act.is_suggested) == ("theirs", "", True)
