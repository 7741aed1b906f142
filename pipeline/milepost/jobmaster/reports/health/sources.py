"""Report how fresh a job's sources are, and what its head has read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import (
    NAMED_BAD_NAMES,
    CheckpointMetadata,
    SkippedAtStart,
    SourceSnapshot,
    iso_ms,
    watermark_text,
)
from milepost.errors import CheckpointError, InputVoided, InvalidRequest, SourceChanged, SourceReplaced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import (
    SourcePlans,
    no_match,
    overdue,
    skipped_at_start_note,
    unknown_objects_note,
)
from milepost.jobmaster.job.input.unread_input import unread_input
from milepost.jobmaster.job.landing_failures import last_failure
from milepost.jobmaster.reports.health.log_holders import log_holders
from milepost.jobmaster.reports.health.since import Since, since
from milepost.language.times import in_ms
from milepost.protocol.landed import FailureRecord, LandingFailure, SourceBacklog, live_sequences, totals_read
from milepost.protocol.records import CheckpointFailureReason, ManifestState
from milepost.sources import BadInput
from milepost.sources.planning import SourcePlan
from milepost.storage.concurrency import parallel_map


@dataclass(frozen=True, slots=True)
class LeftOutObjects:
    """Objects that no epoch reads: their count and the names of the first of them."""

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadRecords:
    """Unreadable records in the dead letters: of the head's epoch, and in total up to it."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class LogHealth:
    """The log of a landed source, how much of it the head has not read, and how far landing was behind.

    Attributes:
        records, rows, bytes: landed since the log began. records: also the sequence of the newest record; 0: nothing
            was landed.
        retained_from: sequence of the oldest retained record. held_by: why it is not deleted; None: the log is
            empty, or the job has no checkpoint.
        oldest_unread: when the oldest unread record with rows was landed; None: there is none.
        lag_ms: how long ago that was; 0: nothing is unread.
        landed_at: when the newest record was appended. position: of the external system, after it.
        processed: position of the external system up to which the head has processed the log; None: it has read none.
        backlog: what the external system had after `position` when the newest record was read; omitted where the
            source cannot say.
        gaps: records of the whole log by which it continues after lost data.
        voids: records of the whole log that say that records before them were false. void_records: how many records
            are void.
        failed, failed_at: why and when the last landing failed; omitted if it succeeded.
    """

    records: int
    rows: int
    bytes: int
    unread_records: int
    unread_rows: int
    unread_bytes: int
    oldest_unread: str | None
    lag_ms: int
    landed_at: str | None
    position: Any
    processed: Any
    retained_from: int
    held_by: str | None
    gaps: int
    voids: int
    void_records: int
    backlog: OmitNone[SourceBacklog] = None
    failed: OmitNone[LandingFailure] = None
    failed_at: OmitNone[str] = None


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How fresh a source is.

    Attributes:
        settling: count of objects that may still be written. newest_object: when the newest object landed.
        event_time: its column; None: it has none. newest_event_time: the newest one read.
        no_match: why its path matches no object; None if it matches. never_any: whether it has never matched one.
        overdue: since when no object landed, if longer than expected; else None. overdue_since: when that became too
            long; omitted if it is not, or if none ever landed.
        horizon: objects modified before this time may be forgotten; None: none is.
        not_remembered: objects left out because they may have been read and forgotten; None: none.
        idle: whether operators with other inputs did not wait for it in the head's epoch (`idle_timeout`).
        log: of a landed source; omitted for files.
        bad_names: objects that are left out for their names. quarantined: also those that were read before.
        skipped_at_start: how many objects `start: latest` skips, and the newest of them; omitted if it skips none.
    """

    path: str
    objects: int
    unread_objects: int
    settling: int
    newest_object: str | None
    newest_object_age_ms: int | None
    event_time: str | None
    newest_event_time: str | None
    event_time_age_ms: int | None
    no_match: str | None
    never_any: bool
    bad_names: LeftOutObjects
    quarantined: LeftOutObjects
    bad_records: BadRecords
    overdue: str | None
    horizon: str | None
    not_remembered: str | None
    idle: bool
    log: OmitNone[LogHealth] = None
    skipped_at_start: OmitNone[str] = None
    overdue_since: OmitNone[Since] = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unread input, its age, and the freshness of each source.

    An error that prevents planning the next epoch is reported in `source_changed` or `bad_name`. All other fields are
    then None.
    """

    unread_objects: int | None = None
    unread_bytes: int | None = None
    lag_ms: int | None = None
    source_changed: str | None = None
    bad_name: str | None = None
    sources: Mapping[str, SourceHealth] | None = None


