"""A failure that is tolerated leaves a run that is green: `abort_checkpoint` skips the leaf that is not reached."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.airflow.compat import DownstreamTasksSkipped
from milepost.airflow.operators import skip_leaf, tasks
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import TaskInstance, trigger_vetoed
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

VETO = {"reason": "QUALITY_GATE_FAILED", "detail": "1 expectation is not met", "step": "", "runbook": ""}
RUN = SimpleNamespace(dag_id="small__epoch", run_id="manual__1", run_type="manual", logical_date=None)


class ScheduledTaskInstance(TaskInstance):
    """A task instance whose scheduler shows each of `rounds` once, as the state of the run's last task, then the last.

    Attributes: seen: the requested states, in order.
    """

    def __init__(self, task_id: str, pushed: dict[tuple[str, str], Any], rounds: list[str | None]) -> None:
        super().__init__(task_id, pushed)
        self._rounds, self.seen = rounds, list[str | None]()

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, str | None]]:
        assert (dag_id, task_ids, run_ids) == (RUN.dag_id, [tasks.SUBSUME], [RUN.run_id])
        self.seen.append(self._rounds[min(len(self.seen), len(self._rounds) - 1)])
        return {RUN.run_id: {tasks.SUBSUME: self.seen[-1]}}


def aborted(tmp_path: Path, rounds: list[str | None]) -> ScheduledTaskInstance:
    """Abort a vetoed epoch of a job that tolerates a failure. Returns the task instance that did."""
    job = SparklessJob.create(tmp_path, {"timeout: 10m": "timeout: 10m, tolerable_failures: 1"})
    job.land("a.csv")
    pushed: dict[tuple[str, str], Any] = {}
    instance = ScheduledTaskInstance(tasks.ABORT, pushed, rounds)
    abort = trigger_vetoed(str(job.folder / "config" / "small.yaml"), RUN, VETO, pushed)
    with pytest.raises(DownstreamTasksSkipped) as skip:
        abort(instance)
    assert skip.value.tasks == [tasks.SUBSUME]
    assert [one.status for one in job.master.reports.list_checkpoints()] == ["aborted"]
    return instance


def test_the_leaf_is_skipped_only_after_the_scheduler_has_marked_it(tmp_path: Path) -> None:
    """Skipped before, the scheduler's round that had read it would write `upstream_failed` over the skip."""
    assert aborted(tmp_path, [None, None, "upstream_failed"]).seen == [None, None, "upstream_failed"]


def test_a_second_try_of_the_abort_finds_the_leaf_skipped(tmp_path: Path) -> None:
    assert aborted(tmp_path, ["skipped"]).seen == ["skipped"]


def test_an_idle_scheduler_does_not_block_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(skip_leaf, "PATIENCE_S", 0.0)
    with caplog.at_level(logging.WARNING):
        assert aborted(tmp_path, [None]).seen == [None]
    (said,) = (record.getMessage() for record in caplog.records if record.name == skip_leaf.log.name)
    assert tasks.SUBSUME in said
    wording.matches("task_log", said)
