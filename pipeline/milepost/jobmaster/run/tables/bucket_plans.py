"""Plan which bucket files of upsert tables an epoch's subtasks read and rewrite."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobspec.job import SinkSpec
from milepost.protocol.records import TimelineRole
from milepost.sinks.buckets import BucketPlan
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import decode_schema


def plan_buckets(context: JobContext, opened: OpenedEpoch) -> dict[str, BucketPlan]:
    """Return how an epoch writes each bucketed table, by sink.

    On a fork the table shows another timeline. The fork's epochs therefore stage changes only, and the last of them
    writes all buckets that changed since the fork point. It does so before the switch, where a failure costs nothing.

    Raises: InvalidRequest: a table does not show the base checkpoint, or a foreign commit changed our rows.
    """
    live = opened.timeline.role is TimelineRole.LIVE
    gated = {suite.sink for suite in context.spec.quality}
    reads_all = not any(source.pending_objects for source in opened.record.sources)
    bases = opened.base.tables if opened.base is not None else {}

    def plan(spec: SinkSpec) -> BucketPlan:
        base = bases.get(spec.name)
        waits = not live or opened.waits(spec.name)
        return BucketPlan(
            files=() if spec.name in opened.filled else context.sink(spec.name).bucket_files(base, waits=waits),
            schema=None if base is None else decode_schema(base.schema),
            count=spec.buckets,
            rewrites=live or reads_all,
            keeps_changes=spec.name in gated,
        )

    sinks = [spec for spec in context.spec.sinks if spec.by_buckets]
    plans = parallel_map(context.store, plan, sinks)
    return {spec.name: bucket_plan for spec, bucket_plan in zip(sinks, plans, strict=True)}
