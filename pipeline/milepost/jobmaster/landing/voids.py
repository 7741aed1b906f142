"""Plan and approve that landed records are void, because the external system has gone back (L8).

The source says which record is the newest that is still true. All records after it are void, and the next landing goes
on from its end. A gap that was approved by mistake is voided by its number, and so is a record that refers to a data
file which its table has deleted. A plan changes nothing, and an approval holds for the record that was the newest one
of the log then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.epoch import counted, iso_ms
from milepost.errors import CommitConflict, InvalidRequest, NotFound, SourceWentBack
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.false_rows import false_rows, named_records, rollback_target
from milepost.jobmaster.job.input.table_files import lost_files_from
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.landing.approvals import (
    REASON_CHARACTERS,
    lost_after,
    newest_record,
    open_as_landed,
    outdated,
    record_of_approval,
)
from milepost.jobmaster.landing.lost_positions import clause, named_positions, try_reading
from milepost.protocol.landed import (
    LogPosition,
    LogRecord,
    Position,
    StoredRecord,
    Void,
    VoidSpan,
    accept_record,
    false_span,
    is_void,
    live_sequences,
    position_changes,
    void_record,
)
from milepost.sources.landed import LandedSource, ResumableSource, RewindableSource
from milepost.storage.log import SourceLog

AUTO = "auto"
"""Void from the first record that the source finds to be false."""

_OTHER_NAME = "give the source another name in the spec, which begins a log of its own"


@dataclass(frozen=True, slots=True)
class ApprovedVoid:
    """A void record, or an acceptance of false rows, that was planned, and the record that it follows.

    Attributes:
        sequence, digest: of the newest record of the log. void_from: the first record that is void.
        accepts: whether the records are void already, and checkpoints that have read false rows may go on.
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
        end: position from which landing would go on. reason: of the source. text: the plan for people.
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
        sequence: of its record. void_from: the first record that is void. end: where landing goes on.
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
    """The use cases of one job for landed records that prove false."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def plan(self, source: str, void_from: str) -> VoidPlan:
        """Return which records would be void. Reads the external system, and changes nothing.

        Args:
            source: a landed source. void_from: `auto`, or the number of the first record that is false.
        Raises:
            InvalidRequest: these records are not false, or the source cannot go on from before them. NotFound: no such
                source or log. SourceReplaced: it is another external system. SourceUnreachable: it failed.
            JobNotRunnable: the job has ended. StateCorrupt: the log is not the one that the job has read.
        """
        newest = newest_record(self._context, source)
        first, reason = self._first_false(source, newest, void_from)
        approved = ApprovedVoid(source, newest.record.sequence, newest.digest, first.record.sequence, accepts=False)
        end = first.record.start
        text = tuple(self._text(source, newest, first, reason, self._next_loss(source, newest, first)))
        return VoidPlan(self._context.spec.name, approved, end, reason, text)

    def plan_acceptance(self, source: str) -> VoidPlan:
        """Return which false rows of the live head would be accepted. Changes nothing.

        Raises:
            InvalidRequest: the live head has read no void record, or only accepted ones. Others: as `plan`.
        """
        newest = newest_record(self._context, source)
        position, span = self._false_head(source, newest)
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
        what = "acceptance" if approved.accepts else "void record"
        if (newest.record.sequence, newest.digest) != (approved.sequence, approved.digest):
            why = f"its log ends with record {newest.record.sequence} now, not {approved.sequence}"
            raise outdated(source, why, what)
        log, write_id = self._context.source_log(source), uuid.uuid4().hex
        now_ms = log.store.clock_ms()
        if approved.accepts:
            position, span = self._false_head(source, newest)
            if span.first != approved.void_from:
                raise outdated(source, f"the head has read void records from record {span.first} on", what)
            record = accept_record(newest, write_id, Void(span.first, _reason(position, span), approved_by), now_ms)
        else:
            first, reason = self._first_false(source, newest, str(approved.void_from))
            self._next_loss(source, newest, first)
            void = Void(first.record.sequence, reason[:REASON_CHARACTERS], approved_by)
            record = void_record(newest, first, write_id, void, now_ms, _behind(log, first))
        try:
            log.append(record)
        except CommitConflict as error:
            raise outdated(source, f"a landing has appended record {record.sequence}", what) from error
        return self._appended(source, record, accepts=approved.accepts)

    def find(self, approved: ApprovedVoid) -> AppendedVoid | None:
        """Return the record of an approval if it was appended; None: it was not.

        Raises PlanOutdated: the record that would be it was deleted since, so the log has moved.
        """
        log, what = self._context.source_log(approved.source), "acceptance" if approved.accepts else "void record"
        record = record_of_approval(log, approved.sequence + 1, what)
        if record is None:
            return None
        kind, void = "accept" if approved.accepts else "void", record.void
        is_same = record.kind.value == kind and void is not None and void.void_from == approved.void_from
        is_same = is_same and record.previous == approved.digest
        return self._appended(approved.source, record, accepts=approved.accepts) if is_same else None

    def _first_false(self, source: str, newest: StoredRecord, void_from: str) -> tuple[StoredRecord, str]:
        """Return the first record that would be void, and why it is false. Raises InvalidRequest, SourceReplaced."""
        log, opened = self._context.source_log(source), open_as_landed(self._context, source, newest)
        number = None if void_from == AUTO else _record_number(source, void_from)
        first = None if number is None else self._voidable(log, newest, number)
        if first is not None and (lost := lost_files_from(self._context, source, first.record.sequence)):
            return first, f"{counted(len(lost), 'data file')} of its table lost, such as {lost[0]}"
        reason = _why_false(source, opened, newest)
        if reason is None:
            if first is not None and first.record.gap is not None:
                return first, f"gap {number} was approved by mistake"
            raise InvalidRequest(
                f"source {source}: the external system still has what the log ends with, record "
                f"{newest.record.sequence}: nothing is false. Nothing was changed.",
                hint=f"a gap that was approved by mistake is voided by its number. Otherwise just land: milepost land "
                f"{self._context.spec.name} --source {source}",
                source=source,
            )
        true = self._newest_true(source, log, newest)
        if first is not None and number is not None and number > true + 1:
            raise InvalidRequest(
                f"source {source}: expected at most record {true + 1}, which is false as well, got record {number}. "
                "Nothing was changed.",
                hint=f"void from there: --void-from {true + 1}",
                source=source,
            )
        return first or log.record(true + 1), reason

    def _voidable(self, log: SourceLog, newest: StoredRecord, number: int) -> StoredRecord:
        """Return a record that can be void. Raises InvalidRequest: it was deleted, or is void already."""
        lowest, last = log.first(newest) + (log.floor is None), newest.record.sequence
        if not lowest <= number <= last or is_void(number - 1, newest.record.voids):
            deleted = f"{lowest} to {last}" if lowest <= last else "none"
            raise InvalidRequest(
                f"source {log.source}: expected a retained record that is not void and does not follow a void one, got "
                f"{number}. Retained records that can be void: {deleted}. Nothing was changed.",
                hint=f"milepost input {self._context.spec.name} {log.source} --at N shows a record",
                source=log.source,
            )
        return log.record(number)

    def _newest_true(self, source: str, log: SourceLog, newest: StoredRecord) -> int:
        """Return the sequence of the newest record that is still true. Raises InvalidRequest: none, or unknown."""
        opened = open_as_landed(self._context, source, newest)  # some sources read once per opening
        if not isinstance(opened, RewindableSource):
            form = self._context.spec.landed[source].format
            raise InvalidRequest(
                f"source {source}: format {form} cannot say which of the landed records are still true. Nothing was "
                "changed.",
                hint=_OTHER_NAME,
                source=source,
            )
        sequences = live_sequences(log.first(newest), newest.record.sequence, newest.record.voids)
        floor = log.floor if log.floor is None or not is_void(log.floor.next - 1, newest.record.voids) else None
        with named_positions(source, newest.record.end):
            index = opened.newest_true(_ends(log, sequences, floor))
        if index is None:
            raise InvalidRequest(
                f"source {source}: the external system has changed before all retained records of the log, which begin "
                f"with record {log.first(newest)}. Nothing was changed.",
                hint=_OTHER_NAME,
                source=source,
            )
        if index == 0:
            raise InvalidRequest(
                f"source {source}: the external system does not go on from record {newest.record.sequence}, but finds "
                "that it is true. Nothing was changed.",
                hint=f"milepost land {self._context.spec.name} --source {source}",
                source=source,
            )
        return (*reversed(sequences), log.first(newest) - 1)[index]

    def _next_loss(self, source: str, newest: StoredRecord, first: StoredRecord) -> str | None:
        """Return why the external system cannot go on from before a record; None: it can.

        Raises InvalidRequest: it cannot, and a gap does not help.
        """
        why = lost_after(self._context, source, newest, first.record.start)
        opened = open_as_landed(self._context, source, newest)
        if why is not None and (first.record.gap is not None or not isinstance(opened, ResumableSource)):
            raise InvalidRequest(
                f"source {source}: the external system cannot go on from before record {first.record.sequence}: {why}. "
                "Nothing was changed.",
                hint=f"bring the lost data back, or {_OTHER_NAME}",
                source=source,
            )
        return why

    def _false_head(self, source: str, newest: StoredRecord) -> tuple[LogPosition, VoidSpan]:
        """Return how far the live head has read a log, and the void records among that. Raises InvalidRequest."""
        state = self._context.head().state
        base = self._context.base_metadata(state, state.timeline().head)
        position = None if base is None else base.log_position(self._context.stored_name(source))
        span = false_span(position, newest.record)
        if position is None or span is None:
            raise InvalidRequest(
                f"source {source}: checkpoint {state.timeline().head}, the live head, has read no void record whose "
                "rows were not accepted. Nothing was changed.",
                hint=f"milepost run {self._context.spec.name}",
                source=source,
            )
        return position, span

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
        yield f"landing goes on from before that: {changes}"
        state = self._context.head().state
        base = self._context.base_metadata(state, state.timeline().head)
        position = None if base is None else base.log_position(self._context.stored_name(source))
        if position is not None and position.next > false.sequence:
            yield f"checkpoint {state.timeline().head} has read some of them: {self._next_step(source, false.sequence)}"
        if lost is not None:
            yield f"the next landing stops, and a gap is needed after it: {lost}"
        yield f"all timelines and replays skip void records; `milepost input {job} {source} --at N` still shows them"

    def _acceptance_text(
        self, source: str, newest: StoredRecord, position: LogPosition, span: VoidSpan
    ) -> Iterator[str]:
        job, head = self._context.spec.name, self._context.head().state.timeline().head
        yield f"{named_records(span.first, span.end - 1)} void since record {span.end}"
        yield f"checkpoint {head} has read {false_rows(position.total_rows, span)} of them, and goes on with these rows"
        target = rollback_target(self._context, self._context.source_log(source), span.first)
        if target is not None:
            yield f"a rollback would remove them instead: milepost rollback {job} --to {target}"
        yield "rows that the external system has in their place are read as well, and may count twice"
        yield f"record {newest.record.sequence + 1} of the log says so, for every checkpoint that has read some of them"

    def _next_step(self, source: str, void_from: int) -> str:
        """Return how the job goes on from a checkpoint that has read records from `void_from` on, as a clause."""
        job, log = self._context.spec.name, self._context.source_log(source)
        target = rollback_target(self._context, log, void_from)
        if target is not None:
            return f"after this, milepost rollback {job} --to {target}"
        return (
            "no checkpoint from before them is retained. After this, milepost land "
            f"{job} --source {source} --accept-void goes on with the false rows"
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


def _record_number(source: str, void_from: str) -> int:
    if not void_from.isascii() or not void_from.isdigit() or len(void_from) > 18:
        raise InvalidRequest(
            f"source {source}: expected `auto` or the number of a record, got {void_from!r}. Nothing was changed.",
            source=source,
        )
    return int(void_from)


def _ends(log: SourceLog, sequences: Sequence[int], floor: LogPosition | None) -> Iterator[Position]:
    """Yield the position after each of the records, the newest first, and then that of the floor."""
    for sequence in reversed(sequences):
        yield log.record(sequence).record.end
    if floor is not None:
        yield floor.at


def _why_false(source: str, opened: LandedSource, newest: StoredRecord) -> str | None:
    """Return why the external system is not where the log ends; None: it is."""
    with named_positions(source, newest.record.end):
        try:
            try_reading(opened, newest.record.end)
        except SourceWentBack as error:
            return clause(error.message) or "the external system went back"
    return None


def _behind(log: SourceLog, first: StoredRecord) -> tuple[str, ...]:
    """Return the partitions that were behind before a record; () if the record before it was deleted."""
    try:
        return log.record(first.record.sequence - 1).record.behind
    except NotFound:
        return ()


def _reason(position: LogPosition, span: VoidSpan) -> str:
    return f"{false_rows(position.total_rows, span)} were read before they were void"
