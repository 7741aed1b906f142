"""SQL of epochs that run in this process. It uses the process's Spark, which may be the user's, or starts one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.epoch import EpochPlan
from milepost.jobspec.job import SparkSpec
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
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.planning.levels import EpochLevels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.task_output import TaskOutput

_ONE_CORE = "local[1]"


@dataclass
class LocalSql:
    """The SQL of the epochs of one job. The first epoch with SQL starts Spark, with one core."""

    _schemas: dict[int, SqlSchemas] = field(default_factory=dict)

    def schema(self, plan: EpochPlan, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of a SQL output, by Spark's analysis. Raises SubtaskDeclined: Spark rejects the SQL."""
        session = _session(plan)
        schemas = self._schemas.setdefault(id(session), SqlSchemas(session))
        return schemas.of(plan, output, inputs)

    def project(self, plan: EpochPlan, step: SqlStep, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
        """Return the items after one projection."""
        rows = pa.Table.from_batches(encode_output(items, step.input_schemas, step.unread_schemas)).combine_chunks()
        frame = wide_frame(_session(plan), rows, step.input_schemas)
        projected = collect(project(frame, step.expressions, step.columns))
        return decode_output(projected.to_batches(), step.output_schemas, step.columns)

    @contextmanager
    def refusals(self, plan: EpochPlan, epoch: EpochLevels) -> Iterator[None]:
        """Turn errors of Spark into SubtaskDeclined: its SQL fails on a value."""
        try:
            yield
        except PySparkException as error:
            raise refusal(plan.checkpoint_id, error, epoch.sql) from error


def _session(plan: EpochPlan) -> SparkSession:
    return open_session(plan.spec.name, SparkSpec(master=running_master(_ONE_CORE), conf=plan.spec.spark.conf))
