"""Run epochs in this process, one task after another. Only SQL uses Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.epoch import EpochAnswers, EpochPlan, GateShare, judged_here
from milepost.jobspec.job import SparkSpec
from milepost.protocol.exchange import SubtaskAnswer
from milepost.quality import PartialResult
from milepost.spark.driver.engines.session import open_session, running_master
from milepost.spark.driver.spark_errors import refusal
from milepost.spark.driver.sql_projection import (
    SqlSchemas,
    collect,
    decode_output,
    encode_output,
    project,
    wide_frame,
)
from milepost.spark.local.local_levels import run_levels
from milepost.spark.task.epoch_tasks import epoch_tasks
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.planning.levels import EpochLevels, plan_levels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.task_output import TaskOutput
from milepost.storage import open_store

_ONE_CORE = "local[1]"


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
            here = replace(plan, cache_directory=node)
            sql = _SparkSql(here)
            epoch = plan_levels(here, 1, sql.schema)
            answers = sql.answers(epoch)
        return EpochAnswers(answers, epoch.operators, epoch.schemas, session_ms=0, job_ms=0)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> dict[str, PartialResult]:
        """Evaluate the shares one after another, in this process."""
        return judged_here(shares, open_store)


class _SparkSql:
    """The SQL of one epoch. It uses this process's Spark, which may be the user's, or starts one with one core."""

    def __init__(self, plan: EpochPlan) -> None:
        self._plan = plan

    def schema(self, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of a SQL output, by Spark's analysis."""
        return SqlSchemas(self._session()).of(self._plan, output, inputs)

    def answers(self, epoch: EpochLevels) -> tuple[SubtaskAnswer, ...]:
        """Run the levels. Return the answers of the last level's subtasks."""
        try:
            return run_levels(self._plan, epoch_tasks(self._plan, epoch), self._project)
        except PySparkException as error:
            raise refusal(self._plan.checkpoint_id, error, epoch.sql) from error

    def _project(self, step: SqlStep | None, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
        if step is None:
            return items
        rows = pa.Table.from_batches(encode_output(items, step.input_schemas)).combine_chunks()
        frame = wide_frame(self._session(), rows, step.input_schemas)
        projected = collect(project(frame, step.expressions, step.columns))
        return decode_output(projected.to_batches(), step.output_schemas, step.columns)

    def _session(self) -> SparkSession:
        spec = self._plan.spec.spark
        return open_session("tests", SparkSpec(master=running_master(_ONE_CORE), conf=spec.conf))
