"""Runs an epoch's tasks in this process, those of a level side by side, each with threads for its uploads.

For who asks what waits for what: `LocalRunner` does one thing after another. SQL operators are for Spark alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.gate_shares import GateShare, judged_here
from milepost.epoch.plan import EpochPlan
from milepost.quality.partial_results import PartialResult
from milepost.spark.local.local_levels import rows_for
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import OperatorStage, OutputStage, epoch_tasks, subtask_answers
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.planning.levels import plan_levels
from milepost.spark.worker.task_memory import task_memory
from milepost.storage.open import open_store


class SideBySideRunner:
    """A data plane whose tasks wait for one another as Spark's do, on a node that keeps its cache."""

    def prepare(self, plan: EpochPlan) -> None:
        """Nothing: all that it needs is imported."""

    def stop(self) -> None:
        """Nothing: an epoch ends by itself."""

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run the epoch: a level begins when the one before has ended."""
        epoch = plan_levels(plan, 2, _no_sql)
        rows: list[pa.RecordBatch] = []
        for _, operators, output in epoch_tasks(plan, epoch):
            with ThreadPoolExecutor(operators.subtasks) as pool:
                tasks = [
                    pool.submit(_run, plan.cache_directory, operators, output, subtask, rows)
                    for subtask in range(operators.subtasks)
                ]
                rows = [batch for task in tasks for batch in task.result()]
        answers = subtask_answers((row["kind"], row["payload"]) for batch in rows for row in batch.to_pylist())
        return EpochAnswers(answers, epoch.operators, epoch.schemas, session_ms=0, job_ms=0)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> dict[str, PartialResult]:
        return judged_here(shares, open_store)


def _run(
    spill: str, operators: OperatorStage, output: OutputStage, subtask: int, rows: list[pa.RecordBatch]
) -> list[pa.RecordBatch]:
    with task_memory(spill) as memory:
        attempt = Attempt(subtask, 0, memory)
        return list(output.run(attempt, operators.run(attempt, iter(rows_for(subtask, rows)))))


def _no_sql(output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    raise NotImplementedError(output.name)
