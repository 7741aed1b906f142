"""Plan what one epoch reads of a landed source, from its log alone, and cut a plan of any source to fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from milepost.protocol.landed import LogPosition, LogRecord, RecordLimits, StoredRecord, totals_read, within_limits
from milepost.sources.contract import SourceObject
from milepost.sources.planning.plan import LogInput, SourcePlan


def plan_log(log: LogInput, now_ms: int = 0, expect_every_ms: int | None = None) -> SourcePlan:
    """Return the plan of an epoch that reads these records.

    Args:
        now_ms: the job store's clock. expect_every_ms: the source is overdue if no row lands for longer; None: never.
    """
    tail, last = log.newest, log.records[-1].record if log.records else None
    objects = tuple(obj for stored in log.records for obj in planned_objects(stored))
    rows_at_ms = None if tail is None else tail.rows_at_ms
    return SourcePlan(
        objects=objects,
        baseline=(),
        pending_objects=0 if tail is None or last is None else tail.total_objects - last.total_objects,
        pending_bytes=0 if tail is None or last is None else tail.total_bytes - last.total_bytes,
        oldest_new_ms=min((obj.last_modified_ms for obj in objects), default=None),
        settling=0,
        settles_in_ms=0,
        skipped_hidden=0,
        empty=(),
        skipped_before_start=0,
        ignored_changes=0,
        unknown=(),
        bad_names=(),
        changed=(),
        listed=0 if tail is None else tail.total_objects,
        newest_ms=rows_at_ms,
        newest_seen_ms=rows_at_ms,
        overdue=expect_every_ms is not None and (rows_at_ms is None or now_ms - rows_at_ms > expect_every_ms),
        forgets=None,
        log=log,
    )


def planned_objects(stored: StoredRecord) -> Iterator[SourceObject]:
    """Yield the objects of a record, or the data files that it refers to."""
    landed_ms = stored.record.landed_at_ms
    for key, version, size in stored.record.versions():
        yield SourceObject(key, version, size, landed_ms, landed_ms)


def has_new_rows(position: LogPosition | None, newest: LogRecord | None) -> bool:
    """Return whether a record after a position has rows and is not void. Records without rows start no epoch."""
    return newest is not None and newest.total_rows > totals_read(position, newest.voids)[0]


def cut_to_bytes(plan: SourcePlan, limit: int, *, at_least_one: bool) -> SourcePlan:
    """Return a plan of the first objects, or records of a log, of at most `limit` bytes. The rest is left for later.

    Args:
        at_least_one: take the first object or record even if it is larger.
    """
    if plan.log is not None:
        records = within_limits(plan.log.records, RecordLimits(len(plan.log.records), max_bytes=limit))
        if not at_least_one and sum(stored.record.bytes for stored in records) > limit:
            records = ()
        cut = plan_log(replace(plan.log, records=records))
        pending = len(plan.objects) + plan.pending_objects - len(cut.objects)
        left = sum(obj.size for obj in plan.objects) + plan.pending_bytes - sum(obj.size for obj in cut.objects)
        return replace(
            cut,
            pending_objects=pending,
            pending_bytes=left,
            oldest_new_ms=plan.oldest_new_ms,
            overdue=plan.overdue,
        )
    count = total = 0
    for obj in plan.objects:
        total += obj.size
        if total > limit and not (at_least_one and count == 0):
            break
        count += 1
    postponed = plan.objects[count:]
    return replace(
        plan,
        objects=plan.objects[:count],
        forgets=plan.forgets if count else None,
        pending_objects=plan.pending_objects + len(postponed),
        pending_bytes=plan.pending_bytes + sum(obj.size for obj in postponed),
    )
