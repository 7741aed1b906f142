"""One run, stopped before each of its tasks: the store is in exactly the state which that position means."""

from __future__ import annotations

import pytest

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.layout import checkpoint_prefix, metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost_testkit.airflow.airflow_instance import STEPS, AirflowInstance, step_pool
from milepost_testkit.airflow.e2e_job import E2eJob, has_line

TASKS = (
    "trigger_checkpoint",
    "run_epoch",
    "validate",
    "complete_checkpoint",
    "notify_complete",
    "subsume",
    "abort_checkpoint",
)
FIRST = {"AA": (1, 5)}
BOTH = {"AA": (2, 11)}


class SteppedRun:
    """A run whose tasks get a slot one by one: it stands before the task that has none, which shows as `scheduled`."""

    def __init__(self, airflow: AirflowInstance, job: E2eJob) -> None:
        self.airflow = airflow
        self.job = job
        self.set_slots(0)
        self.run_id = job.trigger()
        self.stands_before("trigger_checkpoint")

    def set_slots(self, slots: int) -> None:
        for task_id in TASKS:
            self.airflow.set_slots(step_pool(task_id), slots)

    def stands_before(self, task_id: str) -> None:
        self.job.wait_for_task(self.run_id, task_id, "scheduled")

    def step(self, task_id: str, following: str) -> None:
        """Let one task run, and stop before the following one."""
        self.airflow.set_slots(step_pool(task_id), 1)
        self.job.wait_for_task(self.run_id, task_id, "success")
        self.airflow.set_slots(step_pool(task_id), 0)
        self.stands_before(following)

    def finish(self) -> str:
        self.set_slots(1)
        return self.job.wait(self.run_id)


def written(job: E2eJob, checkpoint_id: int) -> set[str]:
    """All keys of a checkpoint."""
    return {stat.key for stat in JobContext(job.loaded).store.list(checkpoint_prefix(checkpoint_id))}


def events(job: E2eJob) -> list[tuple[int, str]]:
    """Every transition that the log tells, compacted or not."""
    return [(entry["version"], entry["event"]) for entry in job.master.reports.history()]


def head(job: E2eJob) -> ManifestState:
    return JobContext(job.loaded).head().state


@pytest.mark.deep
def test_a_run_stopped_before_each_task_has_the_store_in_that_state(airflow: AirflowInstance) -> None:
    """DESIGN 8.3: each task does its own part of the protocol. Rule 3: a cleared task continues its checkpoint."""
    for task_id in TASKS:
        airflow.add_pool(step_pool(task_id), 1)
    job = airflow.add_job("stepped", pool=STEPS, retained=1)
    job.land("a", {"AA": 5})
    job.land("b", {"AA": 6})
    assert job.run()[1] == "success"
    history = job.master.reports.history()

    run = SteppedRun(airflow, job)
    assert job.master.reports.history() == history

    run.step("trigger_checkpoint", "run_epoch")
    assert job.statuses() == [(1, "completed"), (2, "pending")]
    assert written(job, 2) == set(), "no try has begun"

    run.step("run_epoch", "validate")
    first_token = job.token(run.run_id, "validate")
    assert metadata_key(2, first_token) in written(job, 2)
    assert job.statuses() == [(1, "completed"), (2, "pending")]

    job.clear(run.run_id, "run_epoch")
    run.step("run_epoch", "validate")
    token = job.token(run.run_id, "validate")
    assert token > first_token, "a cleared task may have left its Spark job running: it is fenced by a higher token"
    assert head(job).timeline().pending.token == token
    assert metadata_key(2, token) in written(job, 2)

    run.step("validate", "complete_checkpoint")
    assert job.statuses() == [(1, "completed"), (2, "pending")]
    assert (job.published_checkpoint(), job.table()) == (1, FIRST)

    run.step("complete_checkpoint", "notify_complete")
    assert job.statuses() == [(1, "completed"), (2, "completed")]
    assert head(job).checkpoint(2).unconfirmed == ("carriers",)
    assert (job.published_checkpoint(), job.table()) == (1, FIRST)

    run.step("notify_complete", "subsume")
    assert head(job).checkpoint(2).unconfirmed == ()
    assert (job.published_checkpoint(), job.table()) == (2, BOTH)
    assert job.statuses() == [(1, "completed"), (2, "completed")], "one is retained, none is subsumed yet"

    assert run.finish() == "success"
    assert job.statuses() == [(1, "subsumed"), (2, "completed")]

    # Rule 3, after completion: the cleared task finds its work done. Rule 2: so does the whole cleared run.
    transitions = events(job)
    job.clear(run.run_id, "run_epoch")
    assert job.wait(run.run_id) == "success"
    assert job.tries(run.run_id, "run_epoch") == 3
    job.clear(run.run_id, "trigger_checkpoint")
    assert job.wait(run.run_id) == "success"
    assert job.left(run.run_id, "trigger_checkpoint") == {"nothing_to_do": "covered"}
    assert has_line(job.log(run.run_id, "trigger_checkpoint", 2), "checkpoint 2")
    assert events(job) == transitions
    assert job.table() == BOTH
