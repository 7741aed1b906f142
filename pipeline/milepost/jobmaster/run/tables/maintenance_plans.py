"""Maintenance plans say what an epoch's subtasks make of the files of its tables, beside the rows that they stage."""

from __future__ import annotations

from dataclasses import replace

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobspec.job.spec import SinkSpec
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.sinks.records.committables import decode_schema
from milepost.sinks.staging.compaction import MaintenancePlan, plan_compaction
from milepost.sinks.staging.small_files import JoinPlan, plan_joins
from milepost.storage.concurrency.parallel_map import parallel_map


def maintenance_plans(context: JobContext, opened: OpenedEpoch) -> dict[str, MaintenancePlan]:
    """Return what an epoch joins or compacts of each table, by sink; nothing of those with few files.

    It follows from the contents of the base checkpoint alone, so a second run of the epoch does the same. Tables that
    are buckets have no such files; nor has one that the epoch writes anew. On a fork nothing is maintained: nobody
    reads its table before the switch.

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

    concerned = [spec for spec in context.spec.sinks if spec.name in bases]
    sinks = [spec for spec in concerned if not spec.by_buckets and spec.name not in opened.filled]
    plans = parallel_map(context.store, plan, sinks)
    return {spec.name: made for spec, made in zip(sinks, plans, strict=True) if made is not None}
