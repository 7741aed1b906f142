"""Plan and approve that landed records are void, because they are false (L8).

The next landing continues from before the first of them. A plan changes nothing. An approval is valid while the newest
record of the log is the one that the plan named.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from milepost.epoch import counted, iso_ms
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.false_rows import false_rows, named_records, rollback_target
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.landing.approvals import (
    REASON_CHARACTERS,
    append_approved,
    newest_record,
    outdated,
    record_of_approval,
    require_unmoved,
)
from milepost.jobmaster.landing.false_records import behind_before, false_head, first_false, head_position, next_loss
from milepost.protocol.landed import (
    LogPosition,
    LogRecord,
    Position,
    StoredRecord,
    Void,
    VoidSpan,
    accept_record,
    position_changes,
    void_record,
)


@dataclass(frozen=True, slots=True)
class ApprovedVoid:
    """A void record, or an acceptance of false rows, that was planned, and the record that it follows.

    Attributes:
        sequence, digest: of the newest record of the log. void_from: the first record that is void.
        accepts: whether the records are void already, and checkpoints that have read false rows may continue.
    """

    source: str
    sequence: int
    digest: str
    void_from: int
    accepts: bool


@dataclass(frozen=True, slots=True)
class VoidPlan:
    """What a void record, or an acceptance, would change.

    Attributes:
        end: position from which landing would continue. reason: from the source. text: the plan, one line each.
    """

    job: str
    approved: ApprovedVoid
    end: Position
    reason: str
    text: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppendedVoid:
    """A void record, or an acceptance of false rows, in a log.

    Attributes:
        sequence: of its record. void_from: the first record that is void. end: where landing continues.
        accepts: whether it is an acceptance.
    """

    job: str
    source: str
    sequence: int
    void_from: int
    accepts: bool
    end: Position
    reason: str
    approved_by: str
    next_step: str
    outcome: str = "appended"


class Voids:
    """The use cases of one job for landed records that are false."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def plan(self, source: str, void_from: str) -> VoidPlan:
        """Return which records would be void. Reads the external system, and changes nothing.

        Args:
            source: a landed source. void_from: `auto`, or the number of the first record that is false.
        Raises:
            InvalidRequest: these records are not false, or the source cannot continue from before them. NotFound: no
                such source or log. SourceReplaced: it is another external system. SourceUnreachable: it failed.
            JobNotRunnable: the job has ended. StateCorrupt: the log is not the one that the job has read.
        """
        newest = newest_record(self._context, source)
        first, reason = first_false(self._context, source, newest, void_from)
        approved = ApprovedVoid(source, newest.record.sequence, newest.digest, first.record.sequence, accepts=False)
        end = first.record.start
        text = tuple(self._text(source, newest, first, reason, next_loss(self._context, source, newest, first)))
        return VoidPlan(self._context.spec.name, approved, end, reason, text)

    def plan_acceptance(self, source: str) -> VoidPlan:
        """Return which false rows of the live head would be accepted. Changes nothing.

        Raises:
            InvalidRequest: the live head has read no void record, or only accepted ones. Others: as `plan`.
        """
        newest = newest_record(self._context, source)
        position, span = false_head(self._context, source, newest)
        approved = ApprovedVoid(source, newest.record.sequence, newest.digest, span.first, accepts=True)
        text = tuple(self._acceptance_text(source, newest, position, span))
        return VoidPlan(self._context.spec.name, approved, newest.record.end, _reason(position, span), text)

    @use_case
    def approve(self, approved: ApprovedVoid, approved_by: str) -> AppendedVoid:
        """Append the void record, or the acceptance, to the log.

        Args:
            approved: of the plan. approved_by: who approved it, for the record.
        Raises:
            PlanOutdated: the log has moved. CommitOutcomeUnknown: the record may be stored. Others: as the plan.
        """
        source, newest = approved.source, newest_record(self._context, approved.source)
        what = _what(approved)
        require_unmoved(newest, source, approved.sequence, approved.digest, what)
        log, write_id = self._context.source_log(source), uuid.uuid4().hex
        now_ms = log.store.clock_ms()
        if approved.accepts:
            position, span = false_head(self._context, source, newest)
            if span.first != approved.void_from:
                raise outdated(source, f"the head has read void records from record {span.first} on", what)
            record = accept_record(newest, write_id, Void(span.first, _reason(position, span), approved_by), now_ms)
        else:
            first, reason = first_false(self._context, source, newest, str(approved.void_from))
            next_loss(self._context, source, newest, first)
            void = Void(first.record.sequence, reason[:REASON_CHARACTERS], approved_by)
            record = void_record(newest, first, write_id, void, now_ms, behind_before(log, first))
        append_approved(log, record, what)
        return self._appended(source, record, accepts=approved.accepts)

    def find(self, approved: ApprovedVoid) -> AppendedVoid | None:
        """Return the record of an approval if it was appended; None: it was not.

        Raises PlanOutdated: the record after the approved one was deleted, so the log has moved.
        """
        log = self._context.source_log(approved.source)
        record = record_of_approval(log, approved.sequence + 1, _what(approved))
        if record is None:
            return None
        kind, void = "accept" if approved.accepts else "void", record.void
        is_same = record.kind.value == kind and void is not None and void.void_from == approved.void_from
        is_same = is_same and record.previous == approved.digest
        return self._appended(approved.source, record, accepts=approved.accepts) if is_same else None

    def _text(
        self, source: str, newest: StoredRecord, first: StoredRecord, reason: str, lost: str | None
    ) -> Iterator[str]:
        record, false, job = newest.record, first.record, self._context.spec.name
        landed = f"{counted(record.total_rows, 'row')}, the newest record of {iso_ms(record.landed_at_ms)}"
        yield f"the log ends with record {record.sequence}: {landed}"
        yield f"false: {reason}"
        rows = record.total_rows - (false.total_rows - false.rows)
        changes = "; ".join(position_changes(record.end, false.start)) or "the position stays"
        yield f"{named_records(false.sequence, record.sequence)} void, with {counted(rows, 'row')}"
        yield f"landing continues from before that: {changes}"
        head, position = head_position(self._context, source)
        if position is not None and position.next > false.sequence:
            yield f"checkpoint {head} has read some of them: {self._next_step(source, false.sequence)}"
        if lost is not None:
            yield f"the next landing stops, and a gap is needed after it: {lost}"
        yield f"all timelines and replays skip void records; `milepost input {job} {source} --at N` still shows them"

    def _acceptance_text(
        self, source: str, newest: StoredRecord, position: LogPosition, span: VoidSpan
    ) -> Iterator[str]:
        job, head = self._context.spec.name, self._context.head().state.timeline().head
        yield f"{named_records(span.first, span.end - 1)} void since record {span.end}"
        read = false_rows(position.total_rows, span)
        yield f"checkpoint {head} has read {read} of them, and continues with these rows"
        target = rollback_target(self._context, self._context.source_log(source), span.first)
        if target is not None:
            yield f"a rollback would remove them instead: milepost rollback {job} --to {target}"
        yield "rows that the external system has in their place are read as well, and may count twice"
        yield f"record {newest.record.sequence + 1} of the log says so, for every checkpoint that has read some of them"

    def _next_step(self, source: str, void_from: int) -> str:
        """Return how the job continues from a checkpoint that has read records from `void_from` on, as a clause."""
        job, log = self._context.spec.name, self._context.source_log(source)
        target = rollback_target(self._context, log, void_from)
        if target is not None:
            return f"after this, milepost rollback {job} --to {target}"
        return (
            "no checkpoint from before them is retained. After this, milepost land "
            f"{job} --source {source} --accept-void continues with the false rows"
        )

    def _appended(self, source: str, record: LogRecord, *, accepts: bool) -> AppendedVoid:
        assert record.void is not None
        job, void = self._context.spec.name, record.void
        return AppendedVoid(
            job,
            source,
            record.sequence,
            void.void_from,
            accepts,
            record.end,
            void.reason,
            void.approved_by,
            next_step=f"milepost {'run' if accepts else 'land'} {job}",
        )


def _what(approved: ApprovedVoid) -> str:
    """Return the record to approve, for messages."""
    return "acceptance" if approved.accepts else "void record"


def _reason(position: LogPosition, span: VoidSpan) -> str:
    return f"{false_rows(position.total_rows, span)} were read before they were void"
