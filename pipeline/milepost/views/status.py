"""The document of a job's health: what runs, how fresh its input is, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.epoch import counted, lasting
from milepost.jobmaster import Condition, JobState, JobVerdict, LogHealth, SourceHealth, Status, TableHealth
from milepost.protocol.landed import SourceBacklog, position_text
from milepost.protocol.records import JobStatus
from milepost.views.badge import grade_meaning, job_badge
from milepost.views.prices import month_cost_text
from milepost.views.static_sources import STATIC_COLUMNS, static_source_cells
from milepost.views.text import (
    checkpoint_link,
    counts,
    failure_text,
    printable,
    show_bytes,
    show_count,
    show_time,
    since_text,
)
from milepost.views.tree import UNKNOWN, Fact, Figure, Link, LinkTarget, Row, Section, Table, Text, View

_MINUTE_MS = 60_000
_POSITION_CHARACTERS = 120
"""A position of many partitions is cut; `--json` has all of it."""


def status_view(status: Status, since_success_ms: int | None = None, *, with_verdict: bool = True) -> View:
    """Return the document of a job's health.

    Args:
        since_success_ms: age of the last success; None: not to be shown.
        with_verdict: whether it has the verdict and the tables, which a page shows separately.
    """
    badge = job_badge(status)
    sections = [Section(facts=tuple(_facts(status, since_success_ms, with_verdict=with_verdict)))]
    if status.tables and with_verdict:
        rows = tuple(_table(name, table) for name, table in status.tables.items())
        sections.append(Section("Tables", tables=(Table(_TABLE_COLUMNS, rows, optional=_TABLE_COLUMNS[4:]),)))
    if status.sources:
        columns = ("source", "objects", "unread", "newest object", "newest event time", "bad records", "age", "path")
        rows = tuple(_source(name, source) for name, source in status.sources.items())
        sections.append(Section("Sources", tables=(Table(columns, rows, optional=columns[6:]),)))
    landed = [_landed(name, source.log) for name, source in (status.sources or {}).items() if source.log is not None]
    if landed:
        sections.append(Section("Landed sources", tables=(Table(_LANDED_COLUMNS, tuple(landed)),)))
    if status.static_sources:
        rows = tuple(_static_sources(status))
        sections.append(Section("Static sources", tables=(Table(STATIC_COLUMNS, rows),)))
    return View(f"job {status.job}", (Text(badge.word, badge.tone),), tuple(sections))


def state_section(state: JobState) -> Section:
    """Return what the manifest alone has of a job."""
    live = next((timeline for timeline in state.timelines if timeline.timeline == state.timeline), None)
    heads = _heads(state.timeline, live.head if live else None, live.pending if live else None)
    return Section(facts=(*_phase(state.job_status, state.waits_for), *heads))


def _phase(phase: str, waits_for: str | None) -> Iterator[Fact]:
    """Yield the phase of a job, unless it is RUNNING: a job that is stale or paused is that too."""
    if phase != JobStatus.RUNNING.value or waits_for:
        yield Fact("job", phase, f"waits for {waits_for}" if waits_for else "")


def _heads(timeline: str | None, head: int | None, pending: int | None, in_flight: str = "") -> Iterator[Fact]:
    yield Fact("head", "none" if head is None else f"checkpoint {head}", f"timeline {timeline or 'main'}")
    yield Fact("in progress", "nothing" if pending is None else f"checkpoint {pending}", in_flight)


def _verdict(verdict: JobVerdict) -> Iterator[Fact]:
    """Yield the answers that a reader of the tables wants first."""
    for question in ("fresh", "complete", "right"):
        finding = getattr(verdict, question)
        yield Fact(question, Text(finding.text, grade_meaning(finding.grade)), since_text(finding.since))


def _facts(status: Status, since_success_ms: int | None, *, with_verdict: bool) -> Iterator[Fact]:
    if status.last_failure is not None:
        failing = since_text(status.since) if status.condition in (Condition.FAILED, Condition.EPOCH_FAILED) else ""
        yield Fact("last failure", failure_text(status.last_failure, status.last_failure_detail), failing)
    if with_verdict and status.verdict is not None:
        yield from _verdict(status.verdict)
    yield from _phase(status.job_status, status.waits_for)
    in_flight = f"{show_bytes(status.in_flight_bytes)} in flight" if status.in_flight_bytes else ""
    yield from _heads(status.timeline, status.head, status.pending, in_flight)
    ago = "" if since_success_ms is None else f"{lasting(since_success_ms)} ago"
    yield Fact("last success", show_time(status.last_success) if status.last_success else "never", ago)
    age = "unknown" if status.lag_ms is None else lasting(status.lag_ms)
    lag = "less than 1 min" if status.lag_ms is not None and status.lag_ms < _MINUTE_MS else age
    yield Fact("lag", lag, "age of the oldest unread object" if status.unread_objects else "")
    unread = "unknown" if status.unread_objects is None else counted(status.unread_objects, "object")
    yield Fact("unread", unread, show_bytes(status.unread_bytes) if status.unread_bytes else "")
    for statement, checkpoint_id in (status.incomplete or {}).items():
        yield Fact("incomplete", f"{statement} does not equal its query before checkpoint {checkpoint_id}")
    if status.month is not None:
        yield Fact("estimate", f"a month costs {month_cost_text(status.month)}")
    if status.frozen is not None:
        yield Fact("frozen", f"until {show_time(status.frozen.until)}", f"by session {status.frozen.session_id}")
    if not status.healthy or status.condition is Condition.NO_INPUT:
        link = Link(LinkTarget.RUNBOOK, (status.condition.value,))
        yield Fact("runbook", Text(status.condition.value, link=link))


_TABLE_COLUMNS = ("table", "state", "rows", "late", "rules met", "readers see")


def _table(name: str, table: TableHealth) -> Row:
    rules = UNKNOWN if table.rules is None else Figure(f"{table.rules_met} of {table.rules}")
    shows = Text("-") if table.shows is None else checkpoint_link(table.shows)
    state = Text(table.state.word, grade_meaning(table.state.grade))
    rows, late = counts(table.rows, table.late_rows)
    rows = rows if table.rows_exact or not table.rows else Figure(f"at most {rows}")
    return Row((name, state, rows, late, rules, shows), table.waits or "")


def _source(name: str, source: SourceHealth) -> Row:
    remarks = [source.overdue or "", source.no_match or "", source.not_remembered or ""]
    remarks += [f"{counted(source.settling, 'object')} may still be written"] if source.settling else []
    remarks += [source.skipped_at_start or ""]
    bad, records = source.bad_names, source.bad_records
    remarks += [f"{counted(bad.count, 'object')} left out for their names, such as {bad.first[0]}"] if bad.count else []
    remarks += [f"{show_count(records.count)} bad records are of the head"] if records.count else []
    if (held := source.quarantined).count:
        remarks.append(f"{counted(held.count, 'quarantined object')}, such as {printable(held.first[0])}")
    remarks += ["idle: it does not hold the watermark back"] if source.idle else []
    remarks += [f"remembered whole from {show_time(source.horizon)} on"] if source.horizon else []
    times = (show_time(source.newest_object), show_time(source.newest_event_time))
    age = UNKNOWN if source.newest_object_age_ms is None else Figure(lasting(source.newest_object_age_ms))
    cells = (name, *counts(source.objects, source.unread_objects), *times, show_count(records.total), age, source.path)
    return Row(cells, ", ".join(filter(None, remarks)))


def _behind(backlog: SourceBacklog) -> str:
    """Return what was not landed: `12 offsets`, or `3 marks, for 2 min` where the age is known."""
    count = counted(backlog.count, backlog.unit)
    return count if backlog.age_ms is None else f"{count}, for {lasting(backlog.age_ms)}"


_LANDED_COLUMNS = (
    "source", "rows", "last landing", "not landed", "unread rows", "unread bytes", "unread records", "oldest unread"
)  # fmt: skip


def _landed(name: str, log: LogHealth) -> Row:
    """Return how far a source is landed, and how far that is processed.

    "not landed" is as of the last landing: no report calls the external system.
    """
    if not log.records:
        remark = f"nothing was landed yet{_failed(log)}"
        return Row((name, *(UNKNOWN for _ in _LANDED_COLUMNS[1:])), remark)
    behind = UNKNOWN if log.backlog is None else _behind(log.backlog)
    oldest = UNKNOWN if log.oldest_unread is None else Figure(f"{lasting(log.lag_ms)} ago")
    unread = (show_count(log.unread_rows), show_bytes(log.unread_bytes), show_count(log.unread_records))
    landed = (show_count(log.rows), show_time(log.landed_at), behind)
    processed = "nothing" if log.processed is None else f"up to {position_text(log.processed, _POSITION_CHARACTERS)}"
    remark = f"landed up to {position_text(log.position, _POSITION_CHARACTERS)}, processed {processed}"
    if log.held_by is not None:
        remark += f"; retained from record {log.retained_from}, by {log.held_by}"
    if log.gaps:
        remark += f"; {counted(log.gaps, 'gap')} of lost data"
    if log.voids:
        remark += f"; {counted(log.void_records, 'void record')} of false rows"
    return Row((name, *landed, *unread, oldest), f"{remark}{_failed(log)}")


def _failed(log: LogHealth) -> str:
    """Return why the last landing failed, to follow a remark; "": it did not."""
    if log.failed is None:
        return ""
    return f"; failed at {show_time(log.failed_at)}: {failure_text(log.failed.error, log.failed.message)}"


def _static_sources(status: Status) -> Iterator[Row]:
    for name, source in status.static_sources.items():
        remarks = ["its path names other versions now: the next epoch reads them"] if source.changed else []
        remarks += ["the next epoch is refused"] if source.refused else []
        unknown = (UNKNOWN, UNKNOWN, "-", UNKNOWN, UNKNOWN)
        held = unknown if source.held is None else static_source_cells(source.held)
        remarks += ["nothing was looked up yet"] if source.held is None and not remarks else []
        yield Row((name, *held), ", ".join(remarks))
