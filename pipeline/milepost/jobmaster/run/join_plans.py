"""Join plans say which small files of its tables an epoch's subtasks join."""

from __future__ import annotations

from dataclasses import replace

from milepost.dataflow.sinks.records.committables import decode_schema
from milepost.dataflow.sinks.records.contents import TableContents
from milepost.dataflow.sinks.staging.small_files import JoinPlan, plan_joins
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.storage.concurrency.at_once import at_once


def join_plans(context: JobContext, opened: OpenedEpoch) -> dict[str, JoinPlan]:
    """Return what an epoch joins of each table that keeps every row, by sink; of those with little to join nothing.

    On a fork nothing is joined: nobody reads its table before the switch.

    Raises: StateCorrupt: the contents of a table cannot be read.
    """
    if opened.timeline.role is not TimelineRole.LIVE or opened.base is None:
        return {}
    bases = opened.base.tables

    def plan(name: str, base: TableContents) -> JoinPlan:
        runs = plan_joins(context.sink(name).files(base))
        slim = tuple(tuple(replace(file, statistics=None) for file in run) for run in runs)
        return JoinPlan(slim, decode_schema(base.schema))

    sinks = [spec.name for spec in context.spec.sinks if spec.mode != "upsert" and spec.name in bases]
    plans = at_once(context.store, lambda name: plan(name, bases[name]), sinks)
    return {name: made for name, made in zip(sinks, plans, strict=True) if made.runs}
