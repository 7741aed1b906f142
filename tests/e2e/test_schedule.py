"""Runs that Airflow starts by itself: the schedule's, the next one of a run that catches up, those of a backfill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from milepost.jobmaster import Session
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import GATE, TASKS, E2eJob, has_line
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.lineage_schemas import assert_valid

ALL_DONE = dict.fromkeys(TASKS, "success") | {"abort_checkpoint": "skipped"}


def just_past(moment: datetime) -> str:
    """A schedule, as a section of a spec: hourly, due for the last time a minute before the moment."""
    return f"schedule: {{cron: '{(moment - timedelta(minutes=1)).minute} * * * *', timezone: UTC}}\n"


def backfill(job: E2eJob, start: datetime, end: datetime, *, backwards: bool, at_once: int = 1) -> list[dict[str, Any]]:
    """Run a native backfill of the hours from start to end, both included. Returns its runs, as they were started."""
    rest = job.airflow.rest
    before = {run["dag_run_id"] for run in rest.runs(job.dag_id)}
    span = {"from_date": start.isoformat(), "to_date": end.isoformat()}
    asked = {"dag_id": job.dag_id, "run_backwards": backwards, "max_active_runs": at_once}

    # While its DAG is paused, the scheduler reads no run of it. When Airflow's API finds SQLite locked, it deletes the
    # runs that it has just created, and a scheduler that has read one of them dies of that. Before 3.3 it leaves them.
    rest.set_paused(job.dag_id, True)

    def created() -> int | None:
        try:
            return int(rest.request("POST", "/backfills", json=asked | span)["id"])
        except httpx.HTTPStatusError as error:
            # Airflow's database of this test is SQLite, which the scheduler may be writing.
            if not error.response.is_server_error and error.response.status_code != httpx.codes.CONFLICT:
                raise
        for one in rest.request("GET", "/backfills", params={"dag_id": job.dag_id})["backfills"]:
            if one["completed_at"] is None:
                rest.request("PUT", f"/backfills/{one['id']}/cancel")
        for run in rest.runs(job.dag_id):
            if run["dag_run_id"] not in before:
                rest.request("DELETE", f"/dags/{job.dag_id}/dagRuns/{run['dag_run_id']}")
        return None

    backfill_id = job.airflow.until(created, "the backfill is created")
    rest.set_paused(job.dag_id, False)
    hours = round((end - start) / timedelta(hours=1)) + 1
    job.airflow.until(lambda: job.finished_runs(len(before) + hours), "all runs of the backfill are finished")
    # Airflow looks every 30 s whether a backfill has ended, and until then refuses the next one.
    try:
        rest.request("PUT", f"/backfills/{backfill_id}/cancel")
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:  # Airflow has just looked
            raise
    runs = [run for run in rest.runs(job.dag_id) if run["dag_run_id"] not in before]
    return sorted(runs, key=lambda run: run["start_date"])


def timed(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[E2eJob | None]:
    job = airflow.write_job("timed", more=just_past(datetime.now(UTC)) + GATE)
    job.land("a", {"AA": 5, "UA": 7})
    job.land("b", {"AA": 1})
    log = lineage_events(airflow)
    airflow.lineage_config.write_text(f"transport: {{type: file, log_file_path: {log}, append: true}}\n")
    yield None
    job.unpause()
    yield job


def lineage_events(airflow: AirflowInstance) -> Path:
    return airflow.lineage_config.with_name("events.json")


@pytest.mark.scenario(begins=timed)
def test_a_scheduled_run_is_an_epoch_from_its_trigger_to_its_lineage(
    airflow: AirflowInstance, scenario: E2eJob
) -> None:
    """Rule 1: one run is one epoch. Rule 2: what it has consumed, no run of an earlier hour consumes again.

    Each task logs whom it acts for and stores what it measured. The asset event and the lineage tell consumers what
    was published. A run until caught up triggers the next one, and a run that finds nothing new writes nothing.
    """
    job = scenario
    try:
        (scheduled,) = airflow.until(lambda: job.finished_runs(1), "the scheduled run is finished")
    finally:
        airflow.lineage_config.unlink()

    run_id = scheduled["dag_run_id"]
    assert (scheduled["run_type"], scheduled["state"]) == ("scheduled", "success")
    assert job.states(run_id) == ALL_DONE
    (checkpoint,) = job.master.reports.list_checkpoints()
    assert (checkpoint.status, checkpoint.airflow.run_id, checkpoint.airflow.run_type) == (
        "completed",
        run_id,
        "scheduled",
    )
    assert job.table() == {"AA": (1, 5), "UA": (1, 7)}, "one object an epoch: the second one is the next run's"
    assert_traced(job, run_id)
    assert_lineage(job, [json.loads(line) for line in lineage_events(airflow).read_text().splitlines()])

    history = job.master.reports.history()
    due = datetime.fromisoformat(scheduled["logical_date"])
    earlier = backfill(job, due - timedelta(hours=2), due - timedelta(hours=1), backwards=True)
    assert [(due - datetime.fromisoformat(run["logical_date"])) / timedelta(hours=1) for run in earlier] == [1, 2]
    for run in earlier:
        assert_harmless(job, run)
    assert job.master.reports.history() == history
    assert job.master.reports.status().unread_objects == 1

    caught_up = job.trigger(until_caught_up=True)
    *_, epoch, empty = airflow.until(lambda: job.finished_runs(5), "the run of the epoch, and the one it triggers")
    assert (epoch["dag_run_id"], epoch["state"], empty["state"]) == (caught_up, "success", "success")
    assert job.statuses() == [(1, "completed"), (2, "completed")]
    assert job.table() == {"AA": (2, 6), "UA": (1, 7)}
    assert job.states(empty["dag_run_id"]) == dict.fromkeys(ALL_DONE, "skipped") | {
        "trigger_checkpoint": "success",
        "subsume": "success",
    }
    assert job.left(empty["dag_run_id"], "trigger_checkpoint") == {"nothing_to_do": "empty"}


def assert_traced(job: E2eJob, run_id: str) -> None:
    """Assert what the tasks of the first epoch logged and measured, its asset event and its note."""
    for task_id in TASKS:
        text = job.log(run_id, task_id)
        assert has_line(text, 1, "main", job.token(run_id, task_id), task_id)
    phases = job.master.reports.show(1).phases
    steps = ("plan_ms", "begin_ms", "session_ms", "read_ms", "process_ms", "commit_ms", "notify_ms", "subsume_ms")
    assert None not in [phases[step] for step in steps], "each task has stored what it measured"
    assert sum(phases[step] for step in steps) + phases["other_ms"] <= phases["total_ms"], "other: between the tasks"
    (event,) = job.airflow.asset_events(job.dag_id)
    assert event["uri"] == f"file://{job.folder}/lake"
    assert event["extra"] == {"checkpoint_id": 1, "timeline": "main", "watermark": None, "rows": 2}
    note = "milepost: checkpoint 1: 2 rows in, 2 out, 0 late, 0 bad"
    assert job.airflow.rest.run(job.dag_id, run_id)["note"] == note
    assert "OpenLineage may not hear" not in job.log(run_id, "trigger_checkpoint")


def assert_lineage(job: E2eJob, events: list[dict[str, Any]]) -> None:
    """Assert that an epoch sent START by its first task and COMPLETE by the one that notified the last sink."""
    start, complete = [event for event in events if event["job"]["name"] == job.name]
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    parents = {json.dumps(event["run"]["facets"]["parent"], sort_keys=True) for event in (start, complete)}
    assert len(parents) == 1 and start["run"]["facets"]["parent"]["job"]["name"] == job.dag_id
    assertions = complete["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert [(one["column"], one["success"]) for one in assertions] == [("delay_sum", True)]
    for event in (start, complete):
        assert_valid(event)


def assert_harmless(job: E2eJob, run: dict[str, Any]) -> None:
    """Assert that a run of a backfill has found its hour covered by the first epoch."""
    assert (run["run_type"], run["state"]) == ("backfill", "success")
    assert job.left(run["dag_run_id"], "trigger_checkpoint") == {"nothing_to_do": "covered"}
    text = job.log(run["dag_run_id"], "trigger_checkpoint")
    assert has_line(text, "checkpoint 1") and "timed__operate: backfill" in text


@pytest.mark.deep
def test_a_scheduled_run_is_an_epoch_and_a_native_backfill_behind_it_is_harmless(airflow: AirflowInstance) -> None:
    """Rule 2: what a later scheduled run has consumed is never consumed again, in whatever order Airflow asks."""
    job = airflow.add_job("hourly", more=just_past(datetime.now(UTC)), unpaused=False)
    job.land("a", {"AA": 5})
    airflow.rest.set_paused(job.dag_id, False)

    (scheduled,) = airflow.until(lambda: job.finished_runs(1), "the scheduled run is finished")

    assert (scheduled["run_type"], scheduled["state"]) == ("scheduled", "success")
    (checkpoint,) = job.master.reports.list_checkpoints()
    assert (checkpoint.status, checkpoint.airflow.run_type) == ("completed", "scheduled")
    assert job.table() == {"AA": (1, 5)}

    job.land("b", {"AA": 6})
    history = job.master.reports.history()
    due = datetime.fromisoformat(scheduled["logical_date"])
    forwards = backfill(job, due - timedelta(hours=2), due - timedelta(hours=1), backwards=False, at_once=2)
    backwards = backfill(job, due - timedelta(hours=4), due - timedelta(hours=3), backwards=True)

    hours = [(due - datetime.fromisoformat(run["logical_date"])).total_seconds() / 3600 for run in forwards + backwards]
    assert (sorted(hours[:2]), hours[2:]) == ([1, 2], [3, 4]), "two at once, then one after the other, newest first"
    for run in forwards + backwards:
        assert (run["run_type"], run["state"]) == ("backfill", "success")
        assert job.left(run["dag_run_id"], "trigger_checkpoint") == {"nothing_to_do": "covered"}
        text = job.log(run["dag_run_id"], "trigger_checkpoint")
        assert has_line(text, "checkpoint 1") and "hourly__operate: backfill" in text
    assert job.master.reports.history() == history
    assert job.table() == {"AA": (1, 5)}
    assert job.master.reports.status().unread_objects == 1, "what landed since is the next scheduled run's"


@pytest.mark.deep
def test_a_native_backfill_of_several_runs_at_once_takes_nothing_twice_and_loses_nothing(
    airflow: AirflowInstance,
) -> None:
    """Rules 2 and 4: three concurrent runs, in reverse order, of hours that no checkpoint covers.

    Whoever comes second finds the lease held and is skipped, or comes later and finds its hour covered.
    """
    job = airflow.add_job("crowded", more=just_past(datetime.now(UTC)), unpaused=False)
    airflow.rest.set_paused(job.dag_id, False)
    (scheduled,) = airflow.until(lambda: job.finished_runs(1), "the scheduled run has found nothing")
    due = datetime.fromisoformat(scheduled["logical_date"])
    for name, rows in {"a": {"AA": 1}, "b": {"AA": 20, "UA": 300}, "c": {"UA": 4_000}}.items():
        job.land(name, rows)

    runs = backfill(job, due - timedelta(hours=3), due - timedelta(hours=1), backwards=True, at_once=3)

    assert [(run["run_type"], run["state"]) for run in runs] == [("backfill", "success")] * 3
    assert runs[1]["start_date"] < runs[0]["end_date"], "they ran at the same time"
    by_run = {one.airflow.run_id: one.status for one in job.master.reports.list_checkpoints()}
    assert set(by_run.values()) == {"completed"}, "whoever claimed has finished its epoch"
    for run in runs:
        text = job.log(run["dag_run_id"], "trigger_checkpoint")
        stood_back = "already covered by checkpoint" in text or "is pending" in text or "holds its lease" in text
        assert ("is planned" in text, stood_back) == (run["dag_run_id"] in by_run, run["dag_run_id"] not in by_run)

    while job.master.reports.status().unread_objects:
        job.master.epochs.run(Session.cli(), SparklessRunner())
    epochs = job.master.reports.list_checkpoints()
    assert (len(epochs), sum(one.rows_in for one in epochs)) == (3, 4)
    assert job.table() == {"AA": (2, 21), "UA": (2, 4_300)}