def backlog(context: JobContext, state: ManifestState | None, base: CheckpointMetadata | None, now_ms: int) -> Backlog:
    """Return the input that the head has not read. Lists each source once."""
    try:
        plans = unread_input(context, base, () if state is None else state.quarantined)
    except (SourceChanged, SourceReplaced, InputVoided) as error:
        return Backlog(source_changed=_one_line(error))
    except InvalidRequest as error:
        if error.details.get("reason") == CheckpointFailureReason.SPEC_REFUSED.value:
            return Backlog()  # `spec_refused` of the status says why
        if "names" not in error.details:
            raise
        return Backlog(bad_name=_one_line(error))
    oldest = min((plan.oldest_new_ms for plan in plans.values() if plan.oldest_new_ms is not None), default=now_ms)
    return Backlog(
        unread_objects=sum(plan.unread for plan in plans.values()),
        unread_bytes=sum(sum(obj.size for obj in plan.objects) + plan.pending_bytes for plan in plans.values()),
        lag_ms=max(0, now_ms - oldest),
        sources=_sources(context, state, base, plans, now_ms),
    )


def stale(job: str, lag_ms: int | None, sources: Mapping[str, SourceHealth], max_lag_ms: int) -> str | None:
    """Format why a job's input is older than the bound, with the next step; None if it is not.

    Only sources with event time are checked, or all if none has it: a source without event time has no expected pace.
    """
    if lag_ms is not None and lag_ms > max_lag_ms:
        return f"behind: milepost run {job} --until-caught-up"
    timed = {name: source for name, source in sources.items() if source.event_time is not None}
    for name, source in (timed or sources).items():
        if source.newest_object_age_ms is not None and source.newest_object_age_ms > max_lag_ms:
            return f"source {name}: nothing has landed since {source.newest_object}: see what writes {source.path}"
        if source.event_time_age_ms is not None and source.event_time_age_ms > max_lag_ms:
            return f"source {name}: its newest event time is {source.newest_event_time}: see what writes {source.path}"
    return None


def overdue_source(sources: Mapping[str, SourceHealth]) -> str | None:
    """Format the first overdue source, with the next step; None if none is overdue."""
    first = next(((name, source.overdue) for name, source in sources.items() if source.overdue is not None), None)
    return None if first is None else f"source {first[0]}: {first[1]}: see what writes it"


def overdue_since(sources: Mapping[str, SourceHealth]) -> Since | None:
    """Return since when the source that `overdue_source` names is overdue; None: unknown, or none is overdue."""
    return next((source.overdue_since for source in sources.values() if source.overdue is not None), None)


def failed_landing(job: str, sources: Mapping[str, SourceHealth]) -> str | None:
    """Format the first source with a failed last landing, and the next step; None: none failed."""
    for name, source in sources.items():
        if source.log is not None and source.log.failed is not None:
            failed, command = source.log.failed, f"milepost land {job} --source {name}"
            step = failed.hint or f"fix the cause, then: {command}"
            if failed.may_pass:
                step = f"the next landing tries again; to try now: {command}"
            return f"source {name}: the last landing failed at {source.log.failed_at} ({failed.error}): {step}"
    return None


def missing_input(sources: Mapping[str, SourceHealth]) -> str | None:
    """Format the first source that never had an object, with the next step; None: each has had one."""
    for name, source in sources.items():
        if source.never_any:
            step = "land objects there, or correct the path" if source.log is None else "check which data it has"
            return f"source {name}: {source.no_match}: {step}"
    return None


