"""Find the landed records that are false, because the external system was rolled back (L8).

The source finds the newest record that is still true. All records after it are false. So is a gap that was approved by
mistake, and a record that refers to a data file which its table has deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.epoch import counted
from milepost.errors import InvalidRequest, NotFound, SourceWentBack
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.table_files import lost_files_from
from milepost.jobmaster.landing.approvals import lost_after, open_as_landed
from milepost.jobmaster.landing.lost_positions import clause, named_positions, try_reading
from milepost.protocol.landed import LogPosition, Position, StoredRecord, VoidSpan, false_span, is_void, live_sequences
from milepost.protocol.records import CheckpointId
from milepost.sources.landed import LandedSource, ResumableSource, RewindableSource
from milepost.storage.log import SourceLog

AUTO = "auto"
"""Begin with the first record that is false according to the source."""

_OTHER_NAME = "give the source another name in the spec, which begins a log of its own"


def first_false(context: JobContext, source: str, newest: StoredRecord, void_from: str) -> tuple[StoredRecord, str]:
    """Return the first record that would be void, and why it is false. Raises InvalidRequest, SourceReplaced."""
    log, opened = context.source_log(source), open_as_landed(context, source, newest)
    number = None if void_from == AUTO else _record_number(source, void_from)
    first = None if number is None else _voidable(context, log, newest, number)
    if first is not None and (lost := lost_files_from(context, source, first.record.sequence)):
        return first, f"{counted(len(lost), 'data file')} of its table lost, such as {lost[0]}"
    reason = _why_false(source, opened, newest)
    if reason is None:
        if first is not None and first.record.gap is not None:
            return first, f"gap {number} was approved by mistake"
        raise InvalidRequest(
            f"source {source}: the external system still has what the log ends with, record "
            f"{newest.record.sequence}: nothing is false. Nothing was changed.",
            hint=f"a gap that was approved by mistake is voided by its number. Otherwise just land: milepost land "
            f"{context.spec.name} --source {source}",
            source=source,
        )
    true = _newest_true(context, source, log, newest)
    if first is not None and number is not None and number > true + 1:
        raise InvalidRequest(
            f"source {source}: expected at most record {true + 1}, which is false as well, got record {number}. "
            "Nothing was changed.",
            hint=f"void from there: --void-from {true + 1}",
            source=source,
        )
    return first or log.record(true + 1), reason


def _voidable(context: JobContext, log: SourceLog, newest: StoredRecord, number: int) -> StoredRecord:
    """Return a record that can be made void. Raises InvalidRequest: it was deleted, or is void already."""
    lowest, last = log.first(newest) + (log.floor is None), newest.record.sequence
    if not lowest <= number <= last or is_void(number - 1, newest.record.voids):
        deleted = f"{lowest} to {last}" if lowest <= last else "none"
        raise InvalidRequest(
            f"source {log.source}: expected a retained record that is not void and does not follow a void one, got "
            f"{number}. Retained records that can be void: {deleted}. Nothing was changed.",
            hint=f"milepost input {context.spec.name} {log.source} --at N shows a record",
            source=log.source,
        )
    return log.record(number)


def _newest_true(context: JobContext, source: str, log: SourceLog, newest: StoredRecord) -> int:
    """Return the sequence of the newest record that is still true. Raises InvalidRequest: none, or unknown."""
    opened = open_as_landed(context, source, newest)  # some sources read once per opening
    if not isinstance(opened, RewindableSource):
        form = context.spec.landed[source].format
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
            f"source {source}: the external system does not continue from record {newest.record.sequence}, but reports "
            "that it is true. Nothing was changed.",
            hint=f"milepost land {context.spec.name} --source {source}",
            source=source,
        )
    return (*reversed(sequences), log.first(newest) - 1)[index]


def next_loss(context: JobContext, source: str, newest: StoredRecord, first: StoredRecord) -> str | None:
    """Return why the external system cannot continue from before a record; None: it can.

    Raises InvalidRequest: it cannot, and a gap does not help.
    """
    why = lost_after(context, source, newest, first.record.start)
    opened = open_as_landed(context, source, newest)
    if why is not None and (first.record.gap is not None or not isinstance(opened, ResumableSource)):
        raise InvalidRequest(
            f"source {source}: the external system cannot continue from before record {first.record.sequence}: {why}. "
            "Nothing was changed.",
            hint=f"bring the lost data back, or {_OTHER_NAME}",
            source=source,
        )
    return why


def head_position(context: JobContext, source: str) -> tuple[CheckpointId, LogPosition | None]:
    """Return the live head, and how far it has read a log; None: it has read nothing."""
    state = context.head().state
    head = state.timeline().head
    base = context.base_metadata(state, head)
    return head, None if base is None else base.log_position(context.stored_name(source))


def false_head(context: JobContext, source: str, newest: StoredRecord) -> tuple[LogPosition, VoidSpan]:
    """Return how far the live head has read a log, and the void records that it has read. Raises InvalidRequest."""
    head, position = head_position(context, source)
    span = false_span(position, newest.record)
    if position is None or span is None:
        raise InvalidRequest(
            f"source {source}: checkpoint {head}, the live head, has read no void record whose "
            "rows were not accepted. Nothing was changed.",
            hint=f"milepost run {context.spec.name}",
            source=source,
        )
    return position, span


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


def behind_before(log: SourceLog, first: StoredRecord) -> tuple[str, ...]:
    """Return the partitions that were behind before a record; () if the record before it was deleted."""
    try:
        return log.record(first.record.sequence - 1).record.behind
    except NotFound:
        return ()
