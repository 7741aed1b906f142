"""What a task sends to the next level is the same of every attempt, so that Spark repairs a lost one (I12)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from milepost.api import Session
from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.spark.local.local_levels import rows_for
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import OperatorStage, OutputStage, epoch_tasks
from milepost.spark.task.planning.levels import plan_levels
from milepost.spark.worker.task_memory import task_memory
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.side_by_side_runner import SideBySideRunner


class _RepeatingRunner(SideBySideRunner):
    """Runs each task that sends to another level a second time before the epoch; keeps what both sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[pa.RecordBatch], list[pa.RecordBatch]]] = []

    def run(self, plan: EpochPlan) -> EpochAnswers:
        rows: list[pa.RecordBatch] = []
        for _, operators, output in epoch_tasks(plan, plan_levels(plan, 2, None)):
            if not output.plan.receivers:
                break
            sent = [
                (_sent(plan, operators, output, subtask, 0, rows), _sent(plan, operators, output, subtask, 1, rows))
                for subtask in range(operators.subtasks)
            ]
            self.sent += sent
            rows = [batch for first, _ in sent for batch in first]
        return super().run(plan)


def _sent(
    plan: EpochPlan,
    operators: OperatorStage,
    output: OutputStage,
    subtask: int,
    number: int,
    rows: list[pa.RecordBatch],
) -> list[pa.RecordBatch]:
    with task_memory(plan.cache_directory) as memory:
        attempt = Attempt(subtask, number, memory)
        return list(output.run(attempt, operators.run(attempt, iter(rows_for(subtask, rows)))))


def test_rows_that_cross_an_exchange_are_equal_of_equal_attempts(tmp_path: Path) -> None:
    """Spark 4.3 compares them when it runs a lost map task again, and fails the job over a single time in them."""
    job, runner = SparklessJob.create(tmp_path), _RepeatingRunner()
    job.land("a.csv")
    report = job.master.epochs.run(Session.cli(), runner)
    assert report.status == "completed"
    assert runner.sent
    assert all(first == again for first, again in runner.sent)
    measured = {(one.level, one.subtask) for one in job.master.reports.show(report.checkpoint_id).tasks}
    assert {level for level, _ in measured} == {0, 1}, "what each level measured is known nevertheless"
