"""Source health tells how fresh a job's input is, beside what its head has delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.epoch.iso_times import iso_ms, watermark_text
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import NAMED_BAD_NAMES
from milepost.errors import CheckpointError, InvalidRequest, SourceChanged
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_input import (
    SourcePlans,
    empty_objects_note,
    left_out,
    no_match,
    overdue,
    plan_sources,
    plan_stream,
    unknown_objects_note,
)
from milepost.jobspec.load.load import LoadedJob
from milepost.sources.bad_input import BadInput


@dataclass(frozen=True, slots=True)
class BadNames:
    """Objects that are left out for their names: how many, and the first of them."""

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadRecords:
    """Records that could not be read and are in the dead letters: of the head's epoch, and of all up to it."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How fresh a source is.

    Attributes:
        settling: objects that may still be written. newest_object: when it landed.
        event_time: its column; None: it has none. newest_event_time: that was delivered.
        no_match: why its path names nothing; None when it does. never_any: nor has it ever.
        overdue: that nothing lands, where something is expected; None where it does, or is not.
        horizon: what was modified before may have been forgotten; None: nothing was.
        not_remembered: objects that are left out, because nobody knows whether they were read; None: none is.
        idle: whether operators that read others too did not wait for it in the head's epoch (`idle_timeout`).
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
    bad_names: BadNames
    bad_records: BadRecords
    overdue: str | None
    horizon: str | None
    not_remembered: str | None
    idle: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is unread, since when, and how fresh each source is.

    What keeps the next epoch from being planned is a finding here, not an error: `source_changed` or `bad_name` says
    it, and what would have followed from the plan is None.
    """

    unread_objects: int | None = None
    unread_bytes: int | None = None
    lag_ms: int | None = None
    source_changed: str | None = None
    bad_name: str | None = None
    sources: Mapping[str, SourceHealth] | None = None


def backlog(context: JobContext, base: CheckpointMetadata | None, now_ms: int) -> Backlog:
    """Return what of a job's input its head has not read. Lists each source once."""
    try:
        plans = plan_sources(context, base)
    except SourceChanged as error:
        return Backlog(source_changed=_one_line(error))
    except InvalidRequest as error:
        if "names" not in error.details:
            raise
        return Backlog(bad_name=_one_line(error))
    oldest = min((plan.oldest_new_ms for plan in plans.values() if plan.oldest_new_ms is not None), default=now_ms)
    return Backlog(
        unread_objects=sum(plan.unread for plan in plans.values()),
        unread_bytes=sum(sum(obj.size for obj in plan.objects) + plan.pending_bytes for plan in plans.values()),
        lag_ms=max(0, now_ms - oldest),
        sources=_sources(context, base, plans, now_ms),
    )


def stale(job: str, lag_ms: int | None, sources: Mapping[str, SourceHealth], max_lag_ms: int) -> str | None:
    """Return why a job's input is older than it may be, and what to do; None when none is.

    Judged are the sources with event time; where there is none, all: one without lands when it likes.
    """
    if lag_ms is not None and lag_ms > max_lag_ms:
        return f"behind: milepost run {job} --until-caught-up"
    timed = {name: one for name, one in sources.items() if one.event_time is not None}
    for name, one in (timed or sources).items():
        if one.newest_object_age_ms is not None and one.newest_object_age_ms > max_lag_ms:
            return f"source {name}: nothing has landed since {one.newest_object}: see what writes {one.path}"
        if one.event_time_age_ms is not None and one.event_time_age_ms > max_lag_ms:
            return f"source {name}: its newest event time is {one.newest_event_time}: see what writes {one.path}"
    return None


def overdue_source(sources: Mapping[str, SourceHealth]) -> str | None:
    """Return of which source something is expected and nothing lands, and what to do; None when of none."""
    first = next(((name, one.overdue) for name, one in sources.items() if one.overdue is not None), None)
    return None if first is None else f"source {first[0]}: {first[1]}: see what writes it"


def missing_input(sources: Mapping[str, SourceHealth]) -> str | None:
    """Return which source never had an object, and what to do: its path may be a slip. None: each has had one."""
    first = next(((name, one.no_match) for name, one in sources.items() if one.never_any), None)
    return None if first is None else f"source {first[0]}: {first[1]}: land objects there, or correct the path"


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What a source's path names.

    Attributes:
        ok: an epoch could be planned. suspicious: although it may be right, somebody should look: nothing to read, or
            not everything.
    """

    name: str
    ok: bool
    suspicious: bool
    detail: str


def source_checks(job: LoadedJob) -> Iterator[SourceCheck]:
    """Yield one check per source, in name order; one that cannot be listed or planned is among them."""
    context = JobContext(job)
    for name in sorted(context.spec.sources):
        try:
            plan = plan_stream(context, None, name)
        except CheckpointError as error:
            yield SourceCheck(name, False, True, error.full_message())
            continue
        notes = [f"{plan.listed} object(s) match" if plan.listed else no_match(context, name, plan)]
        notes += [left_out(plan)] if plan.bad_names else []
        notes += [empty_objects_note(plan.empty)] if plan.empty and plan.listed else []
        yield SourceCheck(name, True, not plan.listed or bool(plan.bad_names or plan.empty), "; ".join(notes))


def _sources(
    context: JobContext, base: CheckpointMetadata | None, plans: SourcePlans, now_ms: int
) -> dict[str, SourceHealth]:
    found = {}
    for name, plan in plans.items():
        spec = context.spec.sources[name]
        delivered = base.sources.get(name) if base is not None else None
        bad = delivered.bad if delivered is not None else BadInput()
        newest_event_us = delivered.newest_event_us if delivered is not None else None
        found[name] = SourceHealth(
            path=spec.path,
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
            bad_names=BadNames(len(plan.bad_names), tuple(bad.name for bad in plan.bad_names[:NAMED_BAD_NAMES])),
            bad_records=BadRecords(bad.records, bad.total),
            overdue=overdue(context, name, plan) if plan.overdue else None,
            horizon=None if delivered is None or delivered.horizon_ms is None else iso_ms(delivered.horizon_ms),
            not_remembered=unknown_objects_note(plan) if plan.unknown else None,
            idle=delivered is not None and delivered.idle,
        )
    return found


def _one_line(error: SourceChanged | InvalidRequest) -> str:
    """Return the error as a next step: what is wrong, with the first object that it names, and what to do about it."""
    wrong, *more = error.message.splitlines()
    named = next((f" ({line.strip()})" for line in more if line.startswith("  ")), "")
    return f"{wrong.rstrip('.')}{named}: {error.hint}"
