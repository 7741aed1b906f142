"""Plan and approve a gap, so that a log continues after lost data (L7).

A plan opens the external system and changes nothing. An approval is valid while the newest record of the log is the one
that the plan named. It appends one record; the next landing reads and acknowledges data.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from milepost.epoch import counted, iso_ms
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.landing.approvals import (
    REASON_CHARACTERS,
    append_approved,
    lost_after,
    newest_record,
    open_as_landed,
    outdated,
    record_of_approval,
    require_unmoved,
)
from milepost.jobmaster.landing.lost_positions import (
    lost_hints,
    named_positions,
    reason_of_loss,
)
from milepost.language import start_time_ms
from milepost.protocol.landed import (
    Gap,
    LogRecord,
    Position,
    SourceBacklog,
    StoredRecord,
    gap_record,
    position_changes,
    position_text,
)
from milepost.sources.landed import LandedSource, PassedFiles, ResumableSource, stored_position

_WHAT = "gap"
"""The record to approve, for messages."""


@dataclass(frozen=True, slots=True)
class ApprovedGap:
    """A gap that was planned, and the record that it follows.

    Attributes:
        sequence, digest: of the newest record of the log. end: where the log continues.
        behind, backlog: what was left to land after `end` then, as in a record.
        passed: the data files that the gap passes, as text; "": the source does not count them.
    """

    source: str
    sequence: int
    digest: str
    end: Position
    behind: tuple[str, ...] = ()
    backlog: SourceBacklog | None = None
    passed: str = ""


@dataclass(frozen=True, slots=True)
class GapPlan:
    """What a gap would pass over.

    Attributes:
        start: the end of the log. changes: what differs between `start` and where the log would continue.
        reason: why the data is lost, from the source. text: the plan, one line each.
    """

    job: str
    approved: ApprovedGap
    start: Position
    changes: tuple[str, ...]
    reason: str
    text: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppendedGap:
    """A gap in a log.

    Attributes:
        sequence: of its record. start, end: positions between which nothing was landed.
    """

    job: str
    source: str
    sequence: int
    start: Position
    end: Position
    reason: str
    approved_by: str
    next_step: str
    outcome: str = "appended"


class Gaps:
    """The use cases of one job that let a log continue after lost data."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def plan(self, source: str, resume_from: str) -> GapPlan:
        """Return what a gap would pass over. Reads the external system, and changes nothing.

        Args:
            source: a landed source. resume_from: earliest, latest, or a time in ISO 8601.
        Raises:
            InvalidRequest: nothing is lost, or the source cannot continue from there. NotFound: no such source or log.
            SourceReplaced, SourceWentBack: a gap does not help. SourceUnreachable: the external system failed.
            JobNotRunnable: the job has ended. StateCorrupt: the log is not the one that the job has read.
        """
        where, newest = _where(source, resume_from), newest_record(self._context, source)
        start = newest.record.end
        opened = open_as_landed(self._context, source, newest)
        if not isinstance(opened, ResumableSource):
            form = self._context.spec.landed[source].format
            raise InvalidRequest(
                f"source {source}: format {form} has no position from which it could continue after lost data. Nothing "
                "was changed.",
                hint="give the source another name in the spec, which begins a log of its own",
                source=source,
            )
        with lost_hints(self._context.spec.name, source, opened), named_positions(source, start):
            resumed = opened.resume_position(where, copy.deepcopy(start))
        end = stored_position(source, resumed.position)
        reason = _reason_of_loss(self._context.spec.name, source, opened, start)
        why = "it is the end of the log" if end == start else lost_after(self._context, source, newest, end)
        if why is not None:
            raise InvalidRequest(
                f"source {source}: the external system no longer has what follows the log, and {resume_from} is "
                f"position {position_text(end)}, from which it cannot continue either: {why}. Nothing was changed.",
                hint="resume from a later time or from latest, if the source can",
                source=source,
            )
        passed = "" if resumed.passed is None else _passed_text(resumed.passed)
        follows = newest.record.sequence, newest.digest
        approved = ApprovedGap(source, *follows, end, resumed.behind, resumed.backlog, passed)
        changes = tuple(position_changes(start, end))
        notes = tuple(filter(None, (passed and f"it passes {passed}", resumed.note)))
        text = tuple(_text(newest, resume_from, changes, reason, notes))
        return GapPlan(self._context.spec.name, approved, start, changes, reason, text)

    @use_case
    def approve(self, approved: ApprovedGap, approved_by: str) -> AppendedGap:
        """Append the gap to the log.

        Args:
            approved: of the plan. approved_by: who approved it, for the record.
        Raises:
            PlanOutdated: the log has moved, or more is lost now.
            InvalidRequest: the external system has what follows the log again. Nothing was changed.
            CommitOutcomeUnknown: the record may be stored. Others: as `plan`.
        """
        source, newest = approved.source, newest_record(self._context, approved.source)
        require_unmoved(newest, source, approved.sequence, approved.digest, _WHAT)
        opened = open_as_landed(self._context, source, newest)
        reason = _reason_of_loss(self._context.spec.name, source, opened, newest.record.end)
        if (why := lost_after(self._context, source, newest, approved.end)) is not None:
            raise outdated(source, why, _WHAT)
        if approved.passed:
            reason = f"{approved.passed} passed: {reason}"
        log, gap = self._context.source_log(source), Gap(reason[:REASON_CHARACTERS], approved_by)
        left, now_ms = (approved.behind, approved.backlog), log.store.clock_ms()
        record = gap_record(newest, uuid.uuid4().hex, approved.end, gap, now_ms, *left)
        append_approved(log, record, _WHAT)
        return self._appended(source, record)

    def find(self, approved: ApprovedGap) -> AppendedGap | None:
        """Return the gap of an approval if it was appended; None: it was not.

        Raises PlanOutdated: the record after the approved one was deleted, so the log has moved.
        """
        record = record_of_approval(self._context.source_log(approved.source), approved.sequence + 1, _WHAT)
        if record is None or record.gap is None or (record.previous, record.end) != (approved.digest, approved.end):
            return None
        return self._appended(approved.source, record)

    def _appended(self, source: str, record: LogRecord) -> AppendedGap:
        assert record.gap is not None
        job, gap = self._context.spec.name, record.gap
        positions = record.start, record.end
        return AppendedGap(
            job, source, record.sequence, *positions, gap.reason, gap.approved_by, next_step=f"milepost land {job}"
        )


