"""Count the input that a checkpoint has not read, for reports.

Of a landed source this reads one or two records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import SourcePlans
from milepost.jobmaster.job.input.next_input import plan_stream
from milepost.jobmaster.job.input.opened_log import open_log
from milepost.language.times import in_ms
from milepost.protocol.landed import totals_read
from milepost.protocol.records import QuarantinedObject
from milepost.sources.planning import LogInput, SourcePlan, plan_log
from milepost.storage.concurrency import parallel_map


def unread_input(
    context: JobContext, base: CheckpointMetadata | None, quarantined: Sequence[QuarantinedObject]
) -> SourcePlans:
    """Return a plan of every source but static ones, in name order. Raises: as `plan_sources`.

    All unread input of a landed source is pending in its plan, which no epoch can use.
    """
    names = sorted(context.spec.streams)

    def plan(name: str) -> SourcePlan:
        if name in context.spec.landed:
            return _unread_log(context, base, name)
        return plan_stream(context, base, name, quarantined)

    return dict(zip(names, parallel_map(context.store, plan, names), strict=True))


def _unread_log(context: JobContext, base: CheckpointMetadata | None, name: str) -> SourcePlan:
    spec, (log, position, newest) = context.spec.landed[name], open_log(context, base, name)
    expect_every_ms = None if spec.expect_every is None else in_ms(spec.expect_every)
    now_ms = 0 if expect_every_ms is None else context.store.clock_ms()
    plan = plan_log(LogInput(position, None if newest is None else newest.record, ()), now_ms, expect_every_ms)
    if newest is None:
        return plan
    rows, size, objects = totals_read(position, newest.record.voids)
    oldest = log.first_reaching(rows + 1, position, newest)
    return replace(
        plan,
        pending_objects=newest.record.total_objects - objects,
        pending_bytes=newest.record.total_bytes - size,
        oldest_new_ms=None if oldest is None else oldest.record.landed_at_ms,
    )
