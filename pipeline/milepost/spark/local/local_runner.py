"""Run an epoch's tasks in this process, for tests of a job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from milepost.epoch import EpochAnswers, EpochPlan, GateShare, judged_here
from milepost.quality import PartialResult
from milepost.spark.local.local_levels import run_levels
from milepost.spark.local.local_sql import LocalSql
from milepost.spark.task.epoch_tasks import epoch_tasks
from milepost.spark.task.planning.levels import plan_levels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.task_output import TaskOutput
from milepost.storage import open_store


class LocalRunner:
    """The data plane for tests of a job. The first epoch with SQL starts Spark, and later epochs reuse it."""

    def prepare(self, plan: EpochPlan) -> None:
        """Do nothing: all modules are already imported."""

    def stop(self) -> None:
        """Do nothing: an epoch ends in its own thread."""

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run the epoch with an empty node cache.

        Raises:
            SubtaskDeclined: Spark rejects the SQL, or it fails on a value.
            EnvironmentUnusable: Spark cannot be started.
        """
        with tempfile.TemporaryDirectory() as node:
            here, sql = replace(plan, cache_directory=node), LocalSql()

            def project(step: SqlStep | None, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
                return items if step is None else sql.project(here, step, items)

            epoch = plan_levels(here, 1, partial(sql.schema, here))
            with sql.refusals(here, epoch):
                answers = run_levels(here, epoch_tasks(here, epoch), project)
        return EpochAnswers(answers, epoch.operators, epoch.schemas, session_ms=0, job_ms=0)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> dict[str, PartialResult]:
        """Evaluate the shares one after another, in this process."""
        return judged_here(shares, open_store)