def _sources(
    context: JobContext, state: ManifestState | None, base: CheckpointMetadata | None, plans: SourcePlans, now_ms: int
) -> dict[str, SourceHealth]:
    health, holders = {}, {} if state is None else log_holders(context, state)
    failures = _landing_failures(context, plans)
    for name, plan in plans.items():
        spec = context.spec.sources[name]
        snapshot = base.sources.get(name) if base is not None else None
        bad = snapshot.bad if snapshot is not None else BadInput()
        newest_event_us = snapshot.newest_event_us if snapshot is not None else None
        health[name] = SourceHealth(
            path=spec.location,
            objects=plan.listed,
            unread_objects=plan.unread,
            settling=plan.settling,
            newest_object=None if plan.newest_ms is None else iso_ms(plan.newest_ms),
            newest_object_age_ms=None if plan.newest_ms is None else max(0, now_ms - plan.newest_ms),
            event_time=spec.time_column,
            newest_event_time=watermark_text(newest_event_us),
            event_time_age_ms=None if newest_event_us is None else max(0, now_ms - newest_event_us // 1000),
            no_match=None if plan.listed else no_match(context, name, plan),
            never_any=not plan.listed and plan.newest_seen_ms is None,
            bad_names=LeftOutObjects(len(plan.bad_names), tuple(bad.name for bad in plan.bad_names[:NAMED_BAD_NAMES])),
            bad_records=BadRecords(bad.records, bad.total),
            overdue=overdue(context, name, plan) if plan.overdue else None,
            horizon=None if snapshot is None or snapshot.horizon_ms is None else iso_ms(snapshot.horizon_ms),
            not_remembered=unknown_objects_note(plan) if plan.unknown else None,
            quarantined=_quarantined(state, name),
            idle=snapshot is not None and snapshot.idle,
            log=_log_health(context, name, plan, holders.get(name), failures.get(name), now_ms),
            skipped_at_start=skipped_at_start(snapshot, plan),
            overdue_since=_overdue_since(plan, spec.expect_every, now_ms),
        )
    return health


def _overdue_since(plan: SourcePlan, expect_every: timedelta | None, now_ms: int) -> Since | None:
    if not plan.overdue or plan.newest_seen_ms is None or expect_every is None:
        return None
    return since(now_ms, plan.newest_seen_ms + in_ms(expect_every))


def _quarantined(state: ManifestState | None, source: str) -> LeftOutObjects:
    """Return the quarantined objects of a source, also those that were read before."""
    keys = [] if state is None else [one.key for one in state.quarantined if one.source == source]
    return LeftOutObjects(len(keys), tuple(keys[:NAMED_BAD_NAMES]))


def skipped_at_start(snapshot: SourceSnapshot | None, plan: SourcePlan) -> str | None:
    """Format what `start: latest` has skipped, or will skip in the source's first epoch; None: nothing."""
    skipped = SkippedAtStart.of(plan.baseline) if snapshot is None else snapshot.at_start
    return None if skipped is None else skipped_at_start_note(skipped)


def _landing_failures(context: JobContext, plans: SourcePlans) -> dict[str, FailureRecord]:
    """Return why the last landing failed, by landed source."""

    def read(name: str) -> FailureRecord | None:
        log = plans[name].log
        return None if log is None else last_failure(context.source_log(name), log.newest)

    failures = zip(plans, parallel_map(context.store, read, list(plans)), strict=True)
    return {name: failure for name, failure in failures if failure is not None}


def _log_health(
    context: JobContext,
    name: str,
    plan: SourcePlan,
    held_by: str | None,
    failure: FailureRecord | None,
    now_ms: int,
) -> LogHealth | None:
    """Return the health of a landed source's log; None: the source is files."""
    if plan.log is None:
        return None
    newest, position = plan.log.newest, plan.log.position
    failed = None if failure is None else failure.failure_of(name)
    failed_at = None if failure is None else iso_ms(failure.failed_at_ms)
    if newest is None:
        return LogHealth(
            records=0,
            rows=0,
            bytes=0,
            unread_records=0,
            unread_rows=0,
            unread_bytes=0,
            oldest_unread=None,
            lag_ms=0,
            landed_at=None,
            position=None,
            processed=None,
            retained_from=1,
            held_by=None,
            gaps=0,
            voids=0,
            void_records=0,
            failed=failed,
            failed_at=failed_at,
        )
    oldest_ms, floor = plan.oldest_new_ms, context.source_log(name).floor
    return LogHealth(
        records=newest.sequence,
        rows=newest.total_rows,
        bytes=newest.total_bytes,
        unread_records=len(live_sequences(1 if position is None else position.next, newest.sequence, newest.voids)),
        unread_rows=newest.total_rows - totals_read(position, newest.voids)[0],
        unread_bytes=plan.pending_bytes,
        oldest_unread=None if oldest_ms is None else iso_ms(oldest_ms),
        lag_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        landed_at=iso_ms(newest.landed_at_ms),
        position=newest.end,
        processed=None if position is None else position.at,
        retained_from=newest.first if floor is None else floor.next,
        held_by=held_by,
        backlog=newest.backlog,
        gaps=newest.total_gaps,
        voids=len(newest.voids),
        void_records=sum(span.end - span.first for span in newest.voids),
        failed=failed,
        failed_at=failed_at,
    )


def _one_line(error: CheckpointError) -> str:
    """Format the error as a next step in one line: the problem, its first object, and the hint."""
    problem, *details = error.message.splitlines()
    first_object = next((f" ({line.strip()})" for line in details if line.startswith("  ")), "")
    return f"{problem.rstrip('.')}{first_object}: {error.hint}"
