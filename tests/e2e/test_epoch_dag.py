"""The epoch DAG in a real scheduler, with real Spark: DESIGN 8.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from milepost.airflow.page_urls import form_url
from milepost.errors import Fenced
from milepost.jobmaster import Session, Triggered
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import GATE, OF_ITS_OWN, TASKS, E2eJob, has_line
from milepost_testkit.airflow.form_run import FormRun

ALL_DONE = dict.fromkeys(TASKS, "success") | {"abort_checkpoint": "skipped"}
NOTHING_DONE = dict.fromkeys(TASKS, "skipped") | {"abort_checkpoint": "skipped"}


class Runs(NamedTuple):
    """A job and two runs of it that were triggered one right after the other."""

    job: E2eJob
    first: str
    second: str


def gated(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[Runs | None]:
    job = airflow.write_job("gated", more=GATE, tolerable=1)
    job.land("a", {"AA": 2_000_000})
    yield None
    job.unpause()
    yield Runs(job, job.trigger(), job.trigger())


class Leased(NamedTuple):
    """Attributes: held: the checkpoint that another session holds. runs: the second one takes over."""

    other: Session
    held: Triggered
    runs: Runs


def leased(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[Leased | None]:
    """The second run is triggered while the first one runs: it waits in the queue, because `max_active_runs` is 1."""
    job = airflow.write_job("leased")
    job.land("a", {"AA": 5})
    other = Session.cli()
    held = job.master.triggers.trigger(other)
    assert isinstance(held, Triggered)
    yield None
    job.unpause()
    yield Leased(other, held, Runs(job, job.trigger(), job.trigger(take_over=True)))


@pytest.mark.deep
def test_a_triggered_run_is_one_epoch_and_emits_its_asset_event(airflow: AirflowInstance) -> None:
    """Rule 1; each task says first for whom it acts; the sink's asset event carries what consumers need."""
    job = airflow.add_job("one")
    job.land("a", {"AA": 5, "UA": 7})
    job.land("b", {"AA": 1})

    run_id, state = job.run()

    assert (state, job.states(run_id)) == ("success", ALL_DONE)
    assert job.table() == {"AA": (1, 5), "UA": (1, 7)}, "one object an epoch: the second is the next run's"
    (checkpoint,) = job.master.reports.list_checkpoints()
    assert (checkpoint.airflow.run_id, checkpoint.airflow.run_type) == (run_id, "manual")
    for task_id in TASKS:
        text = job.log(run_id, task_id)
        assert has_line(text, 1, "main", job.token(run_id, task_id), task_id)
    phases = job.master.reports.show(1).phases
    steps = ("plan_ms", "begin_ms", "session_ms", "read_ms", "process_ms", "commit_ms", "notify_ms", "subsume_ms")
    assert None not in [phases[step] for step in steps], "each task has left what it measured"
    assert sum(phases[step] for step in steps) + phases["other_ms"] <= phases["total_ms"], "other: between the tasks"
    (event,) = airflow.asset_events(job.dag_id)
    assert event["uri"] == f"file://{job.folder}/lake"
    assert event["extra"] == {"checkpoint_id": 1, "timeline": "main", "watermark": None, "rows": 2}
    note = "milepost: checkpoint 1: 2 rows in, 2 out, 0 late, 0 bad"
    assert airflow.rest.run(job.dag_id, run_id)["note"] == note


@pytest.mark.deep
def test_a_run_with_nothing_new_is_green_and_writes_nothing(airflow: AirflowInstance) -> None:
    """Rule 5: `subsume` also runs when there is nothing new; an empty landing prefix is a valid empty epoch."""
    job = airflow.add_job("empty")

    run_id, state = job.run()

    expected = NOTHING_DONE | {"trigger_checkpoint": "success", "subsume": "success"}
    assert (state, job.states(run_id)) == ("success", expected)
    assert job.left(run_id, "trigger_checkpoint") == {"nothing_to_do": "empty"}
    assert job.master.reports.list_checkpoints() == []


@pytest.mark.deep
def test_a_run_of_a_job_that_was_canceled_is_red_at_once(airflow: AirflowInstance) -> None:
    """I4: a finished incarnation is never run again; the log says how it goes on. No task is retried."""
    job = airflow.add_job("ended")
    job.land("a", {"AA": 1})
    assert isinstance(job.master.triggers.trigger(Session.cli()), Triggered)
    job.master.savepoints.cancel()

    run_id, state = job.run()

    states = job.states(run_id)
    assert (state, states["trigger_checkpoint"], states["run_epoch"]) == ("failed", "failed", "upstream_failed")
    text = job.log(run_id, "trigger_checkpoint")
    form = f"{airflow.stack.airflow_url}{form_url('ended', 'start')}"
    assert has_line(text, "CANCELED", "ended__operate: start", form, "milepost start ended")
    assert job.statuses() == [(1, "aborted")]