def _where(source: str, resume_from: str) -> str | int:
    if resume_from in ("earliest", "latest"):
        return resume_from
    try:
        return start_time_ms(resume_from)
    except ValueError as error:
        raise InvalidRequest(f"source {source}: {error}. Nothing was changed.", source=source) from error


def _reason_of_loss(job: str, source: str, opened: LandedSource, start: Position) -> str:
    """Return why the external system does not have what follows the log. Raises InvalidRequest: it has it."""
    if (reason := reason_of_loss(source, opened, start)) is not None:
        return reason
    raise InvalidRequest(
        f"source {source}: the external system has what follows the log, from position {position_text(start)} on: "
        "nothing is lost. Nothing was changed.",
        hint=f"milepost land {job} --source {source}",
        source=source,
    )


def _passed_text(passed: PassedFiles) -> str:
    """Return what a gap passes, as text: `3 data files (1 lost), and those of 1 deleted commit`."""
    text = f"{counted(passed.count, 'data file')} ({passed.lost} lost)"
    commits = passed.unknown_commits
    return f"{text}, and those of {counted(commits, 'deleted commit')}" if commits else text


def _text(
    newest: StoredRecord, resume_from: str, changes: tuple[str, ...], reason: str, notes: tuple[str, ...]
) -> Iterator[str]:
    record = newest.record
    landed = f"{counted(record.total_rows, 'row')}, the newest record of {iso_ms(record.landed_at_ms)}"
    yield f"the log ends with record {record.sequence}: {landed}"
    yield f"lost: {reason}"
    yield f"record {record.sequence + 1} is a gap, and landing continues from {resume_from}: {'; '.join(changes)}"
    yield from notes
    yield "the rows in between are never landed: all timelines, replays and savepoints pass the gap"
