"""Plan which small files an epoch's subtasks join or compact while they stage new rows."""

from __future__ import annotations

from dataclasses import replace

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobspec.job import SinkSpec
from milepost.protocol.records import TimelineRole
from milepost.sinks.staging import JoinPlan, MaintenancePlan, plan_compaction, plan_joins
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import decode_schema


def plan_maintenance(context: JobContext, opened: OpenedEpoch) -> dict[str, MaintenancePlan]:
    """Return what an epoch joins or compacts, by sink. A table with few files has no plan.

    The plan depends only on the contents at the base checkpoint, so a second attempt makes the same plan. Bucketed
    tables and tables that the epoch rewrites completely have no small files. On a fork there is no maintenance, because
    its table has no readers before the switch.

    Raises: StateCorrupt: the contents of a table cannot be read.
    """
    if opened.timeline.role is not TimelineRole.LIVE or opened.base is None:
        return {}
    bases = opened.base.tables

    def plan(spec: SinkSpec) -> MaintenancePlan | None:
        base = bases[spec.name]
        files, schema = context.sink(spec.name).files(base), decode_schema(base.schema)
        if spec.mode == "upsert":
            return plan_compaction(files, schema)
        slim = tuple(tuple(replace(file, statistics=None) for file in run) for run in plan_joins(files))
        return JoinPlan(slim, schema) if slim else None

    sinks = [
        spec
        for spec in context.spec.sinks
        if spec.name in bases and not spec.by_buckets and spec.name not in opened.filled
    ]
    plans = zip(sinks, parallel_map(context.store, plan, sinks), strict=True)
    return {spec.name: maintenance for spec, maintenance in plans if maintenance is not None}
