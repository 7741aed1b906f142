"""Steps that the approvals of a gap and of a void record share: the log must not have moved since the plan."""

from __future__ import annotations

from milepost.errors import CommitConflict, NotFound, PlanOutdated
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.landings import require_landed, require_log_of_head
from milepost.jobmaster.landing.lost_positions import reason_of_loss
from milepost.jobmaster.landing.open_sources import open_source
from milepost.protocol.landed import JOB, LogRecord, Position, StoredRecord, require_identity
from milepost.protocol.manifest.transaction import job_ended_error
from milepost.protocol.records import ENDED_STATUSES
from milepost.sources.landed import LandedSource
from milepost.storage.log import SourceLog

REASON_CHARACTERS = 1_000
"""Maximum length of a reason in a record."""


def newest_record(context: JobContext, source: str) -> StoredRecord:
    """Return the newest record of a log that can continue.

    Raises: NotFound, InvalidRequest, JobNotRunnable, StateCorrupt.
    """
    require_landed(context, source)
    state = context.head().state
    if state.status in ENDED_STATUSES:
        raise job_ended_error(state)
    log = context.source_log(source)
    newest = log.newest()
    if newest is None:
        raise NotFound(
            f"source {source}: nothing was landed yet, so nothing can be missing or false. Nothing was changed.",
            hint=f"milepost land {context.spec.name} --source {source}",
            source=source,
        )
    require_log_of_head(context, log, state)
    return newest


def open_as_landed(context: JobContext, source: str, newest: StoredRecord) -> LandedSource:
    """Open the external system of a log. Raises SourceReplaced: it is not the system that was landed."""
    opened = open_source(context, source, context.spec.landed[source])
    require_identity(source, newest.record.identity, {JOB: context.identity, **opened.identity()})
    return opened


def lost_after(context: JobContext, source: str, newest: StoredRecord, end: Position) -> str | None:
    """Return why the external system does not have what follows a position; None: it has it."""
    opened = open_as_landed(context, source, newest)  # some sources read once per opening
    return reason_of_loss(source, opened, end, whole=False)


def require_unmoved(newest: StoredRecord, source: str, sequence: int, digest: str, what: str) -> None:
    """Raise PlanOutdated if the newest record of the log is not the one that the plan named.

    Args:
        sequence, digest: of the record in the plan. what: the record to approve, for messages.
    """
    if (newest.record.sequence, newest.digest) != (sequence, digest):
        raise outdated(source, f"its log ends with record {newest.record.sequence} now, not {sequence}", what)


def append_approved(log: SourceLog, record: LogRecord, what: str) -> None:
    """Append an approved record. Raises: PlanOutdated: a landing was faster; CommitOutcomeUnknown."""
    try:
        log.append(record)
    except CommitConflict as error:
        raise outdated(log.source, f"a landing has appended record {record.sequence}", what) from error


def record_of_approval(log: SourceLog, sequence: int, what: str) -> LogRecord | None:
    """Return the record that an approval may have appended; None: there is none.

    Raises PlanOutdated: the record was deleted since the plan, so the log has moved.
    """
    try:
        return log.record(sequence).record
    except NotFound:
        if log.floor is None or sequence >= log.floor.next:
            return None
        why = f"record {sequence} of its log, which would be the {what}, was landed and deleted (`land.retain`)"
        raise outdated(log.source, why, what) from None


def outdated(source: str, why: str, what: str) -> PlanOutdated:
    """Return the error for an approval of an outdated plan."""
    return PlanOutdated(
        f"source {source}: the {what} that was approved no longer fits: {why}. Nothing was changed.",
        hint="review a new plan",
        source=source,
    )
