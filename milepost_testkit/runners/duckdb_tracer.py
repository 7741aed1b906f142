"""A tracer whose SQL is evaluated by DuckDB, where it means the same there as in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from milepost.epoch.plan import EpochPlan
from milepost.spark.local.tracer import LocalTracer
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.planning.levels import EpochLevels
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.wire.task_output import TaskOutput
from milepost_testkit.runners.duckdb_sql import duckdb_schema, projected


class DuckdbSql:
    """As `LocalSql`, without Spark."""

    def schema(self, plan: EpochPlan, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return duckdb_schema(plan.spec, output, inputs)

    def project(self, plan: EpochPlan, step: SqlStep, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
        return projected(step, items)

    @contextmanager
    def refusals(self, plan: EpochPlan, epoch: EpochLevels) -> Iterator[None]:
        yield


def duckdb_tracer() -> LocalTracer:
    return LocalTracer(DuckdbSql())