@pytest.mark.deep
def test_until_caught_up_triggers_one_run_per_epoch(airflow: AirflowInstance) -> None:
    """Rule 1: a run is an epoch also when the form asks for all there is."""
    job = airflow.add_job("catching_up")
    job.land("a", {"AA": 1})
    job.land("b", {"AA": 2})

    first = job.trigger(until_caught_up=True)
    runs = airflow.until(lambda: job.finished_runs(3), "three finished runs: two epochs and one that finds nothing")

    assert [run["state"] for run in runs] == ["success"] * 3
    assert [run["dag_run_id"] for run in runs].count(first) == 1
    assert job.statuses() == [(1, "completed"), (2, "completed")]
    assert job.table() == {"AA": (2, 3)}


@pytest.mark.scenario(begins=gated)
def test_a_failed_epoch_is_red_unless_it_is_tolerated_and_publishes_nothing(
    airflow: AirflowInstance, scenario: Runs
) -> None:
    """Rule 5, the abort path: the gate fails, the checkpoint is aborted with its reason. One failure is tolerated."""
    gated, green, red = scenario
    assert (gated.wait(green), gated.wait(red)) == ("success", "failed")
    assert gated.states(green)["abort_checkpoint"] == "success"
    states = gated.states(red)
    assert (states["validate"], states["abort_checkpoint"]) == ("failed", "failed")
    assert {states[task] for task in ("complete_checkpoint", "notify_complete", "subsume")} == {"upstream_failed"}
    assert gated.tries(red, "validate") == 1, "another try could only read the same verdict"
    vetoed = gated.log(red, "validate")
    assert has_line(vetoed, "Task failed with exception", "checkpoint 2", "runbook/quality-gate-failed"), vetoed
    assert 'File "' not in vetoed and "Traceback" not in vetoed, "foreseen: its words tell all"
    for checkpoint in gated.master.reports.list_checkpoints():
        assert (checkpoint.status, checkpoint.failure_reason) == ("aborted", "QUALITY_GATE_FAILED")
    assert gated.statuses() == [(1, "aborted"), (2, "aborted")]
    assert gated.published_checkpoint() is None

    # Rule 3: the checkpoint of this run is gone, so its cleared task fails at once, without retries.
    gated.clear(red, "run_epoch")
    assert gated.wait(red) == "failed"
    assert gated.tries(red, "run_epoch") == 2
    assert "runbook/fenced" in gated.log(red, "run_epoch", 2)
    assert gated.statuses() == [(1, "aborted"), (2, "aborted")]

    assert gated.master.reports.job_state().job_status == "failed"
    resume = FormRun(airflow, "gated__operate", what="resume", approve=False)
    assert resume.wait() == "success"
    assert "QUALITY_GATE_FAILED" in resume.log("plan") and "FAILED" in resume.log("act")
    assert gated.master.reports.job_state().job_status != "failed"


@pytest.mark.deep
def test_spark_that_does_not_start_is_not_tolerated(airflow: AirflowInstance) -> None:
    """The run is red: Spark that does not start is not a failure of the epoch."""
    job = airflow.add_job("unstarted", tolerable=1, spark=OF_ITS_OWN + ", conf: {spark.driver.memory: 1k}")
    job.land("a", {"AA": 1})
    assert job.run()[1] == "failed"
    assert job.statuses() == [(1, "aborted")]


@pytest.mark.deep
@pytest.mark.scenario(begins=leased)
def test_a_run_during_another_session_is_skipped_until_it_takes_over(
    airflow: AirflowInstance, scenario: Leased
) -> None:
    """Rule 4: the pending checkpoint is a lease. The next run skips, or takes over when a person says so."""
    other, held, (job, skipped, taking_over) = scenario
    assert (job.wait(skipped), job.states(skipped)) == ("success", NOTHING_DONE)
    assert (job.wait(taking_over), job.states(taking_over)) == ("success", ALL_DONE)
    runs = {run["dag_run_id"]: run for run in airflow.rest.runs(job.dag_id)}
    assert runs[taking_over]["start_date"] >= runs[skipped]["end_date"]
    assert job.statuses() == [(1, "aborted"), (2, "completed")]
    assert job.master.reports.show(1).failure_reason == "LEADER_TAKEN_OVER", "the skipped run has left the lease alone"
    for too_late in (job.master.epochs.validate, job.master.epochs.complete):
        with pytest.raises(Fenced):
            too_late(other, held.checkpoint_id)
    assert job.table() == {"AA": (1, 5)}


@pytest.mark.deep
def test_a_run_triggered_while_one_is_running_waits_in_the_queue(airflow: AirflowInstance) -> None:
    """Rule 4: `max_active_runs=1` holds the second run back, not the lease."""
    airflow.add_pool("shut", 0)
    job = airflow.add_job("queued", pool="shut")
    first = job.trigger()
    job.wait_for_task(first, "trigger_checkpoint", "scheduled")
    second = job.trigger()
    airflow.set_slots("shut", 1)

    assert (job.wait(first), job.wait(second)) == ("success", "success")

    runs = {run["dag_run_id"]: run for run in airflow.rest.runs(job.dag_id)}
    assert runs[second]["start_date"] >= runs[first]["end_date"]
    assert job.states(second) == NOTHING_DONE | {"trigger_checkpoint": "success", "subsume": "success"}
