"""Bucket plans say on which files an epoch's subtasks build the tables of the latest rows."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobspec.job.spec import SinkSpec
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.sinks.records.committables import decode_schema
from milepost.sinks.staging.table_buckets import BucketPlan
from milepost.storage.concurrency.parallel_map import parallel_map


def bucket_plans(context: JobContext, opened: OpenedEpoch) -> dict[str, BucketPlan]:
    """Return how an epoch writes each table that is made of buckets, by sink.

    On a fork the table is elsewhere: its epochs stage changes, and the one that leaves nothing to replay writes the
    buckets that are dirty since the fork point, before the switch: what can fail of that fails there.

    Raises: InvalidRequest: a table is not where this lineage left it, or others changed our rows.
    """
    live = opened.timeline.role is TimelineRole.LIVE
    judged = {suite.sink for suite in context.spec.quality}
    leaves_nothing = not any(source.pending_objects for source in opened.record.sources)
    bases = opened.base.tables if opened.base is not None else {}

    def plan(spec: SinkSpec) -> BucketPlan:
        base = bases.get(spec.name)
        waits = not live or opened.waits(spec.name)
        return BucketPlan(
            files=() if spec.name in opened.filled else context.sink(spec.name).bucket_files(base, waits=waits),
            schema=None if base is None else decode_schema(base.schema),
            count=spec.buckets,
            rewrites=live or leaves_nothing,
            keeps_changes=spec.name in judged,
        )

    sinks = [spec for spec in context.spec.sinks if spec.by_buckets]
    return {spec.name: made for spec, made in zip(sinks, parallel_map(context.store, plan, sinks), strict=True)}
